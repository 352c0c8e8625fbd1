// Made by `cargo xtask declarations` of `wit/`: not to be changed by hand.

/**
 * What every provider exports: what it says of itself, and the life of a lease.
 * How much the host knows of a provider before it calls anything else, and the life of a lease.
 * Every function may be called again with the same arguments, and then answers the same.
 */
declare module "leasehold:provider/lifecycle@0.1.0" {
    import type { Json } from "leasehold:provider/types@0.1.0";
    import type { Millis } from "leasehold:provider/types@0.1.0";
    import type { Seconds } from "leasehold:provider/types@0.1.0";
    import type { Moment } from "leasehold:provider/types@0.1.0";
    import type { Handle } from "leasehold:provider/types@0.1.0";
    import type { ResourceId } from "leasehold:provider/types@0.1.0";
    import type { Error } from "leasehold:provider/types@0.1.0";
    import type { Context } from "leasehold:provider/types@0.1.0";
    import type { Label } from "leasehold:provider/types@0.1.0";

    /** The kind of environment that a provider leases. */
    export type Driver =
        /** A machine that is there already, reached by SSH. */
        | "ssh"
        /** Something made for the lease and destroyed with it. */
        | "sandbox"
        /** Anything else. */
        | "plugin";

    /** What kind of name an image has. */
    export type ImageKind =
        /** A reference into an OCI registry; immutable by its digest. */
        | "oci-image"
        /** The backend's own snapshot, by id or name. */
        | "snapshot"
        /** The host knows nothing of it. */
        | "opaque";

    /** How an image is named in the configuration, and what makes it immutable. */
    export interface ImageBinding {
        /** What kind of name it is. */
        kind: ImageKind;
        /**
         * JSON pointer of the configuration field that holds the image. A captured template is put there by the host
         * before it calls: `acquire` sees one image, in its configuration.
         */
        field: string;
        /** Fields that must be absent when `field` is set. */
        excludes: Array<string>;
        /** Further fields that change what boots. */
        identityFields: Array<string>;
    }

    /** The most that one call needs; the instance's ceiling may be lower. */
    export interface Limits {
        /** All memories of the instance together, in MiB. */
        memoryMib: number;
        /** CPU time; waiting for the host costs none. */
        cpu: Millis;
        /** Requests through egress, those of SSH sessions too. */
        exchanges: number;
        /** The largest buffered body, in MiB. */
        bodyMib: number;
    }

    /** What the provider asks an administrator to allow, beyond the endpoints that are in the configuration. */
    export interface Request {
        /** `scheme://host-pattern:port`; `*.` matches one or more labels. No credential goes there. */
        origins: Array<string>;
        /** Scripts on the targets of the configuration. What they do there is trust, and shown as such at install. */
        ssh: boolean;
        /** Upgraded connections: `streams.upgrade` and `streams.websocket`. */
        streams: boolean;
        /** The most that one call needs. */
        limits: Limits;
    }

    /** The only places where a credential's placeholder works. The component puts it there; anywhere else it fails. */
    export type Site =
        /** Header name, and a template with one `{}` (`Bearer {}`). */
        | { tag: "header"; val: [string, string] }
        /** Basic credentials; the user name is this pointer's field. */
        | { tag: "basic"; val: string }
        /**
         * Docker's X-Registry-Auth: the value is the placeholder alone, egress writes the whole header from a field of
         * format `registry` (server, user name, password).
         */
        | { tag: "registry-auth" }
        /** The user name of an SSH session. */
        | { tag: "ssh-username" };

    /**
     * A configuration field of format `secret` (those inside `ssh-target`, `endpoint` and `registry` fields are the
     * host's own matter): where in a message it works, and toward which fields of format `endpoint` or `ssh-target`.
     */
    export interface Credential {
        /** Pointer of the field: of format `secret`, and for the site `registry-auth` of format `registry`. */
        pointer: string;
        /** Where its placeholder works. */
        sites: Array<Site>;
        /** Pointers of the endpoints and targets that it goes to. */
        to: Array<string>;
    }

    /**
     * Values in answers that are secrets. Egress puts placeholders there before the component sees the answer, and
     * wherever else the same text stands in it. Such an answer is JSON, and had by `http.send` and `http.upload` only.
     */
    export interface Mint {
        /** Pointer of the endpoint that answers. */
        endpoint: string;
        /** Method of the request. */
        method: string;
        /** Path of the request, a template as `operation.path`. */
        path: string;
        /** Pointers of the secret values in the answer. */
        pointers: Array<string>;
        /** Where their placeholders work. */
        sites: Array<Site>;
        /** Pointers of the endpoints and targets that they go to. */
        to: Array<string>;
    }

