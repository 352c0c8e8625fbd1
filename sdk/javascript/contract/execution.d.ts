// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/**
 * What a provider may export beside `lifecycle`: each of these is a capability.
 * Commands. Bytes do not pass through the component: it hands the host a `process`.
 */
declare module "leasehold:provider/execution@0.1.0" {
    import type { Json } from "leasehold:provider/types@0.1.0";
    import type { Handle } from "leasehold:provider/types@0.1.0";
    import type { Error } from "leasehold:provider/types@0.1.0";
    import type { Context } from "leasehold:provider/types@0.1.0";
    import type { Process } from "leasehold:provider/streams@0.1.0";
    import type { Size } from "leasehold:provider/streams@0.1.0";

    /** A command as a client asked for it. */
    export interface Command {
        /** The host's id of this command, `[a-z0-9-]{1,40}`. */
        id: string;
        /** Program and arguments, no shell. */
        argv: Array<string>;
        /** Variables. Values may be placeholders of payloads. */
        env: Array<[string, string]>;
        /** Where it starts, inside the environment; the host fills in the workspace where nothing was asked. */
        cwd: string;
        /** Whether the host will write to it. With `tty` the terminal is there all the same. */
        stdin: boolean;
        /** The size of its terminal, if it gets one. */
        tty?: Size | null;
    }

    /** A command that runs. */
    export interface Started {
        /** Its stream. The host takes it over when `start` returns; the instance is gone then. */
        process: Process;
        /** Enough to find the command again after the stream is lost; JSON, at most 16 KiB, as a handle. */
        reference: Json;
    }

    /** What became of a command. */
    export type State =
        /** It runs. */
        | { tag: "running" }
        /** It ended with this status, 0 to 255. */
        | { tag: "exited"; val: number }
        /** It was ended by this signal, POSIX name without SIG. */
        | { tag: "signalled"; val: string }
        /** The backend ended it for its memory. */
        | { tag: "out-of-memory" }
        /** Proven: it never ran and never will; with the reason. */
        | { tag: "not-started"; val: string }
        /** Nobody can tell. */
        | { tag: "unknown" };

    /** What a provider exports as `execution`. */
    export interface Execution {
        /**
         * Called once for an id. The provider journals the reference (`host.journal`) before the command can run; if the
         * answer is lost, the host asks `state-of` and does not start again.
         * @throws {Error}
         */
        start(ctx: Context, config: Json, handle: Handle, command: Command): Started;
        /**
         * The stream again after it was lost, from the byte where the host had read each (decimal); only with feature
         * `attach`.
         * @throws {Error}
         */
        attach(ctx: Context, config: Json, handle: Handle, reference: Json, stdout: string, stderr: string): Process;
        /**
         * What became of the command with the host's `id`; `reference` where `start` or the journal had one. Asked when a
         * stream has closed whose exit is `ask`, and again while it answers `running`.
         * @throws {Error}
         */
        stateOf(ctx: Context, config: Json, handle: Handle, id: string, reference: Json | null): State;
        /**
         * Sends a signal, POSIX name without SIG; with feature `signal-group` to everything that the command started.
         * @throws {Error}
         */
        signal(ctx: Context, config: Json, handle: Handle, reference: Json, signal: string): void;
        /**
         * Tells the terminal's size. The first call follows `start` at once. Not called where the host owns the channel
         * (SSH).
         * @throws {Error}
         */
        resize(ctx: Context, config: Json, handle: Handle, reference: Json, size: Size): void;
    }
}
