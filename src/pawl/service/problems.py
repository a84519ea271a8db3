"""What goes wrong, as ``application/problem+json``: the same errors, codes, causes and cures as in the library."""

from __future__ import annotations

import json
import logging
import re
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pawl import errors
from pawl.errors import PawlError

__all__ = ["STATUS", "Problem", "answer_problem", "problem_of", "response_of"]

log: logging.Logger = logging.getLogger("pawl.service")

TYPE = "application/problem+json"

STATUS: dict[type[PawlError], int] = {
    errors.AcquireTimeout: 423,
    errors.QueueFull: 503,
    errors.DeadlockDetected: 409,
    errors.ClientClosed: 503,
    errors.NotReplicated: 503,
    errors.QuorumNotReached: 503,
    errors.NotAcquired: 423,
    errors.NotHeld: 409,
    errors.LeaseLost: 409,
    errors.StaleFence: 409,
    errors.ClockDrift: 503,
    errors.BackendUnavailable: 503,
    errors.BackendOutOfMemory: 503,
    errors.BackendReadOnly: 503,
    errors.BackendDenied: 502,
    errors.ScriptError: 502,
    errors.WrongKey: 409,
    errors.BackendError: 502,
    errors.NotSupported: 501,
    errors.LimitMismatch: 409,
    errors.ConfigurationError: 422,
    PawlError: 502,
}
"""The status of each error; a class that is not listed has its parent's."""

_SENTENCES = re.compile(r"Cause:(?P<cause>.*?)(?:Solution:(?P<cure>.*))?$", re.DOTALL)
_AGAIN = {423, 429, 503}


class Problem(Exception):
    """A request that ends with an error which only the service knows.

    Attributes:
        status: The HTTP status.
        code: A stable word.
        detail: What happened and what to do.
        retry_after: Seconds after which to ask again, or None.
        challenge: Whether to ask for a token.
        more: What else is told.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        retry_after: int | None = None,
        challenge: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
        self.challenge = challenge
        self.more = more


def problem_of(error: PawlError) -> Problem:
    """The problem that an error of the library stands for."""
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    more: dict[str, Any] = dict(_explained(type(error)))
    for name in ("holder", "waited", "position", "reason", "limit", "cycle"):
        value = getattr(error, name, None)
        if value not in (None, (), ""):
            more[name] = value
    if error.name is not None:
        more["name"] = error.name
    retry = 1 if status in _AGAIN else None
    return Problem(status, error.code, str(error), retry_after=retry, **more)


def _explained(kind: type[PawlError]) -> dict[str, str]:
    text = (kind.__doc__ or "").partition("\n    Attributes:")[0]
    found = _SENTENCES.search(text)
    if found is None:
        return {}
    parts = {"cause": found["cause"], "cure": found["cure"]}
    return {key: " ".join(text.split()) for key, text in parts.items() if text}


def response_of(problem: Problem) -> Response:
    """The answer that tells of a problem."""
    body = {
        "type": f"urn:pawl:problem:{problem.code}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        **problem.more,
    }
    headers: dict[str, str] = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.challenge:
        headers["WWW-Authenticate"] = 'Bearer realm="pawl"'
    return Response(json.dumps(body), problem.status, headers, TYPE)


async def answer_problem(_: Request, error: Exception) -> Response:
    """FastAPI's handler for all of them."""
    if isinstance(error, Problem):
        return response_of(error)
    if isinstance(error, PawlError):
        return response_of(problem_of(error))
    raise error