    /** Where the host finds what an operation made. */
    export interface Creation {
        /** JSON pointer of the id in the answer: a `resource-id`, or an integer. */
        id: string;
        /**
         * JSON pointer of the labels in the request, an object of names and texts. The owner label of the context must
         * stand there: egress demands it and puts nothing in.
         */
        labels?: string | null;
    }

    /** What an operation does. */
    export type Role =
        /** Makes the environment: in `acquire`, by `http.send`, once. Egress takes its id from the answer. */
        | { tag: "create"; val: Creation }
        /** Makes something that belongs to it (a command, a network), by `http.send`; the id counts as `{child}`. */
        | { tag: "create-child"; val: Creation }
        /** Acts on what `{resource}`, `{child}` or `{acquisition}` names; the path has one of them. */
        | { tag: "act" }
        /** Changes nothing; allowed wherever a GET is. */
        | { tag: "read" }
        /** Changes something that no lease owns (pulling an image). Shown at install. */
        | { tag: "shared" };

    /**
     * The only requests other than GET and HEAD that egress lets through to an endpoint, and the only ones that open a
     * stream: a WebSocket, or an upgrade by GET, is one by GET that acts.
     */
    export interface Operation {
        /** Pointer of a field of format `endpoint` or `engine-endpoint`. */
        endpoint: string;
        /** In upper case. */
        method: string;
        /**
         * Template of the path behind the endpoint's own, of one segment each: `{resource}` is this lease's, `{child}`
         * something that an operation of this lease made, `{acquisition}`, `*` anything. A query is not part of it.
         */
        path: string;
        /** What it does. */
        role: Role;
    }

    /** What a check verifies. */
    export type Claim =
        /** The resource carries this lease's owner label. */
        | "owned"
        /** The resource runs the image that it should. */
        | "image-identity"
        /** A file of the resource tells its platform. */
        | "platform"
        /** The resource does not exist any more. */
        | "gone";

    /** What an answer to a check must be. */
    export type Expectation =
        /** This HTTP status. */
        | { tag: "status"; val: number }
        /** JSON pointer whose value the host reads as the claim's value. */
        | { tag: "value"; val: string }
        /** JSON pointer of the labels; this lease's owner label must be there. */
        | { tag: "owner-label"; val: string }
        /** JSON pointers of a list and of the id in its items; the resource must not be among them. */
        | { tag: "absent-from"; val: [string, string] }
        /** The answer is the file at `{path}`. */
        | { tag: "file" }
        /** The answer is a tar with the file at `{path}` in it. */
        | { tag: "tar" };

    /** A GET that the host makes by itself at a configured endpoint, to verify a claim. */
    export interface Check {
        /** What it verifies. */
        claim: Claim;
        /** Pointer of the endpoint that is asked. */
        endpoint: string;
        /**
         * `{resource}`, `{lease}` and, for `platform`, `{path}` of a file that the host wants to see; each a whole
         * path segment or query value, percent-encoded by the host.
         */
        path: string;
        /** Pointer of the credential to present in its site. */
        credential?: string | null;
        /** What the answer must be, all of it. */
        expect: Array<Expectation>;
        /** For `gone`: the least time between the two asks that must agree. */
        apart: Millis;
    }

    /** What a provider can do beyond its exports. */
    export interface Features {
        /** Commands have a standard input. */
        stdin: boolean;
        /** Commands can have a terminal. */
        tty: boolean;
        /** Standard error arrives apart from standard output. */
        separateStderr: boolean;
        /** A lost stream can be had again (`execution.attach`). */
        attach: boolean;
        /** A signal reaches all that the command started. */
        signalGroup: boolean;
        /** The target is one account: one lease at a time. */
        exclusiveTarget: boolean;
        /** A lease may be used again for the same workspace. */
        reuse: boolean;
    }

    /** What a provider says of itself. Every rule that is broken is told at install, with its field. */
    export interface Manifest {
        /** `[a-z0-9][a-z0-9-]{0,62}`; the provider's name in configuration. */
        key: string;
        /** Semantic version of the provider. */
        version: string;
        /** For a person, 1 to 80 characters. */
        title: string;
        /** For a person, at most 500 characters. */
        summary: string;
        /** The kind of environment that it leases. */
        driver: Driver;
        /**
         * JSON Schema 2020-12 of the configuration, at most 256 KiB, checked by the host before any call; no remote
         * `$ref`. Formats `secret`, `endpoint`, `engine-endpoint`, `registry`, `ssh-target` mean something to the
         * host.
         */
        configSchema: Json;
        /** How an image is named, if there are images. */
        image?: ImageBinding | null;
        /** What an administrator is asked to allow. */
        request: Request;
        /** The secrets of the configuration that a component uses. At most 64 of these and of each list below. */
        credentials: Array<Credential>;
        /** The secrets that a backend mints. */
        mints: Array<Mint>;
        /** The requests that change something. */
        operations: Array<Operation>;
        /** All checks of one claim must hold. Without `owned` a lease is *claimed*: usable, never qualified. */
        checks: Array<Check>;
        /** What it can do beyond its exports. */
        features: Features;
        /** How long an acquire may take when nothing else is configured; at most an hour. */
        acquireTimeout: Millis;
    }

