"""The lock objects of asyncio. Thin shells: what happens is decided in ``pawl.core``."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Self, TypeVar, cast

from pawl._decorate import decorated_async
from pawl._factory import description, revive
from pawl._hints import Hinting, refuse_words
from pawl._inside import engine_here, origin_of, preparer_of
from pawl._unset import UNSET, Unset
from pawl.aio.lease import AsyncLease, acquired, given
from pawl.core.acquire import acquire
from pawl.core.acquire.reentry import holds
from pawl.core.lease.base import record_of, take_entered
from pawl.core.observe.inspect import inspect
from pawl.core.protocol.options import Seconds, check_timeout
from pawl.core.protocol.runtime import StopSignal

if TYPE_CHECKING:
    from pawl.aio.context import AsyncContext
    from pawl.core.state.plan import Plan, Prepare

__all__ = ["Acquiring", "AsyncLock", "BaseAsyncLock", "SkippingAsyncLock"]

P = ParamSpec("P")
R = TypeVar("R")
L_co = TypeVar("L_co", bound=AsyncLease, covariant=True)


class Acquiring(Coroutine[Any, Any, L_co]):
    """An acquisition that is awaited for its lease, entered with ``async with``, or made a task of."""

    __slots__ = ("_lease", "_operation")

    def __init__(self, operation: Any) -> None:
        self._operation = operation
        self._lease: L_co | None = None

    def __await__(self) -> Generator[Any, None, L_co]:
        operation: Generator[Any, None, L_co] = self._operation.__await__()
        return operation

    def send(self, value: Any, /) -> Any:
        """Go on; for the event loop."""
        return self._operation.send(value)

    def throw(self, *args: Any) -> Any:
        """Go on with an error; for the event loop."""
        return self._operation.throw(*args)

    def close(self) -> None:
        """End without a result; for the event loop."""
        self._operation.close()

    async def __aenter__(self) -> L_co:
        self._lease = lease = cast("L_co", await self._operation)
        return await lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            await self._lease.__aexit__(kind, error, trace)


class BaseAsyncLock(Hinting, ABC):
    """A lock of any kind: immutable, picklable, shared by any number of tasks."""

    __slots__ = ("__weakref__", "_client", "_entered", "_plan", "_prepare", "_source")

    def __init__(self, client: AsyncContext, plan: Plan, source: tuple[Any, ...]) -> None:
        self._client = client
        self._prepare: Prepare = preparer_of(client)
        self._plan = plan
        self._source = source
        self._entered: list[tuple[object, AsyncLease]] = []

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._plan.primitive.name

    @abstractmethod
    def acquire(self, *args: Any, **kwargs: Any) -> Acquiring[AsyncLease]:
        """Acquire it; see the class for each kind."""

    async def __aenter__(self) -> AsyncLease:
        lease = await self.acquire()
        self._entered.append((record_of(lease).who, lease))
        return await lease.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = take_entered(self._entered, asyncio.current_task())
        await lease.__aexit__(kind, error, trace)

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a coroutine function or method: each call runs under the lock, named by the call's arguments.

        Args:
            function: What to run. Fields of the lock's name, as in ``"inventory:{product_id}"``, are filled from the
                arguments of each call.

        Returns:
            The function with the same signature. With ``on_contended="skip"`` a call returns None while somebody else
            holds the name.

        Raises:
            ConfigurationError: The function belongs to the other API, or lacks an argument that a field needs.
        """
        return decorated_async(self, self._plan.options, function)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._plan.primitive.kind} {self.name!r} ttl={self._plan.options.ttl:g}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return revive, (type(self._client), description(origin_of(self._client)), *self._source)


class AsyncLock(BaseAsyncLock):
    """The description of a lock: immutable, picklable, shared by any number of tasks. It holds nothing itself.

    ``async with lock as lease:`` acquires and releases; made by ``AsyncClient.lock``,
    ``AsyncClient.rlock`` and ``AsyncClient.fair_lock``. Also a decorator.
    """

    __slots__ = ()

    def acquire(
        self,
        timeout: Seconds | Unset | None = UNSET,
        *,
        ttl: Seconds | None = None,
        stop: StopSignal | None = None,
        **unknown: Never,
    ) -> Acquiring[AsyncLease]:
        """Acquire the lock; wait in its queue if another client holds it. Await it, or enter it with ``async with``.

        Args:
            timeout: Seconds to wait; None waits indefinitely, 0 tries once; default: the lock's own ``timeout``.
            ttl: The TTL of this lease in seconds; default: the lock's own.
            stop: An event; once it is set, a wait in the queue ends with ``NotAcquired`` within 0.05 s.
            unknown: None. Words of other libraries, as ``blocking``, raise a ``TypeError`` that names pawl's.

        Raises:
            AcquireTimeout: It was still held at the end of ``timeout``.
            DeadlockDetected: This task holds it already.
            QueueFull: More than ``max_waiters`` wait.
            BackendError: The server could not be asked, or refused.
            ClientClosed: The client was closed.
        """
        if unknown:
            refuse_words("acquire", unknown)
        plan = self._prepare(self._plan, ttl)
        wait = plan.options.timeout if isinstance(timeout, Unset) else check_timeout(timeout)
        return Acquiring(acquired(engine_here(self._client), plan, wait, stop))

    async def try_acquire(self) -> AsyncLease | None:
        """Acquire the lock if it is free now; None if it is held, also by this task itself.

        Raises:
            BackendError: The server could not be asked, or refused; the result is never None then.
        """
        record = await acquire.try_acquire(engine_here(self._client), self._plan)
        return None if record is None else given(record)

    def held_by_me(self) -> bool:
        """Whether this task holds the lock now by a lease of this client that has not ended. No server is asked.

        False in every other task, also where it uses a lease of this one, and once the lease is released, lost or
        expired by the local clock. A writer may read: while it writes, this is true of the read lock as well.
        """
        return holds(engine_here(self._client), self._plan)

    async def locked(self) -> bool:
        """Whether the lock is held now. It may change at any time: use it for display, never to decide."""
        return (await inspect(engine_here(self._client), self._plan.primitive, self._plan.options, 0)).held


class SkippingAsyncLock(AsyncLock):
    """How a type checker sees ``AsyncLock`` with ``on_contended="skip"``: what it decorates may return None."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __call__(  # type: ignore[override]
            self, function: Callable[P, Coroutine[Any, Any, R]]
        ) -> Callable[P, Coroutine[Any, Any, R | None]]:
            """See ``AsyncLock``; a call that is skipped returns None."""
            ...
