"""What a task holds. A thin shell: what happens is decided in ``pawl.core``."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pawl._cancel import CancelScope
from pawl.core.acquire import acquire
from pawl.core.lease.base import BaseLease, LossSignal
from pawl.core.lease.in_progress import refuse
from pawl.core.lease.record import HeldLease
from pawl.core.protocol.options import Seconds, check_ttl
from pawl.core.release import extend, release, transfer
from pawl.core.release.fast import hand_on
from pawl.errors import NotSupported
from pawl.model import Release

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.runtime import StopSignal
    from pawl.core.state.plan import Plan

__all__ = [
    "AsyncLease",
    "AsyncLost",
    "AsyncWriteLease",
    "acquired",
    "acquired_to_write",
    "enter_block",
    "given",
    "given_to_write",
    "shown",
]


class AsyncLost(LossSignal):
    """Whether a lease is lost: true in a condition once it is, by the local clock."""

    __slots__ = ()

    async def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the lease is lost or released.

        Args:
            timeout: Seconds to sleep at most; None (default) as long as it takes.

        Returns:
            True if it is lost.
        """
        return await self._wait(timeout)


def _check_home(lease: HeldLease, doing: str) -> None:
    """Raise ``NotSupported`` in another event loop than the lease's: what it would wait for belongs to that one."""
    home = getattr(lease.engine.runtime, "loop", None)
    if home is not None and home is not asyncio.get_running_loop():
        text = (
            "the lease was acquired in another event loop: call it there (asyncio.run_coroutine_threadsafe)"
        )
        raise NotSupported(f"{doing} {lease.name!r}: {text}", name=lease.name)


def enter_block(lease: HeldLease) -> None:
    """Enter a block that ends the lease: a loss cancels the present task."""
    CancelScope.enter(lease)
    if not lease.server_lease.primitive.transferable:
        lease.bind()


class AsyncLease(BaseLease):
    """A grant that its owner may rely on until ``valid_until``; an async context manager that releases at its end.

    While a task is inside ``async with``, a loss cancels it at its next await, and the block raises ``LeaseLost``.
    """

    __slots__ = ()

    @property
    def lost(self) -> AsyncLost:
        """Whether the lease is lost; ``await lost.wait(timeout)`` sleeps until then."""
        return AsyncLost(self._record)

    async def extend(self, ttl: Seconds) -> None:
        """Set the remaining life to ``ttl``; it never adds. The new ttl also serves later renewals.

        Args:
            ttl: Seconds, from 0.05 to 366 days. Less than what is left shortens the lease at once, for its owner
                only: the server keeps the name until the life it knows ends or the lease is released.

        Raises:
            NotHeld: It is lost or released.
            ConfigurationError: ttl can never work.
            BackendError: The server could not be asked.
            NotSupported: This is another event loop than that which acquired it.
        """
        _check_home(self._record, "extend")
        await extend.extend(self._record.engine, self._record, check_ttl(ttl))

    async def release(self) -> None:
        """Release the lock; the next waiter gets it immediately.

        Raises:
            NotHeld: It was already lost or released; nothing was changed.
            BackendError: The server did not answer, or refused; the TTL frees the lock at the latest.
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        _check_home(self._record, "release")
        server_lease = self._record.server_lease
        queue, run = server_lease.local_queue, server_lease.run
        # A look first: nobody waits here, mostly, and a call costs as much.
        waits = run is not None if queue is None else queue.local_waiters
        if waits and hand_on(self._record.engine, self._record):
            return
        outcome = await release.release(self._record.engine, self._record)
        if outcome is not Release.RELEASED:
            release.tell(self._record, outcome)

    def detach(self) -> str:
        """Stop renewing the lease without releasing it; another process may ``adopt`` the returned ticket.

        Returns:
            A ticket: text that holds the token, as secret as the lease. It can be used once, within the TTL.

        Raises:
            NotHeld: It is lost or released.
            NotSupported: It is held for an explicit ``owner=``.
        """
        return transfer.detach(self._record.engine, self._record)

    async def __aenter__(self) -> Self:
        enter_block(self._record)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await CancelScope.leave(self._record, error)


class AsyncWriteLease(AsyncLease):
    """The lease of a writer, which excludes all others; ``downgrade`` turns it into a reader's."""

    __slots__ = ()

    @property
    def writing(self) -> bool:
        """True until ``downgrade`` was called, even after a loss."""
        return self._record.server_lease.primitive.lowered() is not None

    async def downgrade(self) -> None:
        """Downgrade to a read lease atomically: no writer comes in between, and waiting readers are granted.

        From the call on it is a read lease, whatever the answer: renewals repeat the downgrade if needed. The
        fencing token stays, and must not be used to write any more.

        Raises:
            NotHeld: It is lost, released, a reader's already, or held more than once (leave the inner blocks first).
            BackendError: The server did not answer; the lease is a reader's all the same.
        """
        await extend.downgrade(self._record.engine, self._record)


def shown(record: HeldLease) -> AsyncLease:
    """What the user sees of a lease: the same object each time."""
    known: AsyncLease | None = None if record.shown_as is None else record.shown_as()
    if known is not None:
        return known
    return AsyncLease(record) if record.server_lease.primitive.lowered() is None else AsyncWriteLease(record)


def given(record: HeldLease) -> AsyncLease:
    """The same, for the caller that acquired it."""
    known = record.shown_as
    lease: AsyncLease | None = AsyncLease(record) if known is None else known()
    if lease is None:
        lease = shown(record)
    # After the last call: a signal handler may have closed the client meanwhile.
    if record.engine.activity.closed:
        refuse(record.engine, record)
    # No call from here to the caller: no signal handler comes between, and what was not given is taken back.
    record.given = True
    return lease


def given_to_write(record: HeldLease) -> AsyncWriteLease:
    """The same for a writer."""
    known: AsyncWriteLease | None = None if record.shown_as is None else record.shown_as()
    lease = AsyncWriteLease(record) if known is None else known
    if record.engine.activity.closed:
        refuse(record.engine, record)
    record.given = True
    return lease


async def acquired(engine: Engine, plan: Plan, wait: float | None, stop: StopSignal | None) -> AsyncLease:
    """Acquire it for the caller; see ``acquire.acquire``."""
    return given(await acquire.acquire(engine, plan, wait, stop))


async def acquired_to_write(
    engine: Engine, plan: Plan, wait: float | None, stop: StopSignal | None
) -> AsyncWriteLease:
    """The same for a writer."""
    return given_to_write(await acquire.acquire(engine, plan, wait, stop))
