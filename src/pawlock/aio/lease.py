"""What a task holds. A thin shell: what happens is decided in ``pawlock.core``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pawlock.aio.block import LeaseBlock, check_home
from pawlock.core.lease.base import LossSignal, lease_of
from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.options import Seconds, check_ttl
from pawlock.core.release import extend, transfer

__all__ = ["AsyncLease", "AsyncLost", "AsyncWriteLease", "given", "given_to_write", "shown"]


class AsyncLost(LossSignal):
    """Whether a lease is lost: true in a condition once it is, by the local clock."""

    __slots__ = ()

    async def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the lease is lost or released.

        Args:
            timeout: Seconds to sleep at most; None (default) as long as it takes, 0 only looks.

        Returns:
            True if it is lost.

        Raises:
            ConfigurationError: ``timeout`` is negative, NaN or no number.
        """
        return await self._wait(timeout)


class AsyncLease(LeaseBlock):
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
        check_home(self._record, "extend")
        await extend.extend(self._record.engine, self._record, check_ttl(ttl))

    def detach(self) -> str:
        """Stop renewing the lease without releasing it; another process may ``adopt`` the returned ticket.

        Returns:
            A ticket: text that holds the token, as secret as the lease. It can be used once, within the TTL.

        Raises:
            NotHeld: It is lost or released.
            NotSupported: Its kind cannot go on in another process.
        """
        return transfer.detach(self._record.engine, self._record)


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
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        check_home(self._record, "downgrade")
        await extend.downgrade(self._record.engine, self._record)


def shown(record: HeldLease) -> AsyncLease:
    """What the user sees of a lease: the same object each time."""
    return lease_of(
        AsyncLease if record.server_lease.primitive.lowered() is None else AsyncWriteLease, record
    )


given: Callable[[HeldLease], AsyncLease] = partial(lease_of, AsyncLease)
"""The same, for the caller that acquired it."""

given_to_write: Callable[[HeldLease], AsyncWriteLease] = partial(lease_of, AsyncWriteLease)
"""The same for a writer."""
