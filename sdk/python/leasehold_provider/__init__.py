"""Short ways to say what a provider says, for a provider in Python.

A provider's module has a class `Lifecycle`, and `Execution`, `Files` or `Suspension` for what else it can do, with the
contract's functions under the contract's names in snake_case (`wit/`, `stubs/wit_world`). What stands here only builds
the values that they answer, and asks over HTTP. It holds no credential: where the configuration has a field of format
`secret` a component sees a placeholder, which works only where the manifest says.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from componentize_py_types import Err
from wit_world.exports import lifecycle
from wit_world.exports.lifecycle import Claim, Condition, Driver, Features, Severity
from wit_world.imports import http, streams, types
from wit_world.imports.types import Code

__all__ = [
    "Answer", "Claim", "Code", "Condition", "Driver", "Err", "Features", "Limits", "Severity",
    "absent_from", "acquired", "acquisition_of", "act", "ask", "basic", "check", "create", "create_child", "credential",
    "failed", "failure", "header", "info", "invalid_config", "labels_of", "listed", "manifest", "observation",
    "operation", "owner_label", "read", "registry_auth", "shared", "status", "upgrade", "wants", "warning",
]

# The manifest


def Limits(*, memory_mib: int = 64, cpu: int = 1000, exchanges: int = 64, body_mib: int = 8) -> lifecycle.Limits:
    """The most that one call needs; `cpu` in milliseconds."""
    return lifecycle.Limits(memory_mib, cpu, exchanges, body_mib)


def manifest(
    key: str,
    version: str,
    *,
    title: str | None = None,
    summary: str = "",
    driver: Driver = Driver.SANDBOX,
    schema: Mapping[str, Any] | None = None,
    origins: Iterable[str] = (),
    ssh: bool = False,
    streams: bool = False,
    limits: lifecycle.Limits | None = None,
    credentials: Iterable[lifecycle.Credential] = (),
    mints: Iterable[lifecycle.Mint] = (),
    operations: Iterable[lifecycle.Operation] = (),
    checks: Iterable[lifecycle.Check] = (),
    features: Features = Features(0),
    acquire_timeout: int = 60_000,
) -> lifecycle.Manifest:
    """The manifest: what is left out is asked for as nothing, limits as 64 MiB and one second of CPU."""
    return lifecycle.Manifest(
        key=key,
        version=version,
        title=key if title is None else title,
        summary=summary,
        driver=driver,
        config_schema=json.dumps({"type": "object"} if schema is None else schema),
        image=None,
        request=lifecycle.Request(list(origins), ssh, streams, Limits() if limits is None else limits),
        credentials=list(credentials),
        mints=list(mints),
        operations=list(operations),
        checks=list(checks),
        features=features,
        acquire_timeout=acquire_timeout,
    )


def credential(pointer: str, sites: Iterable[lifecycle.Site], to: Iterable[str]) -> lifecycle.Credential:
    """A field of format `secret`: where its placeholder works, and toward which endpoints."""
    return lifecycle.Credential(pointer, list(sites), list(to))


def header(name: str, template: str) -> lifecycle.Site:
    """A site: a header, by a template with one `{}`."""
    return lifecycle.Site_Header((name, template))


def basic(username: str) -> lifecycle.Site:
    """A site: Basic credentials, whose user name is the field at this pointer."""
    return lifecycle.Site_Basic(username)


def registry_auth() -> lifecycle.Site:
    """A site: Docker's `X-Registry-Auth`."""
    return lifecycle.Site_RegistryAuth()


def operation(endpoint: str, method: str, path: str, role: lifecycle.Role) -> lifecycle.Operation:
    """A request other than GET and HEAD, or one that opens a stream."""
    return lifecycle.Operation(endpoint, method, path, role)


def create(id: str, labels: str | None = None) -> lifecycle.Role:
    """A role: makes the environment; where its id stands in the answer, and where the labels stand in the request."""
    return lifecycle.Role_Create(lifecycle.Creation(id, labels))


def create_child(id: str, labels: str | None = None) -> lifecycle.Role:
    """A role: makes something that belongs to the environment."""
    return lifecycle.Role_CreateChild(lifecycle.Creation(id, labels))


