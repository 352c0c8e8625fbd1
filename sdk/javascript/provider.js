// Short ways to say what a provider says, for a provider in JavaScript (QuickJS).
//
// A provider exports the contract's functions under the contract's names in camelCase (`wit/`, `contract.d.ts`). What
// stands here only builds the values that they answer, and asks over HTTP. It holds no credential: where the
// configuration has a field of format `secret` a component sees a placeholder, which works only where the manifest says.

import http from "leasehold:provider/http@0.1.0";
import streams from "leasehold:provider/streams@0.1.0";

// The manifest

/** The manifest of a plain object: what is left out is asked for as nothing, limits as 64 MiB and one second of CPU. */
export function manifest(said) {
    const request = said.request ?? {};
    return {
        key: said.key,
        version: said.version,
        title: said.title ?? said.key,
        summary: said.summary ?? "",
        driver: said.driver ?? "sandbox",
        configSchema: JSON.stringify(said.schema ?? { type: "object" }),
        image: said.image ?? null,
        request: {
            origins: request.origins ?? [],
            ssh: request.ssh ?? false,
            streams: request.streams ?? false,
            limits: { memoryMib: 64, cpu: 1000, exchanges: 64, bodyMib: 8, ...request.limits },
        },
        credentials: said.credentials ?? [],
        mints: said.mints ?? [],
        operations: said.operations ?? [],
        checks: (said.checks ?? []).map((check) => ({ credential: null, apart: 0, ...check })),
        features: {
            stdin: false,
            tty: false,
            separateStderr: false,
            attach: false,
            signalGroup: false,
            exclusiveTarget: false,
            reuse: false,
            ...said.features,
        },
        acquireTimeout: said.acquireTimeout ?? 60_000,
    };
}

/** A site: a header, by a template with one `{}`. */
export const header = (name, template) => ({ tag: "header", val: [name, template] });
/** A site: Basic credentials, whose user name is the field at this pointer. */
export const basic = (username) => ({ tag: "basic", val: username });
/** A site: Docker's `X-Registry-Auth`. */
export const registryAuth = () => ({ tag: "registry-auth" });

/** A role: makes the environment; where its id stands in the answer, and where the labels stand in the request. */
export const create = (id, labels = null) => ({ tag: "create", val: { id, labels } });
/** A role: makes something that belongs to the environment. */
export const createChild = (id, labels = null) => ({ tag: "create-child", val: { id, labels } });
/** A role: acts on what the path names. */
export const act = () => ({ tag: "act" });
/** A role: changes nothing. */
export const read = () => ({ tag: "read" });
/** A role: changes something that no lease owns. */
export const shared = () => ({ tag: "shared" });

/** An expectation: this status. */
export const status = (code) => ({ tag: "status", val: code });
/** An expectation: this lease's owner label among the labels at this pointer. */
export const ownerLabel = (pointer) => ({ tag: "owner-label", val: pointer });
/** An expectation: the resource is not among the ids of the list at this pointer. */
export const absentFrom = (list, id) => ({ tag: "absent-from", val: [list, id] });

// Errors

/**
 * An error of the contract: `throw failure("unavailable", "…")`. It is thrown as it is: an `Error`, or a string, is a
 * bug of the provider's, ends the call as a trap, and only its stack reaches whoever reads the log.
 */
export const failure = (code, message, more = {}) => ({
    code,
    message,
    retryAfter: null,
    violations: null,
    ...more,
});

/** The configuration cannot work: every violation at once, as `{ pointer, message }`. */
export const invalidConfig = (violations) =>
    failure("invalid-config", violations.map((v) => `${v.pointer}: ${v.message}`).join("; "), { violations });

/** Whether what was thrown is an error of the contract: of one of these codes, where any are said. */
export const isFailure = (thrown, ...codes) =>
    typeof thrown?.code === "string" && (codes.length === 0 || codes.includes(thrown.code));

// HTTP

/**
 * Sends a request and answers `{ status, header(name), text, json() }` where its status is among `expect`; any other
 * is thrown as the error that it means. `options`: `expect` (at least one status), `bearer`, `headers`, `query`, `json` (a value), `timeout`
 * (milliseconds), `keep`.
 */
export function ask(method, url, options) {
    const request = requestOf(method, url, options);
    const response = http.send(request);
    const text = textOf(response.body);
    if (!options.expect.includes(response.status)) {
        throw refused(request, response.status, response.headers, text);
    }
    return {
        status: response.status,
        header: (name) => find(response.headers, name),
        text,
        json() {
            try {
                return JSON.parse(text);
            } catch (error) {
                throw failure("internal", `the backend's answer does not read: ${error.message}`);
            }
        },
    };
}

