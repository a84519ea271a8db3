"""pawlock in ASGI applications: a function that one of N workers runs, requests that take a lock or are handled once.

``leader`` needs no framework: it is a lifespan, which FastAPI, Starlette, Litestar and others take; nor does the
middleware ``Idempotency``. ``lock`` needs Starlette, which FastAPI brings.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast, overload

import pawlock
from pawlock.integrations._idempotency import Idempotency, is_final
from pawlock.integrations._names import check_client, filled, one_text, plain

if TYPE_CHECKING:
    from starlette.exceptions import HTTPException
    from starlette.requests import HTTPConnection

__all__ = ["Idempotency", "Lifespan", "RequestLock", "SyncRequestLock", "is_final", "leader", "lock"]

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""What a framework takes as ``lifespan=``: it is called with the application, and entered while that runs."""


def leader(
    client: pawlock.AsyncClient,
    name: str,
    function: Callable[[pawlock.AsyncLease], Awaitable[object]],
    *,
    lifespan: Lifespan | None = None,
    identity: str | None = None,
    backoff: tuple[float, float] = (1.0, 60.0),
    **options: Any,
) -> Lifespan:
    """Run a function in one of all workers, for as long as the application runs.

    Each worker stands for election; the one that leads runs the function. When that worker dies, another one runs it
    at most a TTL and a second later; when it is stopped, it ends the function, resigns and leaves nothing on the
    server. What happens on errors is said at ``pawlock.AsyncElection.run``.

    Args:
        client: The client of the application; it stays open.
        name: The name of the election, the same in all workers.
        function: What the leader does with its lease, usually until it is cancelled: at its next await when the lead is
            lost and when the application stops. When it returns, this worker resigns and does not stand for election
            again; the next worker then runs it.
        lifespan: The application's own lifespan, or another ``leader``; default none. It is entered before the function
            runs and left after it has ended, so the function may use what it sets up; its state is passed on.
        identity: The name of this worker that observers see; default ``host:pid/task``.
        backoff: Seconds of the first and the longest pause after the function failed; default 1 and 60.
        options: Options of ``client.election``, as ``ttl``: how long a worker that died keeps the lead, default 30.

    Returns:
        A lifespan: ``FastAPI(lifespan=leader(...))``.

    Raises:
        ConfigurationError: A name or option that can never work.
    """
    check_client(client)
    election = client.election(name, identity=identity, **options)

    @asynccontextmanager
    async def living(app: Any) -> AsyncGenerator[Any]:
        if lifespan is None:
            async with _candidate(election, function, backoff):
                yield
        else:
            async with lifespan(app) as state, _candidate(election, function, backoff):
                yield state

    return living


@asynccontextmanager
async def _candidate(
    election: pawlock.AsyncElection,
    function: Callable[[pawlock.AsyncLease], Awaitable[object]],
    backoff: tuple[float, float],
) -> AsyncGenerator[None]:
    running = asyncio.ensure_future(election.run(function, backoff=backoff))
    await asyncio.sleep(0)
    if running.done():
        running.result()  # an option that can never work ends the start, not a task that nobody reads
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])
    if not running.cancelled():
        running.result()


