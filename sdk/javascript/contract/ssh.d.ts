// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/**
 * SSH through egress.
 * SSH by the host: it knows the target, verifies the server, holds the key and pools the connections.
 */
declare module "leasehold:provider/ssh@0.1.0" {
    import type { Content } from "leasehold:provider/types@0.1.0";
    import type { Error } from "leasehold:provider/types@0.1.0";
    import type { Millis } from "leasehold:provider/types@0.1.0";
    import type { ResourceId } from "leasehold:provider/types@0.1.0";
    import type { Bytes } from "leasehold:provider/http@0.1.0";
    import type { Process } from "leasehold:provider/streams@0.1.0";
    import type { Duplex } from "leasehold:provider/streams@0.1.0";
    import type { Size } from "leasehold:provider/streams@0.1.0";

    /** What a short command came to. */
    export interface Output {
        /** Standard output, at most the limit. */
        stdout: Content;
        /** Standard error, at most the limit. */
        stderr: Content;
        /** Exit status, where it ended by itself. */
        status?: number | null;
        /** The signal that ended it, POSIX name without SIG. */
        signal?: string | null;
        /** Whether output beyond the limit was dropped. */
        truncated: boolean;
    }

    /** A lease's own directory on a target. */
    export interface Workspace {
        /** Where its commands start: a directory inside it. */
        path: string;
        /** The acquisition that it was made for. */
        resource: ResourceId;
        /** The labels of its marker. */
        labels: Array<[string, string]>;
        /** `ready`, or `incomplete` where a crash left it half-made. */
        condition: string;
    }

    /** What became of a command that the host started and supervises. */
    export type CommandState =
        /** It runs, and has no end on record. */
        | { tag: "running" }
        /** It ended with this status, 0 to 255. */
        | { tag: "exited"; val: number }
        /** It was ended by this signal, POSIX name without SIG. */
        | { tag: "signalled"; val: string }
        /** Proven: the supervisor never began, and it never will. */
        | { tag: "not-started" }
        /** The supervisor began and left no end: the target was restarted, or the record was removed. */
        | { tag: "unknown" };

    /**
     * A connection to one target, or a share of one. Everything that a lease does happens in the workspace that
     * `make-workspace` made for it: the host finds it by `parent` and the lease's acquisition.
     */
    export class Session {
        private constructor();
        /**
         * Connects, or takes a share of a connection that is there. Every function of a session is one exchange.
         * `target`: pointer of a field of format `ssh-target`. `username`: a placeholder of a minted one, where that
         * field leaves it open.
         * @throws {Error}
         */
        static open(target: string, username: string | null, timeout: Millis | null): Session;
        /**
         * Makes this lease's own directory below `parent`, with the host's marker in it; its resource is the
         * acquisition. There already, and ours: the same. Somebody else's: `already-exists`.
         * @throws {Error}
         */
        makeWorkspace(parent: string): Workspace;
        /**
         * Every directory below `parent` that carries this host's marker.
         * @throws {Error}
         */
        listWorkspaces(parent: string): Array<Workspace>;
        /**
         * Ends every process of the lease, whatever it did to escape its session, and removes the directory.
         * Gone already is success.
         * @throws {Error}
         */
        removeWorkspace(parent: string, resource: ResourceId): void;
        /**
         * Runs under the remote /bin/sh with `args` as its positional parameters, whatever the login shell is and
         * whatever its start files print. Script, arguments and variables go over stdin, quoted by the host; none is
         * in any process's arguments. The command's stdin follows. At most `limit` bytes of stdout and of stderr are
         * kept.
         * @throws {Error}
         */
        run(script: string, args: Array<string>, env: Array<[string, string]>, stdin: Content, limit: number, timeout: Millis | null): Output;
        /**
         * The same, as a stream, and only in `execution.start`: the host marks what is started, supervises it under
         * the command's id, and keeps its end in the workspace. Half-close, exit status, signals and window size are
         * the channel's own. Started before with this id: `already-exists`, and nothing runs.
         * @throws {Error}
         */
        start(parent: string, script: string, args: Array<string>, env: Array<[string, string]>, tty: Size | null): Process;
        /**
         * What became of a command of this lease, by the host's id of it.
         * @throws {Error}
         */
        stateOf(parent: string, id: string): CommandState;
        /**
         * Sends a signal (POSIX name without SIG) to everything that a command of this lease started.
         * `not-found`: nothing of it is left.
         * @throws {Error}
         */
        signal(parent: string, id: string, signal: string): void;
        /**
         * Unpacks a tar below `root`; escapes are the host's to refuse.
         * @throws {Error}
         */
        put(root: string, archive: Bytes): void;
        /**
         * A tar of `path`, which is below `root`.
         * @throws {Error}
         */
        get(root: string, path: string): Bytes;
        /**
         * To a port on the target's own loopback.
         * @throws {Error}
         */
        forward(port: number): Duplex;
    }

    const all: { Session: typeof Session };
    export default all;
}
