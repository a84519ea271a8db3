"""The lock objects of asyncio. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal, Never, ParamSpec, TypeVar, overload

from pawlock import _fallback
from pawlock._decorate import Guarding, OnContended, Skipping, decorated_async
from pawlock._described import Described
from pawlock._hints import Hinting, refuse_words
from pawlock._inside import engine_here
from pawlock._unset import UNSET, Unset
from pawlock.aio.acquiring import Acquiring, acquired
from pawlock.aio.block import LockBlock
from pawlock.aio.lease import AsyncLease, given
from pawlock.core.observe.inspect import inspect
from pawlock.core.protocol.options import Seconds, check_timeout
from pawlock.core.protocol.runtime import StopSignal
from pawlock.core.state.plan import Plan

__all__ = ["AsyncLock", "BaseAsyncLock"]

P = ParamSpec("P")
R = TypeVar("R")


class BaseAsyncLock(Hinting, Described, LockBlock[AsyncLease]):
    """A lock of any kind: immutable, picklable, shared by any number of tasks."""

    __slots__ = ()
    _plan: Plan

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, /, *, on_contended: Literal["skip"]) -> Skipping: ...
    @overload
    def __call__(self, /, *, on_contended: Literal["wait", "raise"]) -> Guarding: ...

    def __call__(
        self, function: Callable[..., Any] | Unset = UNSET, /, *, on_contended: OnContended = "wait"
    ) -> Any:
        """Decorate a coroutine function or method: each call runs under the lock, named by the call's arguments.

        Args:
            function: What to run. Fields of the lock's name, as in ``"inventory:{product_id}"``, are filled from the
                arguments of each call.
            on_contended: What a call does while another client holds the lock, as in
                ``@client.lock("report")(on_contended="skip")``. ``"wait"`` (default) waits as long as the lock's
                ``timeout``; ``"raise"`` raises ``NotAcquired`` at once; ``"skip"`` returns None without running it.

        Returns:
            The function with the same signature; without one, what decorates it.

        Raises:
            ConfigurationError: The function belongs to the other API, or lacks an argument that a field needs.
        """
        return decorated_async(self, function, on_contended)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._plan.primitive.kind} {self.name!r} ttl={self._plan.options.ttl:g}>"


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
            unknown: None. Words of other libraries, as ``blocking``, raise a ``TypeError`` that names pawlock's.

        Raises:
            AcquireTimeout: It was still held at the end of ``timeout``.
            DeadlockDetected: A block around this call holds it, or a cycle of waiters ends here.
            QueueFull: More than ``max_waiters`` wait.
            BackendError: The server could not be asked, or refused.
            ClientClosed: The client was closed.
        """
        if unknown:
            refuse_words("acquire", unknown)
        plan = self._prepare(self._plan, ttl)
        wait = plan.options.timeout if timeout is UNSET else check_timeout(timeout)
        return Acquiring(acquired(self._client, plan, wait, stop, give=given))

    async def try_acquire(self) -> AsyncLease | None:
        """Acquire the lock if it is free now; None if it is held, also by this task itself.

        Raises:
            BackendError: The server could not be asked, or refused; the result is never None then.
        """
        plan = self._prepare(self._plan, None)
        return await _fallback.acquire(engine_here(self._client), plan, 0, or_none=True, give=given)

    def held_by_me(self) -> bool:
        """Whether this task holds the lock now by a lease of this client that has not ended. No server is asked.

        False in every other task, also where it uses a lease of this one, and once the lease is released, lost or
        expired by the local clock. A writer may read: while it writes, this is true of the read lock as well.
        """
        return _fallback.holds(engine_here(self._client), self._plan)

    async def locked(self) -> bool:
        """Whether the lock is held now. It may change at any time: use it for display, never to decide."""
        return (await inspect(engine_here(self._client), self._plan.primitive, self._plan.options, 0)).held