def act() -> lifecycle.Role:
    """A role: acts on what the path names."""
    return lifecycle.Role_Act()


def read() -> lifecycle.Role:
    """A role: changes nothing."""
    return lifecycle.Role_Read()


def shared() -> lifecycle.Role:
    """A role: changes something that no lease owns."""
    return lifecycle.Role_Shared()


def check(
    claim: Claim,
    endpoint: str,
    path: str,
    *expect: lifecycle.Expectation,
    credential: str | None = None,
    apart: int = 0,
) -> lifecycle.Check:
    """A GET that the host makes by itself to verify a claim; the answer must be all of `expect`."""
    return lifecycle.Check(claim, endpoint, path, credential, list(expect), apart)


def status(code: int) -> lifecycle.Expectation:
    """An expectation: this status."""
    return lifecycle.Expectation_Status(code)


def owner_label(pointer: str) -> lifecycle.Expectation:
    """An expectation: this lease's owner label among the labels at this pointer."""
    return lifecycle.Expectation_OwnerLabel(pointer)


def absent_from(list: str, id: str) -> lifecycle.Expectation:
    """An expectation: the resource is not among the ids of the list at this pointer."""
    return lifecycle.Expectation_AbsentFrom((list, id))


# Errors


def failure(
    code: Code,
    message: str,
    *,
    retry_after: int | None = None,
    violations: list[types.FieldViolation] | None = None,
) -> Err[types.Error]:
    """An error of the contract: `raise failure(Code.UNAVAILABLE, "…")`. Any other exception is a bug of the provider's:
    it ends the call as a trap, and only its traceback reaches whoever reads the log."""
    return Err(types.Error(code, message, retry_after, violations))


def invalid_config(violations: Mapping[str, str]) -> Err[types.Error]:
    """The configuration cannot work: every violation at once, by its pointer."""
    return failure(
        Code.INVALID_CONFIG,
        "; ".join(f"{pointer}: {message}" for pointer, message in violations.items()),
        violations=[types.FieldViolation(pointer, message) for pointer, message in violations.items()],
    )


# HTTP


@dataclass(frozen=True)
class Answer:
    """An answer whose status was expected."""

    status: int
    headers: list[tuple[str, str]]
    text: str

    def header(self, name: str) -> str | None:
        """The first header of this name, whatever its case."""
        return _find(self.headers, name)

    def json(self) -> Any:
        """Its body as JSON."""
        try:
            return json.loads(self.text)
        except ValueError as error:
            raise failure(Code.INTERNAL, f"the backend's answer does not read: {error}") from None


def ask(method: str, url: str, *, expect: Iterable[int], **more: Any) -> Answer:
    """Sends a request, and takes the statuses in `expect` as answers; any other is raised as the error that it means.

    `more`: `bearer`, `headers`, `query`, `body` (a value, sent as JSON), `timeout` (milliseconds), `keep`.
    """
    request = _request(method, url, **more)
    response = http.send(request)
    text = _text(response.body)
    if response.status not in expect:
        _refuse(request, response.status, response.headers, text)
    return Answer(response.status, response.headers, text)


def upgrade(method: str, url: str, protocol: str, **more: Any) -> streams.Duplex:
    """Sends a request as an HTTP/1.1 Upgrade to `protocol`, and answers the stream."""
    request = _request(method, url, **more)
    try:
        return streams.upgrade(request, protocol)
    except Err as no:
        # A variant as every other: what the server said, or the error that there is.
        if isinstance(no.value, streams.NoStream_Refused):
            _refuse(request, no.value.value.status, [], no.value.value.body)
        raise Err(no.value.value) from None


def _request(
    method: str,
    url: str,
    *,
    bearer: str | None = None,
    headers: Mapping[str, str] = {},
    query: Mapping[str, Any] = {},
    body: Any = None,
    timeout: int | None = None,
    keep: Mapping[str, str] = {},
) -> http.Request:
    said = list(headers.items())
    if bearer is not None:
        said.append(("authorization", f"Bearer {bearer}"))
    content = types.Content_None_() if body is None else types.Content_Text(json.dumps(body))
    asked = [(name, str(value)) for name, value in query.items()]
    return http.Request(method, url, asked, said, content, timeout, list(keep.items()))