/** Sends a request as an HTTP/1.1 Upgrade to `protocol`, and answers the stream. */
export function upgrade(method, url, protocol, options = {}) {
    const request = requestOf(method, url, options);
    try {
        return streams.upgrade(request, protocol);
    } catch (no) {
        // A variant as every other: what the server said, or the error that there is.
        throw no.tag === "refused" ? refused(request, no.val.status, [], no.val.body) : (no.val ?? no);
    }
}

function requestOf(method, url, { bearer, headers = {}, query = {}, json, timeout = null, keep = {} }) {
    const all = Object.entries(headers);
    if (bearer != null) all.push(["authorization", `Bearer ${bearer}`]);
    return {
        method,
        url,
        query: Object.entries(query).map(([name, value]) => [name, String(value)]),
        headers: all,
        body: json === undefined ? { tag: "none" } : { tag: "text", val: JSON.stringify(json) },
        timeout,
        keep: Object.entries(keep),
    };
}

/** A body as text. QuickJS has no decoder: the host answers `text` wherever the bytes are UTF-8. */
const textOf = (body) => (body.tag === "text" ? body.val : "");

/** The first header of this name, whatever its case; null where there is none. */
const find = (headers, name) =>
    headers.find(([known]) => known.toLowerCase() === name.toLowerCase())?.[1] ?? null;

/** What a status means that was not expected: where it may have taken effect, the outcome is unknown. */
function refused(request, status, headers, body) {
    const safe = request.method === "GET" || request.method === "HEAD";
    const codes = {
        401: "unauthenticated",
        402: "quota-exceeded",
        403: "permission-denied",
        404: "not-found",
        405: "unsupported",
        409: "failed-precondition",
        410: "not-found",
        412: "failed-precondition",
        423: "busy",
        425: "unavailable",
        429: "rate-limited",
        501: "unsupported",
        503: "unavailable",
        507: "quota-exceeded",
    };
    const late = status === 408 || (status >= 500 && status <= 599);
    const code = codes[status] ?? (late ? (safe ? "unavailable" : "outcome-unknown") : "internal");
    const said = body.trim().slice(0, 500);
    const message = `${request.method} ${request.url} answered ${status}`;
    // Seconds only: a date needs a clock, and a component has none.
    const seconds = /^[0-9]{1,6}$/.exec(find(headers, "retry-after")?.trim() ?? "");
    return failure(code, said === "" ? message : `${message}: ${said}`, {
        retryAfter: seconds === null ? null : Number(seconds[0]) * 1000,
    });
}

// Answers

/** A step of a probe that is good. `step` is stable and `kebab-case`: reach, authenticate, … */
export const info = (step, message) => ({ step, severity: "info", message, duration: null });

/** A step that does not stop anything and that a person should know of. */
export const warning = (step, message) => ({ step, severity: "warning", message, duration: null });

/** A step that failed by an error of the contract. Anything else that was thrown is a bug, and is thrown on. */
export function failed(step, error) {
    if (!isFailure(error)) throw error;
    return { step, severity: "failure", message: error.message, duration: null };
}

/** What `acquire` made: its id, what later calls are told again (any JSON value), and where commands start in it. */
export const acquired = (resource, handle, workspace, ttl = null) => ({
    resource,
    handle: JSON.stringify(handle),
    workspace,
    ttl,
});

/** What `inspect` saw. What does not exist is the condition `gone`. */
export const observation = (condition, message = null) => ({ condition, image: null, message });

/** One environment of a list; `labels` is an object of names and texts. */
export const listed = (resource, handle, labels, condition = "ready") => ({
    resource,
    handle: JSON.stringify(handle),
    labels: Object.entries(labels).map(([key, value]) => ({ key, value })),
    condition,
    created: null,
});

/** Whether a query asks for a thing of this id and with these labels: all of its own, or its id was journalled. */
export const wants = (query, resource, labels) =>
    query.journalled.includes(resource) || query.labels.every(({ key, value }) => labels[key] === value);

/** The host's labels, to be put on everything that is created, as an object. */
export const labelsOf = (context) => Object.fromEntries(context.labels.map(({ key, value }) => [key, value]));

/** What made is to be called: the same on every retry. */
export function acquisitionOf(context) {
    if (context.lease == null) throw failure("failed-precondition", "this call has no lease");
    return context.lease.acquisition;
}
