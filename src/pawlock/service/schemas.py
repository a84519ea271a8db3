"""The bodies of requests. Unknown fields are refused: a misspelt ``ttl`` must not become a lease of another length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from pawlock.service.spaces import known_kinds

__all__ = [
    "FORCED", "LEASE", "RECORD", "WORD", "Acquire", "AcquireAll", "Arrive", "CountDown", "Force",
    "LatchWait", "OpenSession", "Part", "Release", "ReleaseAll", "Renew", "RenewAll", "Reset",
    "describe", "operation", "problems", "success",
]  # fmt: skip

_Text = Annotated[str, Field(min_length=1, max_length=200)]
_Token = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[\x21-\x7e]+$")]
_KeyText = Annotated[str, Field(min_length=1, max_length=400)]
_Permits = Annotated[int, Field(ge=1, le=1_000_000_000)]
_Seconds = Annotated[float, Field(ge=0)]
_Ttl = Annotated[float, Field(ge=0.05)]


class _Body(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Which(_Body):
    permits: _Permits | None = Field(None, description="For a semaphore: the total number of permits.")
    n: _Permits = Field(1, description="For a semaphore: the number of permits to acquire.")


class _Wanted(_Body):
    ttl: _Ttl | None = Field(
        None, description="TTL in seconds; default 30. Not allowed in a session, whose TTL applies."
    )
    wait: _Seconds = Field(
        0.0, description="Seconds to wait in the queue; default 0: try once. Disconnecting leaves the queue."
    )
    holder: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = Field(
        None, description="The holder that others see instead of your address."
    )


class _Kept(_Body):
    ttl: _Ttl = Field(30.0, description="New TTL in seconds from now; an expiry is never lowered.")


class Release(_Which):
    """Release a lease."""

    token: _Token = Field(description="The token that acquire returned.")


class Renew(_Kept, Release):
    """Extend a lease."""


class Acquire(_Wanted, _Which):
    """Acquire a lock."""

    identifier: _Text | None = Field(
        None,
        description="Of one lock: your own text. Acquired again with it, the response is the lease that it has.",
    )


class Reset(_Body):
    """Begin a new round of a latch."""

    count: _Permits = Field(description="Initial count of the latch; the same for all its clients.")


class CountDown(Reset):
    """Count a latch down."""

    n: _Permits = Field(1, description="How much to count down.")
    part: _Text | None = Field(
        None,
        description="What is done: the same part counts once per round, even if several clients send it.",
    )


class LatchWait(Reset):
    """Wait until a latch opens."""

    wait: _Seconds = Field(0.0, description="Seconds to wait; default 0: do not wait.")


class Arrive(_Body):
    """Arrive at a barrier."""

    parties: Annotated[int, Field(ge=1, le=1000)] = Field(description="Number of parties that pass together.")
    wait: _Seconds = Field(
        0.0, description="Seconds to wait for the others; default 0: pass only as the last one."
    )


class AcquireAll(_Wanted):
    """Acquire several locks, or none of them."""

    names: Annotated[list[_Text], Field(max_length=100)] = Field(description="The names of the locks.")
    keys: Annotated[list[_KeyText], Field(max_length=100)] = Field(
        default_factory=list[str],
        description="Keys that programs of other libraries lock too, as in the path of the kind `key`.",
    )


class Part(_Body):
    """One of several leases."""

    kind: Literal["lock", "key"] = Field("lock", description="Whether it is a lock name or a key.")
    name: _KeyText
    token: _Token


class ReleaseAll(_Body):
    """Release several leases."""

    leases: Annotated[list[Part], Field(min_length=1, max_length=100)] = Field(
        description="Name and token of each lease, as acquire returned them."
    )


class RenewAll(_Kept, ReleaseAll):
    """Extend several leases."""


class Force(_Body):
    """Force-release a name."""

    reason: Annotated[str, Field(min_length=1, max_length=400)] = Field(
        description="Reason, for the audit log."
    )
    holder: Annotated[str, Field(max_length=500)] = Field(
        "", description="The holder to release, as the inspection shows it; default: all holders."
    )


class OpenSession(_Body):
    """Open a session."""

    ttl: Annotated[float, Field(ge=1)] = Field(
        30.0,
        description="TTL of the session in seconds: without a keep-alive, its leases expire; default 30.",
    )


_HEADERS = {
    "Idempotency-Key": "Your text: a retry with it gets the first response, from any instance, for 10 minutes.",
    "Pawlock-Session": "The session of the lease.",
}


_PRINTABLE = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+$"
WORD: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": _PRINTABLE}

_TYPES: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
    "list": {"type": "array", "items": {"type": "object"}},
    "texts": {"type": "array", "items": {"type": "string"}},
}

LEASE = "kind:text name:text fence:integer expires_in:number"
"""The members of a lease."""

RECORD = (
    "name:text held:flag holder:text foreign:flag ttl_left:number? fence:integer? count:integer queue_length:integer "
    "waiting:integer longest_wait:number? "
    "waiters:list kind:text host:text pid:integer? since:number? used:integer? limit:integer? holders:list held_as:text"
)
"""The members of a lock."""

FORCED = "name:text holder:text fence:integer kind:text count:integer"
"""The members of the result of a force release."""

_STATUS = {
    400: "The path or the body is malformed, or a header is missing or invalid.",
    401: "The token is missing, unknown or expired.",
    403: "The token does not allow this in this namespace.",
    404: "Unknown kind, or the session has ended.",
    409: "The token does not hold the lock (any more), or the request conflicts with the current state.",
    413: "The body is too large.",
    422: "The request can never succeed.",
    423: "Held by another client, and the wait has elapsed.",
    429: "A limit of this client is reached; retry after `Retry-After`.",
    501: "Not supported by the service.",
    502: "The lock server refused the request.",
    503: "The lock server is unreachable, or this instance is shutting down; retry after `Retry-After`.",
}


def problems(*statuses: int) -> dict[str, Any]:
    """The error responses."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        str(status): {"description": _STATUS[status], "content": content} for status in statuses or _STATUS
    }


