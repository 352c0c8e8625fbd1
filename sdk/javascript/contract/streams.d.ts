// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/**
 * HTTP and byte streams through egress.
 * Byte streams that the host owns. To the component they are opaque.
 */
declare module "leasehold:provider/streams@0.1.0" {
    import type { Error } from "leasehold:provider/types@0.1.0";
    import type { Request } from "leasehold:provider/http@0.1.0";

    /** A terminal's size in characters. */
    export interface Size {
        /** Columns, at least 1. */
        cols: number;
        /** Rows, at least 1. */
        rows: number;
    }

    /** What switches the stream. */
    export interface Marks {
        /** What follows is standard output. */
        stdout: Uint8Array;
        /** What follows is standard error. */
        stderr: Uint8Array;
    }

    /** How a duplex carries what the process writes. */
    export type Framing =
        /** One stream, of bytes or of a WebSocket's binary messages. */
        | { tag: "merged" }
        /** Docker's 8-byte header: type and big-endian length. */
        | { tag: "docker" }
        /** WebSocket messages whose first byte is a channel, as Kubernetes does: 0 in, 1 out, 2 err, 3 status, 4 size. */
        | { tag: "channels" }
        /** In-band marks that switch between the two, as Daytona's logs do. Not safe for binary output. */
        | { tag: "marks"; val: Marks };

    /** How the host says that input ended. */
    export type InputEnd =
        /** Half-close; the peer goes on sending. */
        | { tag: "half-close" }
        /** These bytes (a terminal's 0x04). */
        | { tag: "bytes"; val: Uint8Array }
        /** It cannot; a command that asks for `stdin` is refused before it starts. */
        | { tag: "none" };

    /** Where the exit code is. */
    export type ExitSource =
        /** `execution.state-of`. */
        | { tag: "ask" }
        /** JSON pointer into the reason of the WebSocket close frame. */
        | { tag: "close-reason"; val: string }
        /** The status message of `channels`. */
        | { tag: "status-channel" };

    /** What a host cannot see from outside. */
    export interface Wiring {
        /** How output is carried. */
        framing: Framing;
        /** How input ends. */
        inputEnd: InputEnd;
        /** Where the exit code is. */
        exit: ExitSource;
    }

    /** A running command as the host sees it: stdin, stdout, stderr, and its end where the transport tells it. */
    export class Process {
        private constructor();
        /**
         * Makes a process of a duplex that a protocol of the backend runs over. `unsupported`: this duplex cannot
         * carry that wiring.
         * @throws {Error}
         */
        static fromDuplex(duplex: Duplex, wiring: Wiring): Process;
    }

    /**
     * Bytes both ways: an upgraded connection, or a forwarded port. A forwarded port takes the framing `merged` and
     * the exit source `ask`.
     */
    export class Duplex {
        private constructor();
    }

    /** What the server said instead of switching. */
    export interface Refusal {
        /** HTTP status. */
        status: number;
        /** The beginning of the body, as text. */
        body: string;
    }

    /** Why there is no stream. */
    export type NoStream =
        /** The server answered something else. */
        | { tag: "refused"; val: Refusal }
        /** There was no answer, or egress lets none through. */
        | { tag: "failed"; val: Error };

    /**
     * HTTP/1.1 Upgrade (RFC 9110, 7.8). The host sets Connection and Upgrade.
     * @throws {NoStream}
     */
    export function upgrade(request: Request, protocol: string): Duplex;

    /**
     * WebSocket (RFC 6455); the request's method and body are not used.
     * @throws {NoStream}
     */
    export function websocket(request: Request, protocols: Array<string>): Duplex;

    const all: { Process: typeof Process; Duplex: typeof Duplex; upgrade: typeof upgrade; websocket: typeof websocket };
    export default all;
}
