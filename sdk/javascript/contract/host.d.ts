// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/**
 * What a component may tell the host.
 * What a component may tell the host while it works.
 */
declare module "leasehold:provider/host@0.1.0" {
    import type { Error } from "leasehold:provider/types@0.1.0";
    import type { Json } from "leasehold:provider/types@0.1.0";
    import type { Millis } from "leasehold:provider/types@0.1.0";
    import type { ResourceId } from "leasehold:provider/types@0.1.0";

    /** How much a line matters. */
    export type Level =
        /** For whoever writes the provider. */
        | "trace"
        /** For whoever looks for a fault. */
        | "debug"
        /** Worth a line in an ordinary log. */
        | "info"
        /** Somebody should look at it. */
        | "warn"
        /** Something failed. */
        | "error";

    /** What a journal entry is about. */
    export type Thing =
        /** The environment of the lease. */
        | "environment"
        /** A command in it. */
        | "command"
        /** An image, or a snapshot. */
        | "image"
        /** Anything else that costs something while it exists. */
        | "other";

    /**
     * A line for the host's log, bounded and redacted there: 4 KiB of message, 32 fields. A call may say 1,000 lines
     * of log and progress together; the rest is dropped.
     */
    export function log(level: Level, message: string, fields: Array<[string, string]>): void;

    /**
     * Shown to people who wait for an acquire, a release or a probe, the latest alone and bounded to one line; `done` and
     * `total` in any unit, none when unknown.
     */
    export function progress(step: string, message: string, done: number | null, total: number | null): void;

    /**
     * Records the backend's own name of something the moment it may exist, durably, before this returns. Of a command
     * `reference` is what `state-of` needs. `cancelled`: this epoch of the lease is over; create nothing more.
     * @throws {Error}
     */
    export function journal(thing: Thing, resource: ResourceId, reference: Json | null): void;

    /**
     * Waits. Costs no CPU. `cancelled`: the call should stop.
     * @throws {Error}
     */
    export function sleep(span: Millis): void;

    /** What is left of the call's time. */
    export function remaining(): Millis;

    const all: { log: typeof log; progress: typeof progress; journal: typeof journal; sleep: typeof sleep; remaining: typeof remaining };
    export default all;
}
