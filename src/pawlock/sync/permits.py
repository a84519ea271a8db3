# Written by tools/make_sync.py from aio/permits.py: change that, and run it.
"""The semaphore and the read-write lock of threads. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never, cast

from pawlock._described import Described, Source
from pawlock._fallback import ACQUIRE
from pawlock._inside import engine_of
from pawlock._permits import change_limit, plan_for_permits
from pawlock._unset import UNSET, Unset
from pawlock.core.inspect import inspect
from pawlock.core.options import Seconds
from pawlock.core.plan import Plan
from pawlock.core.runtime import StopSignal
from pawlock.model import LockInfo
from pawlock.primitives.permits import Permits
from pawlock.runtimes.threads import at_once, run
from pawlock.sync.lock import BaseLock, Lease, Lock, WriteLease, given, given_to_write

__all__ = ["RWLock", "Semaphore", "WriteLock"]


class Semaphore(BaseLock):
    """The description of a semaphore: immutable, picklable, shared by any number of threads. It holds nothing itself.

    ``with semaphore as lease:`` acquires one permit and releases it; made by ``Client.semaphore``. Also a
    decorator.
    """

    __slots__ = ()

    @property
    def permits(self) -> int:
        """The number of permits that this program declares."""
        return cast("Permits", self._plan.primitive).permits

    def acquire(
        self,
        n: int = 1,
        timeout: Seconds | Unset | None = UNSET,
        *,
        ttl: Seconds | None = None,
        stop: StopSignal | None = None,
        **unknown: Never,
    ) -> Lease:
        """Acquire permits; wait in the queue if there are too few.

        Args:
            n: How many permits, together under one lease; 1 (default) to ``permits``.
            timeout: Seconds to wait; None waits indefinitely, 0 tries once; default: the semaphore's own
                ``timeout``.
            ttl: The TTL of this lease in seconds; default: the semaphore's own.
            stop: An event; once it is set, a wait in the queue ends with ``NotAcquired`` within 0.05 s.
            unknown: None. Words of other libraries, as ``blocking``, raise a ``TypeError`` that names pawlock's.

        Raises:
            AcquireTimeout: There were not enough at the end of ``timeout``.
            LimitMismatch: The server's limit is not ``permits``, or is below ``n``.
            QueueFull: More than ``max_waiters`` wait.
            ConfigurationError: n is more than the limit can ever allow.
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        plan, wait = self._asked(plan_for_permits(self._plan, n), timeout, ttl, unknown)
        return at_once(
            ACQUIRE[plan.options.on_unavailable](engine_of(self._client), plan, wait, stop, give=given)
        )

    def try_acquire(self, n: int = 1) -> Lease | None:
        """Acquire permits if they are free now and there is no waiter; else None.

        Args:
            n: How many permits, together under one lease; 1 (default) to ``permits``.

        Raises:
            LimitMismatch: The server's limit is not ``permits``, or is below ``n``.
            ConfigurationError: n is more than the limit can ever allow.
            BackendError: The server could not be reached, or refused; the result is never None then.
        """
        plan = plan_for_permits(self._plan, n)
        how = ACQUIRE[plan.options.on_unavailable]
        return at_once(how(engine_of(self._client), plan, 0, or_none=True, give=given))

    def available(self) -> int:
        """The number of free permits. It may change at any time: use it for display, never to decide.

        Raises:
            BackendError: The server could not be reached.
        """
        info = self.inspect(waiters=0)
        return max(0, (info.limit or self.permits) - info.used)

    def inspect(self, *, waiters: int = 100) -> LockInfo:
        """The limit, the holders with their permits, and the waiters. Changes nothing.

        Args:
            waiters: Maximum number of holders and of waiters to list, from 0 to 100,000; default 100.

        Raises:
            ConfigurationError: A number that can never work.
            BackendError: The server could not be reached.
            ClientClosed: The client was closed.
        """
        return run(inspect(engine_of(self._client), self._plan.primitive, self._plan.options, waiters))

    def set_limit(self, permits: int) -> None:
        """Change how many permits there are, for all clients. Raising it serves waiters immediately.

        Lowering it revokes no permit: there are no new grants until enough are released. From then on clients that
        declare the new number and those that declare the number of this object agree with the server.

        Args:
            permits: The new number, at least 1. Kept for a day after the semaphore was last used.

        Raises:
            ConfigurationError: It can never work.
            BackendError: The server could not be reached.
        """
        run(change_limit(engine_of(self._client), self._plan, permits))


class WriteLock(Lock):
    """The write side of a read-write lock; made by ``Client.rwlock``."""

    __slots__ = ()

    def acquire(
        self,
        timeout: Seconds | Unset | None = UNSET,
        *,
        ttl: Seconds | None = None,
        stop: StopSignal | None = None,
        **unknown: Never,
    ) -> WriteLease:
        """Acquire the write lock; wait until nobody else holds it.

        Args:
            timeout: Seconds to wait; None waits indefinitely, 0 tries once; default: the lock's own ``timeout``.
            ttl: The TTL of this lease in seconds; default: the lock's own.
            stop: An event; once it is set, a wait in the queue ends with ``NotAcquired`` within 0.05 s.
            unknown: None. Words of other libraries, as ``blocking``, raise a ``TypeError`` that names pawlock's.

        Raises:
            AcquireTimeout: It was still held at the end of ``timeout``.
            DeadlockDetected: A block around this call reads it: a reader never becomes a writer.
            QueueFull: More than ``max_waiters`` wait.
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        plan, wait = self._asked(self._plan, timeout, ttl, unknown)
        return at_once(
            ACQUIRE[plan.options.on_unavailable](
                engine_of(self._client), plan, wait, stop, give=given_to_write
            )
        )

    def try_acquire(self) -> WriteLease | None:
        """Acquire the write lock if nobody else reads, writes or waits; else None.

        Raises:
            BackendError: The server could not be reached, or refused; the result is never None then.
        """
        how = ACQUIRE[self._plan.options.on_unavailable]
        return at_once(how(engine_of(self._client), self._plan, 0, or_none=True, give=given_to_write))

    if TYPE_CHECKING:
        # That of its class, which gives what ``acquire`` gives.
        def __enter__(self) -> WriteLease: ...


class RWLock(Described):
    """The description of a read-write lock: many may read at a time, or one may write. It holds nothing itself.

    Made by ``Client.rwlock``; ``read`` and ``write`` are its two locks.
    """

    __slots__ = ("read", "write")

    def __init__(self, client: object, plans: tuple[Plan, Plan], source: Source) -> None:
        super().__init__(client, plans[0], source)
        self.read: Lock = Lock(client, plans[0], ("rwlock.read", *source[1:]))
        self.write: WriteLock = WriteLock(client, plans[1], ("rwlock.write", *source[1:]))

    def inspect(self, *, waiters: int = 100) -> LockInfo:
        """The readers or the writer, and the waiters. Changes nothing.

        Args:
            waiters: Maximum number of holders and of waiters to list, from 0 to 100,000; default 100.

        Raises:
            ConfigurationError: A number that can never work.
            BackendError: The server could not be reached.
            ClientClosed: The client was closed.
        """
        return run(inspect(engine_of(self._client), self._plan.primitive, self._plan.options, waiters))
