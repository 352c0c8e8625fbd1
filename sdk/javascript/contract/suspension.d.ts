// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/** Keeping an environment without running it. */
declare module "leasehold:provider/suspension@0.1.0" {
    import type { Json } from "leasehold:provider/types@0.1.0";
    import type { Handle } from "leasehold:provider/types@0.1.0";
    import type { Error } from "leasehold:provider/types@0.1.0";
    import type { Context } from "leasehold:provider/types@0.1.0";

    /** What `resume` found. */
    export type Resumed =
        /** It is back, under this handle. */
        | { tag: "same"; val: Handle }
        /** It does not exist any more. */
        | { tag: "lost" };

    /** What a provider exports as `suspension`. */
    export interface Suspension {
        /**
         * Stops it and keeps what is in it; answers the handle from now on. Suspended already: the same.
         * @throws {Error}
         */
        suspend(ctx: Context, config: Json, handle: Handle): Handle;
        /**
         * Starts it again. `lost` is a proof, never a guess: everything else is an error, and the lease is kept.
         * @throws {Error}
         */
        resume(ctx: Context, config: Json, handle: Handle): Resumed;
    }
}
