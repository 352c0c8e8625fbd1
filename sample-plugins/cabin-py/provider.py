"""The cabin provider in Python: it leases rooms of a small HTTP API, and runs commands in them.

The same provider as `sample-plugins/cabin`, function by function. It shows each thing that a backend with an API needs: a
token with one site, operations, ids that egress reads, labels that the host's own checks find, and a command whose output
streams past the component. The API is that of the room server in `tests/parts`.
"""

import json
from typing import Any

from leasehold_provider import (
    Answer, Claim, Code, Condition, Err, Features, acquired, acquisition_of, act, ask, check, create, create_child,
    credential, failed, failure, header, info, invalid_config, labels_of, listed, manifest, observation, operation,
    owner_label, status, upgrade, wants,
)
from wit_world import exports
from wit_world.exports import execution, lifecycle
from wit_world.imports import host, streams
from wit_world.imports.types import Context

API = "/endpoint"
"""Where the API is in the configuration."""
TOKEN = "/token"
"""Where its token is."""


def api(config: dict[str, Any], method: str, path: str, **more: Any) -> Answer:
    """Asks the API; the token in the configuration is a placeholder, in whose place egress puts the token."""
    return ask(method, config["endpoint"] + path, bearer=config["token"], **more)


def rooms(config: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api(config, "GET", "/rooms", expect=[200]).json()["rooms"]
    return found


def lease_of(room: dict[str, Any]) -> lifecycle.Acquired:
    return acquired(room["id"], {"room": room["id"]}, room["workspace"])


def room_of(handle: str) -> str:
    room: str = json.loads(handle)["room"]
    return room


class Lifecycle(exports.Lifecycle):
    def describe(self) -> lifecycle.Manifest:
        return manifest(
            "cabin-py",
            "0.1.0",
            title="Cabin (Python)",
            summary="A room of a room server, made for each lease and removed with it.",
            schema={
                "type": "object",
                "required": ["endpoint", "token"],
                "additionalProperties": False,
                "properties": {
                    "endpoint": {"type": "string", "format": "endpoint"},
                    "token": {"type": "string", "format": "secret"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            },
            credentials=[credential(TOKEN, [header("authorization", "Bearer {}")], [API])],
            operations=[
                operation(API, "POST", "/rooms", create("/id", "/labels")),
                operation(API, "DELETE", "/rooms/{resource}", act()),
                operation(API, "POST", "/rooms/{resource}/runs", create_child("/id")),
                operation(API, "GET", "/rooms/{resource}/runs/{child}/stream", act()),
            ],
            checks=[
                check(Claim.OWNED, API, "/rooms/{resource}", owner_label("/labels"), credential=TOKEN),
                check(Claim.GONE, API, "/rooms/{resource}", status(404), credential=TOKEN),
            ],
            streams=True,
            features=Features.SEPARATE_STDERR,
            acquire_timeout=30_000,
        )

    def check_config(self, ctx: Context, config: str) -> str:
        parsed = json.loads(config)
        labels = parsed.get("labels", {})
        taken = [name for name in labels if name.startswith("leasehold-")]
        if taken:
            wrong = "begins with leasehold-, as the host's own do: choose another name"
            raise invalid_config({f"/labels/{name.replace('~', '~0').replace('/', '~1')}": wrong for name in taken})
        if labels:
            parsed["labels"] = {name: value.strip() for name, value in labels.items()}
        return json.dumps(parsed)

    def probe(self, ctx: Context, config: str) -> list[lifecycle.Finding]:
        try:
            seen = len(rooms(json.loads(config)))
        except Err as error:
            # Whoever refuses the token was reached.
            if error.value.code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
                return [info("reach", "the API answers"), failed("authenticate", error)]
            return [failed("reach", error)]
        return [info("reach", "the API answers"), info("authenticate", f"the token is good; there are {seen} rooms")]

    def acquire(self, ctx: Context, config: str, ttl: int | None) -> lifecycle.Acquired:
        parsed = json.loads(config)
        name = acquisition_of(ctx)
        host.progress("room", "making the room", None, None)
        # An earlier try may have made it. Whether it is this lease's the host looks for itself.
        for room in rooms(parsed):
            if room["name"] == name:
                return lease_of(room)
        labels = parsed.get("labels", {}) | labels_of(ctx)
        made = api(parsed, "POST", "/rooms", body={"name": name, "labels": labels}, expect=[201])
        return lease_of(made.json())

    def keep_alive(self, ctx: Context, config: str, handle: str, ttl: int | None) -> lifecycle.KeptAlive:
        return lifecycle.KeptAlive(next=None, ttl=None)

    def inspect(self, ctx: Context, config: str, handle: str) -> lifecycle.Observation:
        found = api(json.loads(config), "GET", f"/rooms/{room_of(handle)}", expect=[200, 404])
        return observation(Condition.GONE if found.status == 404 else Condition.READY)

    def release(self, ctx: Context, config: str, handle: str) -> None:
        api(json.loads(config), "DELETE", f"/rooms/{room_of(handle)}", expect=[204, 404])

    def list(self, ctx: Context, config: str, query: lifecycle.Query) -> lifecycle.Page:
        found = [
            listed(room["id"], {"room": room["id"]}, room["labels"])
            for room in rooms(json.loads(config))
            if wants(query, room["id"], room["labels"])
        ]
        return lifecycle.Page(items=found, next=None)


class Execution(exports.Execution):
    def start(self, ctx: Context, config: str, handle: str, command: execution.Command) -> execution.Started:
        parsed = json.loads(config)
        runs = f"/rooms/{room_of(handle)}/runs"
        # The name finds it again, whatever becomes of this call. It begins to run when its stream is opened.
        host.journal(host.Thing.COMMAND, command.id, json.dumps({"run": command.id}))
        body = {"id": command.id, "argv": command.argv, "env": dict(command.env), "cwd": command.cwd}
        run = api(parsed, "POST", runs, body=body, expect=[201]).json()
        url = f"{parsed['endpoint']}{runs}/{run['id']}/stream"
        stream = upgrade("GET", url, "room-stream", bearer=parsed["token"])
        wiring = streams.Wiring(streams.Framing_Docker(), streams.InputEnd_None_(), streams.ExitSource_Ask())
        return execution.Started(streams.Process.from_duplex(stream, wiring), json.dumps({"run": run["id"]}))

    def attach(
        self, ctx: Context, config: str, handle: str, reference: str, stdout: str, stderr: str
    ) -> streams.Process:
        raise failure(Code.UNSUPPORTED, "a lost stream cannot be had again")

    def state_of(self, ctx: Context, config: str, handle: str, id: str, reference: str | None) -> execution.State:
        run = id if reference is None else json.loads(reference)["run"]
        path = f"/rooms/{room_of(handle)}/runs/{run}"
        asked = api(json.loads(config), "GET", path, expect=[200, 404])
        if asked.status == 404:
            return execution.State_NotStarted("the room server knows no such command")
        code = asked.json()["exit_code"]
        return execution.State_Running() if code is None else execution.State_Exited(code)

    def signal(self, ctx: Context, config: str, handle: str, reference: str, signal: str) -> None:
        raise failure(Code.UNSUPPORTED, "a room ends its commands when it is removed")

    def resize(self, ctx: Context, config: str, handle: str, reference: str, size: streams.Size) -> None:
        raise failure(Code.UNSUPPORTED, "the terminal's size cannot be changed")