@overload
def lock(
    client: pawlock.AsyncClient,
    name: str | Callable[[HTTPConnection], str],
    *,
    timeout: float = 0.0,
    status: int = 423,
    retry_after: float = 1.0,
    **options: Any,
) -> RequestLock: ...
@overload
def lock(
    client: pawlock.Client,
    name: str | Callable[[HTTPConnection], str],
    *,
    timeout: float = 0.0,
    status: int = 423,
    retry_after: float = 1.0,
    **options: Any,
) -> SyncRequestLock: ...
def lock(
    client: pawlock.AsyncClient | pawlock.Client,
    name: str | Callable[[HTTPConnection], str],
    *,
    timeout: float = 0.0,
    status: int = 423,
    retry_after: float = 1.0,
    **options: Any,
) -> RequestLock | SyncRequestLock:
    """Hold a lock while a request is handled: a dependency for FastAPI, or a block in any Starlette endpoint.

    The handler finds the fencing token in ``request.state.fence`` and the lease in ``request.state.lease``. What keeps
    the request from its lock is answered for it: with ``status`` (423 Locked) and ``Retry-After`` if another request
    holds the lock, 503 and ``Retry-After`` if the lock server cannot be reached, 422 if what the request gives can be no
    name, 500 if the lease was lost while the handler ran.

    Args:
        client: The client of the application. With a sync one, FastAPI runs the dependency in its pool of threads, and a
            lease that is lost ends no handler: what ``request.state.lease.check()`` raises is answered with 500.
        name: The name of the lock. Fields, as in ``"order:{id}"``, are filled from the path's parameters as the handler
            gets them: where it takes an ``int``, ``/orders/7`` and ``/orders/07`` are one name. ``{{`` stands for a
            brace. Or a function that gets the request, with these ``path_params``, and returns the name.
        timeout: Seconds that a request waits for another one; default 0: it is refused at once.
        status: The status if another request holds the lock for longer; default 423, many APIs prefer 409.
        retry_after: Seconds of the ``Retry-After`` header, at least 1; default 1.
        options: Options of ``client.lock``, as ``ttl`` or ``max_hold``.

    Returns:
        The dependency: ``Depends(lock(client, "order:{id}"))``. Its ``holding(request)`` is the block.

    Raises:
        ConfigurationError: An option that can never work.
        ImportError: Starlette is not installed.
    """
    if isinstance(client, pawlock.Client):
        return SyncRequestLock(client, name, timeout, status, retry_after, options)
    check_client(client)
    return RequestLock(client, name, timeout, status, retry_after, options)


class _RequestLock:
    """What both have in common: the name of a request's lock, and the answers to what keeps it from it."""

    def __init__(
        self,
        client: Any,
        name: str | Callable[[HTTPConnection], str],
        timeout: float,
        status: int,
        retry_after: float,
        options: dict[str, Any],
    ) -> None:
        from starlette.requests import HTTPConnection

        if not 400 <= status <= 599:
            raise pawlock.ConfigurationError(
                f"status must be one of an error, 400 to 599, got {status!r:.40}"
            )
        if not math.isfinite(retry_after):
            raise pawlock.ConfigurationError(
                f"retry_after must be a number of seconds, got {retry_after!r:.40}"
            )
        self._client = client
        self._name = name
        self._timeout = timeout
        self._status = status
        self._retry_after = str(max(1, math.ceil(retry_after)))
        self._options = options
        # What can never work is an error here.
        client.lock("check" if callable(name) else name, timeout=timeout, **options)
        # What FastAPI reads to know that it wants the request. The annotation is a class, since Starlette is imported
        # only where it is used.
        request = inspect.Parameter(
            "request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=HTTPConnection
        )
        self.__signature__: inspect.Signature = inspect.Signature([request])

    def _wanted(self, request: HTTPConnection) -> Any:
        name = self._name_for(request)
        try:
            return self._client.lock(name, **self._options)
        except pawlock.ConfigurationError as error:
            raise self._refusal(422, "", error) from error

    @contextmanager
    def _asking(self) -> Generator[None]:
        try:
            yield
        except pawlock.NotAcquired as error:
            raise self._refusal(self._status, "locked by another request", error) from error
        except (pawlock.BackendError, pawlock.ClientClosed) as error:
            raise self._refusal(503, "the lock server cannot be reached", error) from error

    @contextmanager
    def _handling(
        self, request: HTTPConnection, lease: pawlock.AsyncLease | pawlock.Lease
    ) -> Generator[None]:
        request.state.lease, request.state.fence = lease, lease.fence
        try:
            yield
        except pawlock.LeaseLost as error:
            if error.name != lease.name:
                raise
            raise self._refusal(500, "the lock was lost while the request was handled", error) from error

    def _refusal(self, status: int, text: str, error: pawlock.PawlockError) -> HTTPException:
        from starlette.exceptions import HTTPException

        # After a loss nobody knows what was done: a client that repeats the request by itself would do it again.
        headers = None if status in (422, 500) else {"Retry-After": self._retry_after}
        return HTTPException(status, f"{text} [{error.code}]" if text else str(error), headers)

    def _name_for(self, request: HTTPConnection) -> str:
        given = _path_given(request)
        if not callable(self._name):
            return filled(self._name, given, "parameters of the path")
        seen = copy.copy(request)
        seen.scope = {**request.scope, "path_params": given}
        return plain(self._name(seen))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"


