"""The cabin provider gone astray: in `probe` and in `acquire` it does what its configuration's label `astray` names. It
shows what becomes of a bug in a component of Python, and what such a component is shown.
"""

import json
from typing import Any

import provider
from leasehold_provider import info
from provider import Execution
from wit_world.exports import lifecycle
from wit_world.imports.types import Context

__all__ = ["Execution", "Lifecycle"]


def astray(ctx: Context, config: str) -> Any:
    match json.loads(config).get("labels", {}).get("astray"):
        case "exception":
            # A bug as it happens.
            return ctx.nothing  # type: ignore[attr-defined]
        case "text":
            # Not an error of the contract: that is `Err`.
            raise RuntimeError("thrown as text")
        case "list":
            # A list that was left out of a record.
            return [lifecycle.Finding("step", lifecycle.Severity.INFO)]  # type: ignore[call-arg]
        case "peek":
            # Everything that it is shown, by the host and by the backend.
            answer = provider.api(json.loads(config), "GET", "/rooms", expect=[200])
            said = f"{answer.header('x-echo')} {answer.text}"
            return [info("config", config), info("context", repr(ctx)), info("answer", said)]
        case _:
            return None


class Lifecycle(provider.Lifecycle):
    def describe(self) -> lifecycle.Manifest:
        described = super().describe()
        described.key = "cabin-py-astray"
        described.title = "Cabin (Python), astray"
        return described

    def probe(self, ctx: Context, config: str) -> list[lifecycle.Finding]:
        return astray(ctx, config) or super().probe(ctx, config)

    def acquire(self, ctx: Context, config: str, ttl: int | None) -> lifecycle.Acquired:
        return astray(ctx, config) or super().acquire(ctx, config, ttl)