    /** How bad a finding is. */
    export type Severity =
        /** As it should be. */
        | "info"
        /** It works, and somebody should know. */
        | "warning"
        /** The target cannot be used. */
        | "failure";

    /** One step of a probe. */
    export interface Finding {
        /** Stable, `kebab-case`: reach, authenticate, … */
        step: string;
        /** How bad it is. */
        severity: Severity;
        /** For a person; names the target where it is a failure. */
        message: string;
        /** None: the host takes the time of the step's requests at egress. */
        duration?: Millis | null;
    }

    /** An environment that was made, or found again. */
    export interface Acquired {
        /** Must equal what egress saw created, where the manifest has a `create`. */
        resource: ResourceId;
        /** What every later call is told again. */
        handle: Handle;
        /** Where commands start, inside the environment. */
        workspace: string;
        /** How long the backend will keep it, if it said. */
        ttl?: Seconds | null;
    }

    /** What a backend said to being used. */
    export interface KeptAlive {
        /** When to call again; none: never. */
        next?: Seconds | null;
        /** How long the backend will keep it now, if it said. */
        ttl?: Seconds | null;
    }

    /** The state of an environment. */
    export type Condition =
        /** On its way; not usable yet. */
        | "starting"
        /** Usable. */
        | "ready"
        /** On its way out, or to rest. */
        | "stopping"
        /** At rest; it can be started or resumed. */
        | "stopped"
        /** There, and not usable again. */
        | "failed"
        /** Proven not to exist. */
        | "gone";

    /** What `inspect` saw. */
    export interface Observation {
        /** What state it is in. */
        condition: Condition;
        /** What it runs, as the backend names it. */
        image?: string | null;
        /** For a person. */
        message?: string | null;
    }

    /** Everything that carries all of `labels`, or that `journalled` names and that exists; in whatever condition. */
    export interface Query {
        /** All of these stand on it. */
        labels: Array<Label>;
        /** Or one of these ids is it. */
        journalled: Array<ResourceId>;
        /** Where the last page ended; none for the first. */
        cursor?: string | null;
    }

    /** One environment that is there. */
    export interface Listed {
        /** The backend's own id. */
        resource: ResourceId;
        /** The handle that `acquire` would have answered. */
        handle: Handle;
        /** The labels that stand on it. */
        labels: Array<Label>;
        /** What state it is in. */
        condition: Condition;
        /** When it was made, if the backend says so. */
        created?: Moment | null;
    }

    /** A page of a list. */
    export interface Page {
        /** At most 1,000. */
        items: Array<Listed>;
        /** The cursor of the next page; none at the end. At most 4 KiB. */
        next?: string | null;
    }

    /** What a provider exports as `lifecycle`. */
    export interface Lifecycle {
        /** Called once, at install, with everything refused; frozen with the digest. */
        describe(): Manifest;
        /**
         * Checks what the schema cannot, and normalises. Fields of format `secret`, `endpoint` and `ssh-target` must come
         * back as they are (the host puts back what their stand-ins stand for). No network.
         * @throws {Error}
         */
        checkConfig(ctx: Context, config: Json): Json;
        /**
         * Can the target be used? Creates nothing and changes nothing. At most 64 findings, in their order.
         * @throws {Error}
         */
        probe(ctx: Context, config: Json): Array<Finding>;
        /**
         * Makes the environment of `context.lease`, or finds the one that it made before under this acquisition.
         * `ttl`: when the lease will end at the latest, if known; the backend's own expiry is the backstop.
         * @throws {Error}
         */
        acquire(ctx: Context, config: Json, ttl: Seconds | null): Acquired;
        /**
         * Tells the backend that it is in use and moves its end.
         * @throws {Error}
         */
        keepAlive(ctx: Context, config: Json, handle: Handle, ttl: Seconds | null): KeptAlive;
        /**
         * What state it is in. What does not exist is the condition `gone`, never an error.
         * @throws {Error}
         */
        inspect(ctx: Context, config: Json, handle: Handle): Observation;
        /**
         * Ends it; gone already is success. Where a crash lost the handle, the host calls `list` and releases each.
         * @throws {Error}
         */
        release(ctx: Context, config: Json, handle: Handle): void;
        /**
         * What this provider made and what is still there: a claim, which the host holds against its journal.
         * @throws {Error}
         */
        list(ctx: Context, config: Json, query: Query): Page;
    }
}
