"""Fences over HTTP: middleware that refuses requests of holders that were overtaken.

A request carries its fence in the header ``Pawlock-Fence``. The greatest one that was seen for a resource is kept; a lower
one is refused. A request that reads claims the resource with the fence that it carries, so send it there too: claim,
read, write. What the application writes after that is guarded only if the store compares too: between the check and
the write, a later holder may come.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol, TypeAlias

from pawlock.errors import ConfigurationError, PawlockError, StaleFence
from pawlock.fencing._fence import MOST, Fenced, fence_of, stale

__all__ = ["HEADER", "AsgiFences", "Fences", "MemoryFences", "WsgiFences", "fence_header"]

HEADER = "Pawlock-Fence"
"""The header that carries the fence of a request."""

# One for all, so that the child of a fork has one that no thread of its parent is inside of; a few dictionary
# operations do not make others wait. Re-entrant: a signal handler may note a fence too.
_noting = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: globals().update(_noting=threading.RLock()))

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_DIGITS = re.compile(r"[1-9][0-9]{0,18}")
_DAY = 86400.0

_Scope: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Refusal: TypeAlias = tuple[HTTPStatus, str, str]


class Fences(Protocol):
    """Where the greatest fences are kept: ``MemoryFences``, ``RedisGuard``, ``AsyncRedisGuard``, or one's own."""

    def claim(self, lease: Fenced | int, key: str, /) -> Awaitable[None] | None:
        """Note a fence, or raise ``StaleFence`` if a greater one is known."""
        ...


def fence_header(lease: Fenced | int) -> dict[str, str]:
    """The header for a request that is made under a lease.

    Args:
        lease: The lease, or its fence.

    Returns:
        ``{"Pawlock-Fence": "…"}``, for the ``headers=`` of any HTTP client.

    Raises:
        StaleFence: The lease is degraded.
    """
    return {HEADER: str(fence_of(lease))}


