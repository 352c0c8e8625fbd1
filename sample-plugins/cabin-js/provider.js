// The cabin provider in JavaScript: it leases rooms of a small HTTP API, and runs commands in them.
//
// The same provider as `sample-plugins/cabin`, function by function. It shows each thing that a backend with an API needs:
// a token with one site, operations, ids that egress reads, labels that the host's own checks find, and a command whose
// output streams past the component. The API is that of the room server in `tests/parts`.

import {
    acquired, acquisitionOf, act, ask, create, createChild, failed, failure, header, info, invalidConfig,
    isFailure, labelsOf, listed, manifest, observation, ownerLabel, status, upgrade, wants,
} from "leasehold-provider";
import host from "leasehold:provider/host@0.1.0";
import { Process } from "leasehold:provider/streams@0.1.0";

/** Where the API is in the configuration. */
const API = "/endpoint";
/** Where its token is. */
const TOKEN = "/token";

/** Asks the API; `config.token` is a placeholder, in whose place egress puts the token. */
const api = (config, method, path, options) =>
    ask(method, `${config.endpoint}${path}`, { bearer: config.token, ...options });

const rooms = (config) => api(config, "GET", "/rooms", { expect: [200] }).json().rooms;

const leaseOf = (room) => acquired(room.id, { room: room.id }, room.workspace);

/** @type {import("leasehold-provider").Lifecycle} */
export const lifecycle = {
    describe: () =>
        manifest({
            key: "cabin-js",
            version: "0.1.0",
            title: "Cabin (JavaScript)",
            summary: "A room of a room server, made for each lease and removed with it.",
            schema: {
                type: "object",
                required: ["endpoint", "token"],
                additionalProperties: false,
                properties: {
                    endpoint: { type: "string", format: "endpoint" },
                    token: { type: "string", format: "secret" },
                    labels: { type: "object", additionalProperties: { type: "string" } },
                },
            },
            credentials: [{ pointer: TOKEN, sites: [header("authorization", "Bearer {}")], to: [API] }],
            operations: [
                { endpoint: API, method: "POST", path: "/rooms", role: create("/id", "/labels") },
                { endpoint: API, method: "DELETE", path: "/rooms/{resource}", role: act() },
                { endpoint: API, method: "POST", path: "/rooms/{resource}/runs", role: createChild("/id") },
                { endpoint: API, method: "GET", path: "/rooms/{resource}/runs/{child}/stream", role: act() },
            ],
            checks: [
                {
                    claim: "owned",
                    endpoint: API,
                    path: "/rooms/{resource}",
                    credential: TOKEN,
                    expect: [ownerLabel("/labels")],
                },
                { claim: "gone", endpoint: API, path: "/rooms/{resource}", credential: TOKEN, expect: [status(404)] },
            ],
            request: { streams: true },
            features: { separateStderr: true },
            acquireTimeout: 30_000,
        }),

    checkConfig(context, text) {
        const config = JSON.parse(text);
        const labels = Object.entries(config.labels ?? {});
        const taken = labels.filter(([name]) => name.startsWith("leasehold-"));
        if (taken.length > 0) {
            throw invalidConfig(
                taken.map(([name]) => ({
                    pointer: `/labels/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`,
                    message: "begins with leasehold-, as the host's own do: choose another name",
                })),
            );
        }
        if (config.labels != null) {
            config.labels = Object.fromEntries(labels.map(([name, value]) => [name, value.trim()]));
        }
        return JSON.stringify(config);
    },

    probe(context, text) {
        try {
            const seen = rooms(JSON.parse(text)).length;
            return [info("reach", "the API answers"), info("authenticate", `the token is good; there are ${seen} rooms`)];
        } catch (error) {
            // Whoever refuses the token was reached.
            return isFailure(error, "unauthenticated", "permission-denied")
                ? [info("reach", "the API answers"), failed("authenticate", error)]
                : [failed("reach", error)];
        }
    },

    acquire(context, text, ttl) {
        const config = JSON.parse(text);
        const name = acquisitionOf(context);
        host.progress("room", "making the room", null, null);
        // An earlier try may have made it. Whether it is this lease's the host looks for itself.
        const there = rooms(config).find((room) => room.name === name);
        if (there !== undefined) return leaseOf(there);
        const labels = { ...config.labels, ...labelsOf(context) };
        return leaseOf(api(config, "POST", "/rooms", { json: { name, labels }, expect: [201] }).json());
    },

    keepAlive: () => ({ next: null, ttl: null }),

    inspect(context, text, handle) {
        const { room } = JSON.parse(handle);
        const found = api(JSON.parse(text), "GET", `/rooms/${room}`, { expect: [200, 404] });
        return observation(found.status === 404 ? "gone" : "ready");
    },

    release(context, text, handle) {
        const { room } = JSON.parse(handle);
        api(JSON.parse(text), "DELETE", `/rooms/${room}`, { expect: [204, 404] });
    },

    list(context, text, query) {
        const items = rooms(JSON.parse(text))
            .filter((room) => wants(query, room.id, room.labels))
            .map((room) => listed(room.id, { room: room.id }, room.labels));
        return { items, next: null };
    },
};

/** @type {import("leasehold-provider").Execution} */
export const execution = {
    start(context, text, handle, command) {
        const config = JSON.parse(text);
        const runs = `/rooms/${JSON.parse(handle).room}/runs`;
        // The name finds it again, whatever becomes of this call. It begins to run when its stream is opened.
        const reference = JSON.stringify({ run: command.id });
        host.journal("command", command.id, reference);
        const { id, argv, env, cwd } = command;
        const json = { id, argv, env: Object.fromEntries(env), cwd };
        const run = api(config, "POST", runs, { json, expect: [201] }).json();
        const stream = upgrade("GET", `${config.endpoint}${runs}/${run.id}/stream`, "room-stream", {
            bearer: config.token,
        });
        const process = Process.fromDuplex(stream, {
            framing: { tag: "docker" },
            inputEnd: { tag: "none" },
            exit: { tag: "ask" },
        });
        return { process, reference: JSON.stringify({ run: run.id }) };
    },

    attach() {
        throw failure("unsupported", "a lost stream cannot be had again");
    },

    stateOf(context, text, handle, id, reference) {
        const { room } = JSON.parse(handle);
        const run = reference == null ? id : JSON.parse(reference).run;
        const asked = api(JSON.parse(text), "GET", `/rooms/${room}/runs/${run}`, { expect: [200, 404] });
        if (asked.status === 404) return { tag: "not-started", val: "the room server knows no such command" };
        const code = asked.json().exit_code;
        return code == null ? { tag: "running" } : { tag: "exited", val: code };
    },

    signal() {
        throw failure("unsupported", "a room ends its commands when it is removed");
    },

    resize() {
        throw failure("unsupported", "the terminal's size cannot be changed");
    },
};
