"""The multi-lock of asyncio. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from typing import Never

from pawlock._block import Block, begun
from pawlock._described import Described
from pawlock._inside import engine_here
from pawlock._unset import UNSET, Unset
from pawlock.aio.block import Acquiring, Entered, OwnBlock, check_home, enter_block, leave_block
from pawlock.aio.lock import AsyncLease, AsyncLost, shown
from pawlock.core.inspect import inspect
from pawlock.core.lease import HeldLease
from pawlock.core.options import Seconds, check_ttl
from pawlock.core.reentry import holds
from pawlock.core.runtime import StopSignal
from pawlock.primitives.multi import operation as multi
from pawlock.primitives.multi.lease import BaseMultiLease, HeldMultiLease, MultiPlan, record_of_all

__all__ = ["AsyncMultiLease", "AsyncMultiLock", "shown_any"]


class AsyncMultiLease(BaseMultiLease, OwnBlock):
    """One lease of several names: valid as long as all of them; an async context manager that releases all at its end.

    While a task is inside ``async with``, a loss of any of them cancels it at its next await, and the block raises
    ``LeaseLost``.
    """

    __slots__ = ()

    @property
    def lost(self) -> AsyncLost:
        """Whether any member is lost; ``await lost.wait(timeout)`` sleeps until then."""
        return AsyncLost(self._record)

    async def extend(self, ttl: Seconds) -> None:
        """Set the remaining life of each name to ``ttl``; it never adds. The new ttl also serves later renewals.

        Args:
            ttl: Seconds, from 0.05 to 366 days, as for a single lease.

        Raises:
            NotHeld: One is lost, or all were released; the others were extended.
            ConfigurationError: ttl can never work.
            BackendError: The server could not be reached.
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        check_home(self._record, "extend")
        await multi.extend_all(self._record.engine, self._record, check_ttl(ttl))

    async def release(self) -> None:
        """Release all members, even if one of them fails.

        Raises:
            NotHeld: One was lost, or all were released before.
            BackendError: The server did not answer for one, or refused; its TTL frees the lock at the latest.
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        check_home(self._record, "release")
        await multi.release_all_or_raise(self._record)

    async def _leave(self, _: Block | None, error: BaseException | None) -> None:
        await leave_block(self._record, error, multi.end_all)


def _shown(record: HeldMultiLease) -> AsyncMultiLease:
    """What the user sees of a lease of several names: the same object each time."""
    known: AsyncMultiLease | None = None if record.shown_as is None else record.shown_as()
    return AsyncMultiLease(record) if known is None else known


async def _acquired_all(
    client: object, plan: MultiPlan, wait: float | None, stop: StopSignal | None
) -> AsyncMultiLease:
    return _shown(await multi.acquire_all(engine_here(client), plan, wait, stop))


def shown_any(record: HeldLease | HeldMultiLease) -> AsyncLease | AsyncMultiLease:
    """What the user sees of a lease of one name or of several."""
    return shown(record) if isinstance(record, HeldLease) else _shown(record)


class AsyncMultiLock(Described, Entered[HeldMultiLease]):
    """Several locks that are acquired together: immutable, picklable, shared by any number of tasks.

    ``async with lock as lease:`` acquires all of them or none, and releases all; made by ``AsyncClient.multi_lock``.
    """

    __slots__ = ()
    _plan: MultiPlan

    @property
    def name(self) -> str:
        """All names, joined by commas."""
        return self._plan.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its members, in the order in which they are acquired."""
        return tuple(member.primitive.name for member in self._plan.members)

    def acquire(
        self,
        timeout: Seconds | Unset | None = UNSET,
        *,
        ttl: Seconds | None = None,
        stop: StopSignal | None = None,
        **unknown: Never,
    ) -> Acquiring[AsyncMultiLease]:
        """Acquire all members, waiting in the queue of each that is held; on failure, release all.

        Await it, or enter it with ``async with``.

        Args:
            timeout: Seconds to wait for all together; None waits indefinitely, 0 tries once; default: the lock's
                own ``timeout``.
            ttl: The TTL of each lease in seconds; default: its own.
            stop: An event; once it is set, a wait in a queue ends with ``NotAcquired`` within 0.05 s.
            unknown: None. Words of other libraries, as ``blocking``, raise a ``TypeError`` that names pawlock's.

        Raises:
            AcquireTimeout: One was still held at the end of ``timeout``; ``name`` says which.
            DeadlockDetected: A block around this call holds one of them, or a cycle of waiters ends here.
            NotAcquired: One was lost while waiting for the others.
            QueueFull: More than ``max_waiters`` wait for one of them.
            BackendError: The server could not be reached, or refused.
            ClientClosed: The client was closed.
        """
        plan, wait = self._asked(self._plan, timeout, ttl, unknown)
        return Acquiring(_acquired_all(self._client, plan, wait, stop))

    async def try_acquire(self) -> AsyncMultiLease | None:
        """Acquire all members if all are free now; None if one is held, also by this task itself.

        Raises:
            BackendError: The server could not be reached, or refused; the result is never None then.
        """
        record = await multi.try_all(engine_here(self._client), self._plan)
        return None if record is None else _shown(record)

    def held_by_me(self) -> bool:
        """Whether this task holds every member now by this client's leases. No server is asked."""
        return all(holds(engine_here(self._client), member) for member in self._plan.members)

    async def locked(self) -> bool:
        """Whether any member is held now. It may change at any time."""
        engine = engine_here(self._client)
        for member in self._plan.members:
            found = await inspect(engine, member.primitive, member.options, 0)
            if found.held:
                return True
        return False

    async def __aenter__(self) -> AsyncMultiLease:
        block = begun(self)
        lease = await self.acquire()
        record = record_of_all(lease)
        self._begin(block, record)
        enter_block(record, block)
        return lease

    async def _end(self, held: HeldMultiLease, error: BaseException | None) -> None:
        await leave_block(held, error, multi.end_all)
