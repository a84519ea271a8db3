# Written by tools/make_sync.py from aio/multi.py: change that, and run it.
"""The multi-lock of threads. Thin shells: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from typing import Never

from pawlock._block import Block, begun
from pawlock._described import Described
from pawlock._inside import engine_of
from pawlock._unset import UNSET, Unset
from pawlock.core.inspect import inspect
from pawlock.core.lease import HeldLease
from pawlock.core.options import Seconds, check_ttl
from pawlock.core.reentry import holds
from pawlock.core.runtime import StopSignal
from pawlock.primitives.multi import operation as multi
from pawlock.primitives.multi.lease import BaseMultiLease, HeldMultiLease, MultiPlan, record_of_all
from pawlock.runtimes.threads import run
from pawlock.sync.block import Entered, OwnBlock, enter_block, leave_block
from pawlock.sync.lock import Lease, Lost, shown

__all__ = ["MultiLease", "MultiLock", "shown_any"]


class MultiLease(BaseMultiLease, OwnBlock):
    """One lease of several names: valid as long as all of them; a context manager that releases all at its end."""

    __slots__ = ()

    @property
    def lost(self) -> Lost:
        """Whether any member is lost; ``lost.wait(timeout)`` sleeps until then."""
        return Lost(self._record)

    def extend(self, ttl: Seconds) -> None:
        """Set the remaining life of each name to ``ttl``; it never adds. The new ttl also serves later renewals.

        Args:
            ttl: Seconds, from 0.05 to 366 days, as for a single lease.

        Raises:
            NotHeld: One is lost, or all were released; the others were extended.
            ConfigurationError: ttl can never work.
            BackendError: The server could not be reached.
        """
        run(multi.extend_all(self._record.engine, self._record, check_ttl(ttl)))

    def release(self) -> None:
        """Release all members, even if one of them fails.

        Raises:
            NotHeld: One was lost, or all were released before.
            BackendError: The server did not answer for one, or refused; its TTL frees the lock at the latest.
        """
        run(multi.release_all_or_raise(self._record))

    def _leave(self, _: Block | None, error: BaseException | None) -> None:
        leave_block(self._record, error, multi.end_all)


def _shown(record: HeldMultiLease) -> MultiLease:
    """What the user sees of a lease of several names: the same object each time."""
    known: MultiLease | None = None if record.shown_as is None else record.shown_as()
    return MultiLease(record) if known is None else known


def _acquired_all(client: object, plan: MultiPlan, wait: float | None, stop: StopSignal | None) -> MultiLease:
    return _shown(run(multi.acquire_all(engine_of(client), plan, wait, stop)))


def shown_any(record: HeldLease | HeldMultiLease) -> Lease | MultiLease:
    """What the user sees of a lease of one name or of several."""
    return shown(record) if isinstance(record, HeldLease) else _shown(record)


class MultiLock(Described, Entered[HeldMultiLease]):
    """Several locks that are acquired together: immutable, picklable, shared by any number of threads.

    ``with lock as lease:`` acquires all of them or none, and releases all; made by ``Client.multi_lock``.
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
    ) -> MultiLease:
        """Acquire all members, waiting in the queue of each that is held; on failure, release all.

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
        return _acquired_all(self._client, plan, wait, stop)

    def try_acquire(self) -> MultiLease | None:
        """Acquire all members if all are free now; None if one is held, also by this thread itself.

        Raises:
            BackendError: The server could not be reached, or refused; the result is never None then.
        """
        record = run(multi.try_all(engine_of(self._client), self._plan))
        return None if record is None else _shown(record)

    def held_by_me(self) -> bool:
        """Whether this thread holds every member now by this client's leases. No server is asked."""
        return all(holds(engine_of(self._client), member) for member in self._plan.members)

    def locked(self) -> bool:
        """Whether any member is held now. It may change at any time."""
        engine = engine_of(self._client)
        for member in self._plan.members:
            found = run(inspect(engine, member.primitive, member.options, 0))
            if found.held:
                return True
        return False

    def __enter__(self) -> MultiLease:
        block = begun(self)
        lease = self.acquire()
        record = record_of_all(lease)
        self._begin(block, record)
        enter_block(record, block)
        return lease

    def _end(self, held: HeldMultiLease, error: BaseException | None) -> None:
        leave_block(held, error, multi.end_all)
