// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/** HTTP through egress. */
declare module "leasehold:provider/http@0.1.0" {
    import type { Content } from "leasehold:provider/types@0.1.0";
    import type { Error } from "leasehold:provider/types@0.1.0";
    import type { Millis } from "leasehold:provider/types@0.1.0";

    /** Bytes that the host moves: a file, an archive, a body. To the component a handle. */
    export class Bytes {
        private constructor();
    }

    /** Name and value; a name may stand more than once. */
    export type Headers = Array<[string, string]>;

    /** A request as the component wants it; egress decides whether it goes out, and writes it. */
    export interface Request {
        /** In upper case. */
        method: string;
        /** Absolute; a `unix://` endpoint arrives in the configuration as an origin that only egress resolves. */
        url: string;
        /** Appended to the URL by the host, percent-encoded. No placeholder stands in a URL. */
        query: Array<[string, string]>;
        /** A credential's placeholder only in its site. Those of the connection, and of lengths, are the host's. */
        headers: Headers;
        /**
         * At most 8 MiB. `text` without a content-type header is sent as `application/json`. A payload's placeholder
         * only in string values of such a body, without Content-Encoding, in a request that makes or acts on what is
         * this lease's.
         */
        body: Content;
        /** None: what is left of the call's time. */
        timeout?: Millis | null;
        /**
         * Keeps values that a `mint` of the manifest declares: pointer, and the name (1 to 64 of `A-Za-z0-9._-`) under
         * which `context.kept` of later calls of this lease has it.
         */
        keep: Array<[string, string]>;
    }

    /** The beginning of an answer. */
    export interface Head {
        /** HTTP status. */
        status: number;
        /** Its headers, names in lower case. */
        headers: Headers;
    }

    /** A whole answer. */
    export interface Response {
        /** HTTP status. */
        status: number;
        /** Its headers, names in lower case. */
        headers: Headers;
        /** Its body, at most 8 MiB. */
        body: Content;
    }

    /** An answer that is read while it comes, a line at a time: progress, and errors after a 200. */
    export class Lines {
        private constructor();
        /** Its beginning. */
        head(): Head;
        /**
         * The next line, without its end; waits for it. None at the end. At most 1 MiB a line.
         * @throws {Error}
         */
        next(): string | null;
    }

    /** The request's body in pieces, so that multipart needs nothing of its own; `request.body` is `none`. */
    export type Piece =
        /** These bytes. */
        | { tag: "inline"; val: Content }
        /** Bytes that the host has. */
        | { tag: "bytes"; val: Bytes };

    /**
     * One request and its answer. Bodies up to 8 MiB. `unavailable`: nothing was sent. `outcome-unknown`: sent, and no
     * whole answer came (of a GET or HEAD: `unavailable`).
     * @throws {Error}
     */
    export function send(request: Request): Response;

    /**
     * Sends a request and returns when the answer begins.
     * @throws {Error}
     */
    export function open(request: Request): Lines;

    /**
     * The answer's body as a handle.
     * @throws {Error}
     */
    export function download(request: Request): [Head, Bytes];

    /**
     * Sends a body that the host has, or that is partly the host's.
     * @throws {Error}
     */
    export function upload(request: Request, body: Array<Piece>): Response;

    const all: { Bytes: typeof Bytes; Lines: typeof Lines; send: typeof send; open: typeof open; download: typeof download; upload: typeof upload };
    export default all;
}
