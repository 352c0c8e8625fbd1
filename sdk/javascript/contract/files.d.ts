// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/** Trees of files as tar archives that the host moves. */
declare module "leasehold:provider/files@0.1.0" {
    import type { Handle } from "leasehold:provider/types@0.1.0";
    import type { Json } from "leasehold:provider/types@0.1.0";
    import type { Error } from "leasehold:provider/types@0.1.0";
    import type { Context } from "leasehold:provider/types@0.1.0";
    import type { Bytes } from "leasehold:provider/http@0.1.0";

    /** What a provider exports as `files`. */
    export interface Files {
        /**
         * Unpacks `archive` below `path`, which exists.
         * @throws {Error}
         */
        put(ctx: Context, config: Json, handle: Handle, path: string, archive: Bytes): void;
        /**
         * A tar of `path`: a file, or a directory with all that is in it.
         * @throws {Error}
         */
        get(ctx: Context, config: Json, handle: Handle, path: string): Bytes;
    }
}
