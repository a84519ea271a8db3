"""The read-write lock of asyncio. A thin shell: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, Self

from pawlock import _fallback
from pawlock._factory import description, revive
from pawlock._hints import refuse_words
from pawlock._inside import engine_here, origin_of, plan_behind
from pawlock._unset import UNSET, Unset
from pawlock.aio.acquiring import Acquiring, acquired_to_write
from pawlock.aio.lease import AsyncWriteLease, given_to_write
from pawlock.aio.lock import AsyncLock
from pawlock.core.observe.inspect import inspect
from pawlock.core.protocol.options import Seconds, check_timeout
from pawlock.core.protocol.runtime import StopSignal
from pawlock.model import LockInfo

if TYPE_CHECKING:
    from pawlock.aio.context import AsyncContext
    from pawlock.core.state.plan import Plan

__all__ = ["AsyncRWLock", "AsyncWriteLock"]


class AsyncWriteLock(AsyncLock):
    """The write side of a read-write lock; made by ``AsyncClient.rwlock``."""

    __slots__ = ()

    def acquire(
        self,
        timeout: Seconds | Unset | None = UNSET,
        *,
        ttl: Seconds | None = None,
        stop: StopSignal | None = None,
        **unknown: Never,
    ) -> Acquiring[AsyncWriteLease]:
        """Acquire the write lock; wait until nobody else holds it. Await it, or enter it with ``async with``.

        Args:
            timeout: Seconds to wait; None waits indefinitely, 0 tries once; default: the lock's own ``timeout``.
            ttl: The TTL of this lease in seconds; default: the lock's own.
            stop: An event; once it is set, a wait in the queue ends with ``NotAcquired`` within 0.05 s.
            unknown: None. Words of other libraries, as ``blocking``, raise a ``TypeError`` that names pawlock's.

        Raises:
            AcquireTimeout: It was still held at the end of ``timeout``.
            DeadlockDetected: A block around this call reads it: a reader never becomes a writer.
            QueueFull: More than ``max_waiters`` wait.
            BackendError: The server could not be asked, or refused.
            ClientClosed: The client was closed.
        """
        if unknown:
            refuse_words("acquire", unknown)
        plan = self._prepare(self._plan, ttl)
        wait = plan.options.timeout if timeout is UNSET else check_timeout(timeout)
        return Acquiring(acquired_to_write(self._client, plan, wait, stop))

    async def try_acquire(self) -> AsyncWriteLease | None:
        """Acquire the write lock if nobody else reads, writes or waits; else None.

        Raises:
            BackendError: The server could not be asked, or refused; the result is never None then.
        """
        plan = self._prepare(self._plan, None)
        return await _fallback.acquire(engine_here(self._client), plan, 0, or_none=True, give=given_to_write)

    if TYPE_CHECKING:
        # That of its class, which gives what ``acquire`` gives.
        async def __aenter__(self) -> AsyncWriteLease: ...


class AsyncRWLock:
    """The description of a read-write lock: many may read at a time, or one may write. It holds nothing itself.

    Made by ``AsyncClient.rwlock``; ``read`` and ``write`` are its two locks.
    """

    __slots__ = ("_client", "_source", "read", "write")

    def __init__(self, client: AsyncContext, plans: tuple[Plan, Plan], source: tuple[Any, ...]) -> None:
        self._client = client
        self._source = source
        self.read: AsyncLock = AsyncLock(client, plans[0], ("rwlock.read", *source[1:]))
        self.write: AsyncWriteLock = AsyncWriteLock(client, plans[1], ("rwlock.write", *source[1:]))

    @property
    def name(self) -> str:
        """The lock's name."""
        return self.write.name

    async def inspect(self, *, waiters: int = 100) -> LockInfo:
        """The readers or the writer, and the waiters. Changes nothing.

        Args:
            waiters: Maximum number of holders and of waiters to list, from 0 to 100,000; default 100.

        Raises:
            ConfigurationError: A number that can never work.
            BackendError: The server could not be asked.
            ClientClosed: The client was closed.
        """
        plan = plan_behind(self.read)
        return await inspect(engine_here(self._client), plan.primitive, plan.options, waiters)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} ttl={plan_behind(self.read).options.ttl:g}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return revive, (type(self._client), description(origin_of(self._client)), *self._source)
