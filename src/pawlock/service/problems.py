"""Errors as ``application/problem+json``: the same errors, codes, causes and fixes as in the library."""

from __future__ import annotations

import json
import logging
import re
import time
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response

from pawlock import errors
from pawlock.errors import PawlockError

__all__ = ["KNOWN", "Problem", "answer_problem", "hide_server", "problem_of", "response_of"]

log: logging.Logger = logging.getLogger("pawlock.service")

TYPE = "application/problem+json"

KNOWN: dict[type[PawlockError], tuple[int, str]] = {
    errors.AcquireTimeout: (423, "Retry, wait longer, or make the holder hold the lock for less time."),
    errors.QueueFull: (503, "Retry later: too many clients are waiting for this lock."),
    errors.DeadlockDetected: (409, "Acquire locks in the same order everywhere, or all at once with a multi_lock."),
    errors.ClientClosed: (503, "Retry at another instance, with the same Idempotency-Key."),
    errors.NotReplicated: (503, "Retry; if it persists, the operator of the service must check the replicas."),
    errors.QuorumNotReached: (503, "Retry; if it persists, the operator of the service must check its servers."),
    errors.NotAcquired: (423, "Retry later, or wait longer."),
    errors.NotHeld: (409, "Send the token that acquire returned for this kind and name; renew in time, and release once."),
    errors.LeaseLost: (409, "Stop the work, and acquire the lock again."),
    errors.StaleFence: (409, "Abandon this attempt: a newer holder has written."),
    errors.ClockDrift: (503, "Use a longer TTL; the operator of the service must check it for pauses and slow servers."),
    errors.BackendUnavailable: (503, "Retry after Retry-After, with the same Idempotency-Key."),
    errors.BackendOutOfMemory: (503, "Retry later; leases can still be renewed and released. The server needs more memory."),
    errors.BackendReadOnly: (503, "Retry in a few seconds: a failover may be in progress."),
    errors.BackendDenied: (502, "The operator must fix the permissions of the service on its server."),
    errors.ScriptError: (502, "The operator of the service must check the detail; use one version of pawlock for each lock."),
    errors.WrongKey: (409, "Use another lock name: another program uses this one. Or the kind key, as the detail says."),
    errors.BackendError: (502, "The operator of the service must check the detail."),
    errors.NotSupported: (501, "Use another kind of lock."),
    errors.LimitMismatch: (409, "Send the same number for this name everywhere, and request no more permits than there are."),
    errors.ConfigurationError: (422, "Correct the request as the detail says."),
    PawlockError: (502, "The operator of the service must check the detail."),
}  # fmt: skip
"""The status of each error, and what a client can do about it; a class that is not listed has its parent's."""

_SENTENCES = re.compile(r"Cause:(?P<cause>.*?)(?:Solution:(?P<fix>.*))?$", re.DOTALL)
_RETRYABLE = {423, 429, 503}


class Problem(Exception):
    """An error of the service itself, which the library does not have.

    Attributes:
        status: The HTTP status.
        code: A stable word.
        detail: What happened and what to do.
        retry_after: Seconds after which to ask again, or None.
        challenge: Whether to ask for a token.
        more: Further members.
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


def problem_of(error: PawlockError) -> Problem:
    """The problem that an error of the library stands for."""
    status, fix = next(KNOWN[kind] for kind in type(error).__mro__ if kind in KNOWN)
    more: dict[str, Any] = {"cause": _explained(type(error)), "fix": fix}
    for name in ("holder", "waited", "position", "reason", "limit", "cycle"):
        value = getattr(error, name, None)
        if value not in (None, (), ""):
            more[name] = value
    if error.name is not None:
        more["name"] = error.name
    retry = 1 if status in _RETRYABLE else None
    detail = error.text.replace("`", "")
    unsupported = isinstance(error, errors.NotSupported) and " server is " in detail
    if isinstance(error, _OF_THE_SERVER) or unsupported:
        detail = hide_server(error)
    return Problem(status, error.code, detail, retry_after=retry, **more)


_OF_THE_SERVER = (
    errors.BackendUnavailable,
    errors.BackendDenied,
    errors.BackendOutOfMemory,
    errors.BackendReadOnly,
    errors.ScriptError,
)
"""Their texts are the server's own words: its address, the service's user there."""
_logged_at = 0.0


def hide_server(error: PawlockError) -> str:
    """Log what is wrong with the server, and return what a client may know: neither its address nor the user there."""
    global _logged_at  # noqa: PLW0603 - one line a second, for all requests
    now = time.monotonic()
    if now - _logged_at >= 1:
        _logged_at = now
        log.warning("%s", error)
    what = "did not respond" if isinstance(error, errors.BackendUnavailable) else "refused"
    return f"the lock server {what}: see the log of this instance"


def _explained(kind: type[PawlockError]) -> str:
    for one in kind.__mro__:
        text = (one.__doc__ or "").partition("\n    Attributes:")[0]
        if (found := _SENTENCES.search(text)) is not None:
            return " ".join(found["cause"].replace("`", "").split())
    return "See the detail."


def response_of(problem: Problem) -> Response:
    """The response for a problem."""
    body = {
        "type": f"urn:pawlock:problem:{problem.code}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        **problem.more,
    }
    headers: dict[str, str] = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        # What follows is not read.
        headers["Connection"] = "close"
    if problem.challenge:
        headers["WWW-Authenticate"] = 'Bearer realm="pawlock"'
    return Response(json.dumps(body), problem.status, headers, TYPE)


async def answer_problem(_: Request, error: Exception) -> Response:
    """FastAPI's handler for all of them."""
    if isinstance(error, PawlockError):
        error = problem_of(error)
    if isinstance(error, Problem):
        return response_of(error)
    raise error
