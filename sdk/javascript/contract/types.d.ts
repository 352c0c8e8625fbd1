// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/**
 * What the other interfaces are written in.
 * Words that every interface shares.
 */
declare module "leasehold:provider/types@0.1.0" {

    /** JSON text (RFC 8259), at most 1 MiB. */
    export type Json = string;

    /** A span of time in milliseconds. (No 64-bit integers anywhere: JavaScript engines disagree on them.) */
    export type Millis = number;

    /** A span of time in seconds: for lives, which outlast 2^32 ms. */
    export type Seconds = number;

    /** A moment as the backend tells it; the host does the calendar. */
    export type Moment =
        /** Seconds since 1970-01-01T00:00:00Z. */
        | { tag: "unix"; val: number }
        /** RFC 3339, as `2027-01-31T12:00:00Z`. */
        | { tag: "rfc3339"; val: string };

    /**
     * What the provider wants to be told again about one realised environment, at most 16 KiB. The host stores it with
     * the lease and passes it to every later call. A longer one, or one that is not JSON, fails the call that answered
     * it. It must not hold a secret (see `http.request.keep`).
     */
    export type Handle = Json;

    /** The backend's own id of something, 1 to 128 of `A-Za-z0-9._-`. The host reads it, unlike a handle. */
    export type ResourceId = string;

    /** One thing that is wrong with a configuration. */
    export interface FieldViolation {
        /** RFC 6901 pointer into the configuration; empty for the whole. */
        pointer: string;
        /** What is wrong and how to mend it, for a person. */
        message: string;
    }

    /** The only kinds of error there are. The host decides what each means for the lease. */
    export type Code =
        /** The configuration cannot work: see `violations`. An image that does not exist is this. */
        | "invalid-config"
        /** The backend did not accept the credential. */
        | "unauthenticated"
        /** The credential is good and not allowed to do this; or egress refused the destination. */
        | "permission-denied"
        /** Host key or certificate does not match the policy; the message has the fingerprint that was shown. */
        | "untrusted-peer"
        /**
         * The backend proved that what the call names (a command, a path) does not exist.
         * Of an environment, `inspect` says `gone` instead.
         */
        | "not-found"
        /** The acquisition was used before with another request. */
        | "already-exists"
        /** The thing is in a state that forbids it. */
        | "failed-precondition"
        /** The backend is doing something else with it. */
        | "busy"
        /** The backend wants fewer requests; `retry-after` says how long to wait, if it said so. */
        | "rate-limited"
        /** A quota of the backend, or one of this call's own limits, is used up. */
        | "quota-exceeded"
        /** Not reached, or failing before it did anything: nothing took effect. */
        | "unavailable"
        /** This provider, or this configuration, cannot do it. Never retried. */
        | "unsupported"
        /** The host said stop (`host.journal`, `host.sleep`); pass it on. */
        | "cancelled"
        /** It may or may not have taken effect. The host reconciles; it never assumes. */
        | "outcome-unknown"
        /** The provider's own fault. A trap counts as this too, with the end of stderr as its message. */
        | "internal";

    /** One record for every error: in each language it is one constructor, and its text is always in one place. */
    export interface Error {
        /** What kind it is: all that the host decides by. */
        code: Code;
        /** For a person, at most 4 KiB. Untrusted: the host bounds and redacts it. */
        message: string;
        /** How long the backend asked to wait. */
        retryAfter?: Millis | null;
        /** For `invalid-config`: every one at once. (An option, because a forgotten list traps in JavaScript.) */
        violations?: Array<FieldViolation> | null;
    }

    /** Why the host calls. What egress lets through depends on the function, not on this. */
    export type Purpose =
        /** A client asked. */
        | "run"
        /** A saved or drafted configuration is tried out. */
        | "probe"
        /** The provider, or something of it, is being installed. */
        | "setup"
        /** A lease ends. */
        | "cleanup"
        /** The host finds out what is there after a crash or a lost answer. */
        | "reconcile";

    /** A label that stands on what a provider created. */
    export interface Label {
        /** The host's own begin with `leasehold-`. */
        key: string;
        /** At most 63 of `A-Za-z0-9._-`. */
        value: string;
    }

    /** The lease that a call acts for. */
    export interface LeaseRef {
        /** The host's id of the lease. */
        id: string;
        /**
         * Idempotency key of the thing to create, `[a-z][a-z0-9-]{0,39}`: the same on every retry, new only after the
         * last one is proven gone. Use it as its name wherever names are unique.
         */
        acquisition: string;
        /** Fencing token; rises at every takeover. Never part of a backend's name. */
        epoch: number;
    }

    /** What the host says with every call. */
    export interface Context {
        /** The company that the call is made for. */
        company: string;
        /** None for a draft that is not saved. */
        environment?: string | null;
        /** The lease that it is made for. Always there in `acquire`, `release` and every call on a handle. */
        lease?: LeaseRef | null;
        /**
         * Put them on everything that is created (values are at most 63 of `A-Za-z0-9._-`). One is a fingerprint of
         * the request, made by the host: what stands under `acquisition` and carries all of these is this request;
         * anything else is `already-exists`.
         */
        labels: Array<Label>;
        /** Why the host calls. */
        purpose: Purpose;
        /** Time for this call when it began; `host.remaining` says what is left. */
        timeout: Millis;
        /** Values that an earlier call of this lease kept (`http.request.keep`), as fresh placeholders. */
        kept: Array<[string, string]>;
    }

    /** A body. The host answers `text` whenever the bytes are UTF-8: some engines have no decoder of their own. */
    export type Content =
        /** Nothing: no body, or one of no length. */
        | { tag: "none" }
        /** UTF-8. */
        | { tag: "text"; val: string }
        /** Anything else. */
        | { tag: "bytes"; val: Uint8Array };
}