def _object(members: str, optional: str = "") -> dict[str, Any]:
    """The schema of an object.

    Args:
        members: Its members as words, each with its type; a ``?`` behind it for null.
        optional: Those that may be missing.
    """
    properties: dict[str, Any] = {}
    for word in f"{members} {optional}".split():
        name, _, kind = word.partition(":")
        found = _TYPES[kind.removesuffix("?")]
        properties[name] = {**found, "type": [found["type"], "null"]} if kind.endswith("?") else found
    needed = [word.partition(":")[0] for word in members.split()]
    return {"type": "object", "properties": properties, "required": needed}


_PROBLEM = {
    **_object("type:text title:text status:integer code:text detail:text", "cause:text fix:text"),
    "title": "Problem",
    "description": "RFC 9457, with the stable code, the cause and the fix of the library's errors.",
}


def success(gives: str) -> dict[str, Any]:
    """The success response, with its members as words."""
    return {"200": {"description": "Done.", "content": {"application/json": {"schema": _object(gives)}}}}


def operation(
    model: type[BaseModel] | None,
    *path: str,
    also: Sequence[str] = (),
    headers: Sequence[str] = (),
    query: Mapping[str, Mapping[str, Any]] | None = None,
    gives: str = "",
) -> dict[str, Any]:
    """The part of an OpenAPI operation that says what it takes and gives.

    Args:
        model: What its body is; None: it has none.
        path: The variable parts of its path, after the namespace.
        also: Kinds that it takes beside those that can be held through the service.
        headers: The headers that it knows.
        query: The parameters of its query, each with its schema.
        gives: The members of its answer as words.
    """
    kind = {"type": "string", "enum": sorted({*also, *known_kinds()})}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": kind if name == "kind" else WORD}
        for name in ("namespace", *path)
    ]
    text = {"type": "string", "minLength": 1, "maxLength": 200}
    found += [
        # Without a body there is nothing that could be done but for the session.
        {"name": name, "in": "header", "schema": text, "description": _HEADERS[name], "required": alone}
        for name in headers
        for alone in [name == "Pawlock-Session" and model is None]
    ]
    found += [{"name": name, "in": "query", "schema": dict(one)} for name, one in (query or {}).items()]
    responses = {**success(gives), **problems()}
    described: dict[str, Any] = {"parameters": found, "responses": responses, "security": [{"token": []}]}
    if model is not None:
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schema.pop("$defs", None)
        content = {"application/json": {"schema": schema}}
        described["requestBody"] = {"required": "required" in schema, "content": content}
    return described


def describe(document: dict[str, Any]) -> dict[str, Any]:
    """Complete the framework's description of the service: what all operations share."""
    shared = document.setdefault("components", {})
    shared["schemas"] = {"Part": Part.model_json_schema(), "Problem": _PROBLEM}
    shared["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of the service."}
    }
    return document
