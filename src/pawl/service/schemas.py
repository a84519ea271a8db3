"""What requests say. Unknown fields are refused: a misspelt ``ttl`` must not become a lease of another length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Acquire", "Force", "OpenSession", "Release", "Renew", "operation"]

_Text = Annotated[str, Field(min_length=1, max_length=200)]
_Token = Annotated[str, Field(min_length=1, max_length=400, pattern=r"^[\x21-\x7e]+$")]
_Permits = Annotated[int, Field(ge=1, le=1_000_000_000)]


class _Body(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Which(_Body):
    owner: _Text | None = Field(
        None, description="Of an rlock: who may take it again. Counted on the server."
    )
    permits: _Permits | None = Field(None, description="Of a semaphore: how many there are in all.")
    n: _Permits = Field(1, description="Of a semaphore: how many permits are taken at once.")


class Acquire(_Which):
    """Take a name."""

    ttl: Annotated[float, Field(ge=0.05)] | None = Field(
        None,
        description="Seconds that the lease lives without renewal; default 30. Not with a session, whose ttl it is.",
    )
    wait: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="Seconds to wait in the queue; default 0: try once. The place is given up when you go away.",
    )
    holder: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None = Field(
        None, description="What others see of you instead of your address."
    )


class Renew(_Which):
    """Raise the life of a lease."""

    token: _Token = Field(description="What acquire gave.")
    ttl: Annotated[float, Field(ge=0.05)] = Field(
        30.0, description="Seconds from now; an expiry is never lowered."
    )


class Release(_Which):
    """Give a lease back."""

    token: _Token = Field(description="What acquire gave.")


class Force(_Body):
    """Take a name from whoever holds it."""

    reason: Annotated[str, Field(min_length=1, max_length=400)] = Field(
        description="Why, for the audit trail."
    )


class OpenSession(_Body):
    """Open a session."""

    ttl: Annotated[float, Field(ge=1)] = Field(
        30.0,
        description="Seconds without a sign of life after which all that the session holds is free; default 30.",
    )


_HEADERS = {
    "Idempotency-Key": "A text of yours: who sends it again, to any instance, gets the first answer. Kept 10 minutes.",
    "Pawl-Session": "The session that the lease is to belong to.",
}


def operation(model: type[BaseModel] | None, *path: str, headers: Sequence[str] = ()) -> dict[str, Any]:
    """The part of an OpenAPI operation that says what it takes.

    Args:
        model: What its body is; None: it has none.
        path: The variable parts of its path, after the namespace.
        headers: The headers that it knows.
    """
    text = {"type": "string", "minLength": 1, "maxLength": 200}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in ("namespace", *path)
    ]
    found += [
        {"name": name, "in": "header", "schema": text, "description": _HEADERS[name]} for name in headers
    ]
    told: dict[str, Any] = {"parameters": found}
    if model is not None:
        told["requestBody"] = {"content": {"application/json": {"schema": model.model_json_schema()}}}
    return told
