// The cabin provider gone astray: in `probe` and in `acquire` it does what its configuration's label `astray` names. It
// shows what becomes of a bug in a component of JavaScript, and what such a component is shown.

import { ask, info } from "leasehold-provider";
import { execution, lifecycle as cabin } from "../provider.js";

const ways = {
    /** A bug as it happens. */
    exception: (context) => context.nothing.room,
    /** Not an error of the contract: a string has no code. */
    text: () => {
        throw "thrown as text";
    },
    /** A list that was left out of a record. */
    list: (context) => [{ ...context, step: undefined }],
    /** Everything that it is shown, by the host and by the backend. */
    peek(context, text) {
        const { endpoint, token } = JSON.parse(text);
        const answer = ask("GET", `${endpoint}/rooms`, { bearer: token, expect: [200] });
        return [
            info("config", text),
            info("context", JSON.stringify(context)),
            info("answer", `${answer.header("x-echo")} ${answer.text}`),
        ];
    },
};

function astray(context, text) {
    const way = ways[JSON.parse(text).labels?.astray];
    return way?.(context, text);
}

export const lifecycle = {
    ...cabin,
    describe: () => ({ ...cabin.describe(), key: "cabin-js-astray", title: "Cabin (JavaScript), astray" }),
    probe: (context, text) => astray(context, text) ?? cabin.probe(context, text),
    acquire: (context, text, ttl) => astray(context, text) ?? cabin.acquire(context, text, ttl),
};

export { execution };