def _seconds(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ConfigurationError(f"{what} must be a number of seconds, 0 or more, got {value!r:.40}")
    return value


class MemoryFences:
    """The greatest fences, in the memory of this process: for a service of one process, and for tests.

    Args:
        keep: How many seconds a fence is remembered after its last use; default 86400, a day, as long as locks
            remember theirs. Infinite: without a time limit.

    Raises:
        ConfigurationError: A ``keep`` that is not above 0.
    """

    __slots__ = ("_keep", "_seen")

    def __init__(self, *, keep: float = _DAY) -> None:
        self._keep: float = _seconds(keep, "keep")
        if self._keep == 0:
            raise ConfigurationError("keep must be above 0 s, got 0")
        self._seen: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def claim(self, lease: Fenced | int, key: str, /) -> None:
        """Note a fence: from then on, lower ones are refused.

        Args:
            lease: The lease, or its fence.
            key: The resource.

        Raises:
            StaleFence: A greater fence is known, or the lease is degraded.
        """
        fence, now = fence_of(lease), time.monotonic()
        with _noting:
            while self._seen and next(iter(self._seen.values()))[1] < now - self._keep:
                self._seen.popitem(last=False)
            seen = self._seen.get(key, (0, 0.0))[0]
            self._seen[key] = max(seen, fence), now
            self._seen.move_to_end(key)
        if seen > fence:
            raise stale(f"resource {key}", lease, seen)

    note = claim


class _Rules:
    __slots__ = ("_ahead", "_methods", "_required")

    def __init__(self, methods: Collection[str] | None, *, required: bool, ahead: float) -> None:
        if isinstance(methods, str):
            raise ConfigurationError(
                f"methods must be a collection such as {{'POST'}}, got the text {methods!r:.40}"
            )
        self._methods = None if methods is None else frozenset(method.upper() for method in methods)
        self._required: bool = required
        self._ahead: float = _seconds(ahead, "ahead")

    def read(self, method: str, values: list[str]) -> int | _Refusal:
        """The fence of a request: 0 where it has and needs none, or why it is refused."""
        if not values:
            # Servers hand the method on as it came, and frameworks change its case: "post" is a POST.
            upper = method.upper()
            writes = upper not in _SAFE if self._methods is None else upper in self._methods
            if not writes or not self._required:
                return 0
            text = f"send the fencing token of the lease in the header {HEADER}"
            return HTTPStatus.PRECONDITION_REQUIRED, "FENCE_MISSING", text
        if values == ["0"]:
            text = "fencing token 0 is refused: the lease was granted in degraded mode, without the server"
            return HTTPStatus.PRECONDITION_FAILED, StaleFence.code, text
        if len(values) > 1 or not _DIGITS.fullmatch(values[0]) or int(values[0]) > MOST:
            return HTTPStatus.BAD_REQUEST, "FENCE_INVALID", f"{HEADER} must be a whole number, 1 to 2**63 - 1"
        fence = int(values[0])
        # Fences are times in microseconds. One that lies far ahead would lock everybody else out.
        if fence > (time.time() + self._ahead) * 1_000_000:
            return (
                HTTPStatus.BAD_REQUEST,
                "FENCE_INVALID",
                f"{HEADER} is too far in the future to come from a lock",
            )
        return fence


def _stale(error: StaleFence) -> _Refusal:
    return HTTPStatus.PRECONDITION_FAILED, error.code, error.text


def _unknown(error: Exception) -> _Refusal:
    code = error.code if isinstance(error, PawlockError) else "FENCE_UNKNOWN"
    return (
        HTTPStatus.SERVICE_UNAVAILABLE,
        code,
        "the fencing tokens could not be read, so nothing was written",
    )


def _problem(refusal: _Refusal) -> tuple[bytes, list[tuple[str, str]]]:
    status, code, detail = refusal
    problem = {"type": "about:blank", "title": status.phrase, "status": status.value}
    body = json.dumps({**problem, "code": code, "detail": detail}).encode()
    return body, [("Content-Type", "application/problem+json"), ("Content-Length", str(len(body)))]


class AsgiFences:
    """ASGI middleware that refuses requests of holders that were overtaken.

    A refusal is a ``problem+json``: 412 with ``CONCURRENT_MODIFICATION`` where a greater fence was seen or the fence is
    0, 428 where it is missing, 400 where it is no fence, 503 where the fences could not be looked up. The application
    finds the fence at ``scope["pawlock.fence"]``, for its own store. Callers must be trusted: anyone who gets
    as far as this may send a fence that shuts the others out, up to ``ahead``.

    Args:
        app: The application.
        fences: Where the greatest fences are kept; default ``MemoryFences()``, right only for a service of one
            process. ``AsyncRedisGuard`` for several.
        resource: What a request is about, from its scope; None lets it pass. Default: its path.
        methods: Which methods need a fence, in upper or lower case; None: all but GET, HEAD, OPTIONS and TRACE. A fence
            that comes with another method counts all the same: it claims the resource.
        required: Whether a request that needs a fence is refused without one; default True.
        ahead: How many seconds a fence may lie ahead of this machine's clock; default 86400, a day.

    Raises:
        ConfigurationError: An option that can never work.
    """

    __slots__ = ("_app", "_fences", "_resource", "_rules")

    def __init__(
        self,
        app: Callable[[Any, Any, Any], Awaitable[Any]],
        *,
        fences: Fences | None = None,
        resource: Callable[[_Scope], str | None] | None = None,
        methods: Collection[str] | None = None,
        required: bool = True,
        ahead: float = _DAY,
    ) -> None:
        self._app = app
        self._fences: Fences = MemoryFences() if fences is None else fences
        self._resource: Callable[[_Scope], str | None] = resource or _path
        self._rules = _Rules(methods, required=required, ahead=ahead)

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one request, as ASGI says."""
        if scope["type"] == "http":
            found = await self._check(scope)
            if isinstance(found, tuple):
                await _answer(send, found)
                return
            if found:
                scope = {**scope, "pawlock.fence": found}
        await self._app(scope, receive, send)

    async def _check(self, scope: _Scope) -> int | _Refusal:
        wanted = HEADER.lower().encode()
        values = [
            value.decode("latin-1").strip() for name, value in scope["headers"] if name.lower() == wanted
        ]
        resource = self._resource(scope)
        if resource is None:
            return 0
        fence = self._rules.read(scope["method"], values)
        if isinstance(fence, tuple) or not fence:
            return fence
        try:
            waiting = self._fences.claim(fence, resource)
            if inspect.isawaitable(waiting):
                await waiting
        except StaleFence as error:
            return _stale(error)
        except (PawlockError, OSError, _store_errors()) as error:
            return _unknown(error)
        return fence


async def _answer(send: _Send, refusal: _Refusal) -> None:
    body, headers = _problem(refusal)
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": refusal[0].value, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _path(scope: _Scope) -> str:
    return str(scope["path"])


def _store_errors() -> type[Exception]:
    from redis.exceptions import RedisError

    return RedisError


class WsgiFences:
    """WSGI middleware that refuses requests of holders that were overtaken; as ``AsgiFences``.

    The application finds the fence at ``environ["pawlock.fence"]``.

    Args:
        app: The application.
        fences: As for ``AsgiFences``, but nothing of asyncio: ``MemoryFences()`` or a ``RedisGuard``.
        resource: What a request is about, from its environ; None lets it pass. Default: its path.
        methods: As for ``AsgiFences``.
        required: As for ``AsgiFences``.
        ahead: As for ``AsgiFences``.

    Raises:
        ConfigurationError: An option that can never work.
    """

    __slots__ = ("_app", "_fences", "_resource", "_rules")

    def __init__(
        self,
        app: Callable[[Any, Any], Iterable[bytes]],
        *,
        fences: Fences | None = None,
        resource: Callable[[dict[str, Any]], str | None] | None = None,
        methods: Collection[str] | None = None,
        required: bool = True,
        ahead: float = _DAY,
    ) -> None:
        self._app = app
        self._fences: Fences = MemoryFences() if fences is None else fences
        if inspect.iscoroutinefunction(self._fences.claim):
            raise ConfigurationError("this guard is async: for WSGI use MemoryFences or RedisGuard")
        self._resource: Callable[[dict[str, Any]], str | None] = resource or _path_info
        self._rules = _Rules(methods, required=required, ahead=ahead)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request, as PEP 3333 says."""
        found = self._check(environ)
        if isinstance(found, tuple):
            body, headers = _problem(found)
            start_response(f"{found[0].value} {found[0].phrase}", headers)
            return [body]
        if found:
            environ = {**environ, "pawlock.fence": found}
        return self._app(environ, start_response)

    def _check(self, environ: dict[str, Any]) -> int | _Refusal:
        resource = self._resource(environ)
        if resource is None:
            return 0
        sent: str | None = environ.get("HTTP_" + HEADER.upper().replace("-", "_"))
        fence = self._rules.read(environ["REQUEST_METHOD"], [] if sent is None else [sent.strip()])
        if isinstance(fence, tuple) or not fence:
            return fence
        try:
            self._fences.claim(fence, resource)
        except StaleFence as error:
            return _stale(error)
        except (PawlockError, OSError, _store_errors()) as error:
            return _unknown(error)
        return fence


def _path_info(environ: dict[str, Any]) -> str:
    return f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}"