def _text(body: types.Content) -> str:
    match body:
        case types.Content_Text(text):
            return text
        case types.Content_Bytes(raw):
            return raw.decode("utf-8", "replace")
        case _:
            return ""


def _find(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    return next((value for known, value in headers if known.lower() == name.lower()), None)


_CODES = {
    401: Code.UNAUTHENTICATED,
    402: Code.QUOTA_EXCEEDED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNSUPPORTED,
    409: Code.FAILED_PRECONDITION,
    410: Code.NOT_FOUND,
    412: Code.FAILED_PRECONDITION,
    423: Code.BUSY,
    425: Code.UNAVAILABLE,
    429: Code.RATE_LIMITED,
    501: Code.UNSUPPORTED,
    503: Code.UNAVAILABLE,
    507: Code.QUOTA_EXCEEDED,
}


def _refuse(request: http.Request, status: int, headers: list[tuple[str, str]], body: str) -> NoReturn:
    """What a status means that was not expected: where it may have taken effect, the outcome is unknown."""
    if status in _CODES:
        code = _CODES[status]
    elif status == 408 or 500 <= status <= 599:
        code = Code.UNAVAILABLE if request.method in ("GET", "HEAD") else Code.OUTCOME_UNKNOWN
    else:
        code = Code.INTERNAL
    message = f"{request.method} {request.url} answered {status}"
    said = body.strip()[:500]
    # Seconds only: a date needs a clock, and a component has none.
    seconds = (_find(headers, "retry-after") or "").strip()
    wait = int(seconds) * 1000 if seconds.isascii() and seconds.isdigit() and len(seconds) <= 6 else None
    raise failure(code, f"{message}: {said}" if said else message, retry_after=wait)


# Answers


def info(step: str, message: str) -> lifecycle.Finding:
    """A step of a probe that is good. `step` is stable and `kebab-case`: reach, authenticate, …"""
    return lifecycle.Finding(step, Severity.INFO, message, None)


def warning(step: str, message: str) -> lifecycle.Finding:
    """A step that does not stop anything and that a person should know of."""
    return lifecycle.Finding(step, Severity.WARNING, message, None)


def failed(step: str, error: Err[types.Error]) -> lifecycle.Finding:
    """A step that failed by an error of the contract."""
    return lifecycle.Finding(step, Severity.FAILURE, error.value.message, None)


def acquired(resource: str, handle: Any, workspace: str, ttl: int | None = None) -> lifecycle.Acquired:
    """What was made: its id, what later calls are told again (any JSON value), and where commands start in it."""
    return lifecycle.Acquired(resource, json.dumps(handle), workspace, ttl)


def observation(condition: Condition, message: str | None = None) -> lifecycle.Observation:
    """What `inspect` saw. What does not exist is the condition `GONE`."""
    return lifecycle.Observation(condition, None, message)


def listed(
    resource: str, handle: Any, labels: Mapping[str, str], condition: Condition = Condition.READY
) -> lifecycle.Listed:
    """One environment of a list."""
    stand = [types.Label(key, value) for key, value in labels.items()]
    return lifecycle.Listed(resource, json.dumps(handle), stand, condition, None)


def wants(query: lifecycle.Query, resource: str, labels: Mapping[str, str]) -> bool:
    """Whether a query asks for a thing of this id and with these labels: all of its own, or its id was journalled."""
    return resource in query.journalled or all(labels.get(wanted.key) == wanted.value for wanted in query.labels)


def labels_of(context: types.Context) -> dict[str, str]:
    """The host's labels, to be put on everything that is created."""
    return {label.key: label.value for label in context.labels}


def acquisition_of(context: types.Context) -> str:
    """What is made is to be called this: the same on every retry."""
    if context.lease is None:
        raise failure(Code.FAILED_PRECONDITION, "this call has no lease")
    return context.lease.acquisition