class RequestLock(_RequestLock):
    """The lock of a request; made by ``lock``. A FastAPI dependency with the lease as its value."""

    async def __call__(self, request: HTTPConnection) -> AsyncGenerator[pawlock.AsyncLease]:
        """Hold the lock around the handler; called by FastAPI."""
        async with self.holding(request) as lease:
            yield lease

    @asynccontextmanager
    async def holding(self, request: HTTPConnection) -> AsyncGenerator[pawlock.AsyncLease]:
        """Hold the lock in a block: ``async with guard.holding(request) as lease:``.

        Args:
            request: The request (or websocket) whose path fills the name.

        Raises:
            HTTPException: The lock is held (``status``), the server cannot be reached (503), what the request gives can
                be no name, as a text of more than 200 bytes (422), the lease was lost (500).
            ConfigurationError: The path has no parameter that a field of the name asks for.
        """
        with self._asking():
            lease: pawlock.AsyncLease = await self._wanted(request).acquire(self._timeout)
        with self._handling(request, lease):
            async with lease:
                yield lease


class SyncRequestLock(_RequestLock):
    """The same of a sync client; made by ``lock``. FastAPI runs it in threads."""

    def __call__(self, request: HTTPConnection) -> Generator[pawlock.Lease]:
        """Hold the lock around the handler; called by FastAPI."""
        with self.holding(request) as lease:
            yield lease

    @contextmanager
    def holding(self, request: HTTPConnection) -> Generator[pawlock.Lease]:
        """Hold the lock in a block: ``with guard.holding(request) as lease:``, in a ``def`` endpoint.

        Args:
            request: The request whose path fills the name.

        Raises:
            HTTPException: As for ``RequestLock.holding``.
            ConfigurationError: As there.
        """
        with self._asking():
            lease: pawlock.Lease = self._wanted(request).acquire(self._timeout)
        with self._handling(request, lease), lease:
            yield lease


def _path_given(request: HTTPConnection) -> dict[str, Any]:
    """The parameters of the path as the handler gets them: Starlette converts them first, FastAPI after dependencies."""
    given = dict(request.path_params)
    if "fastapi" in sys.modules:
        from fastapi.routing import APIRoute, APIWebSocketRoute

        if isinstance(request.scope.get("route"), (APIRoute, APIWebSocketRoute)):
            for field in _fields_of(request.scope["endpoint"], tuple(given)):
                for name, value in _taken(field, request.path_params):
                    if not isinstance(value, str) or isinstance(given.get(name), str):
                        given[name] = value
    return {name: one_text(value) for name, value in given.items()}


def _taken(field: Any, path: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What an argument takes from the path; nothing if that does not fit: FastAPI refuses the request by itself."""
    from fastapi.dependencies.utils import request_params_to_args

    for name, raw in path.items():
        for value in request_params_to_args([field], {name: raw})[0].values():
            yield name, value
    for value in request_params_to_args([field], path)[0].values():
        for part, about in getattr(cast("Any", type(value)), "model_fields", {}).items():
            yield about.alias or part, getattr(value, part)


@lru_cache(maxsize=1024)
def _fields_of(endpoint: Callable[..., Any], names: tuple[str, ...]) -> list[Any]:
    """What a handler of FastAPI and its dependencies take from the path; the handler's own, which counts most, last."""
    # FastAPI documents neither of the functions used here: in a version without them requests fail, which is safe.
    from fastapi.dependencies.utils import get_dependant

    takers = [get_dependant(path="".join(f"/{{{name}}}" for name in names), call=endpoint)]
    for taker in takers:
        takers += taker.dependencies
    return [field for taker in takers[::-1] for field in taker.path_params]
