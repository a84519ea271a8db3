"""What a task holds. A thin shell: what happens is decided in ``pawl.core``."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from pawl._cancel import CancelScope
from pawl.core.lease.base import BaseLease, LossSignal
from pawl.core.protocol.options import Seconds, check_ttl
from pawl.core.release import extend, release, transfer
from pawl.core.release.fast import hand_on
from pawl.errors import NotSupported
from pawl.model import Release

__all__ = ["AsyncLease", "AsyncLost", "AsyncWriteLease"]


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


def _check_home(lease: BaseLease, doing: str) -> None:
    """Raise ``NotSupported`` in another event loop than the lease's: what it would wait for belongs to that one."""
    home = getattr(lease._engine.runtime, "loop", None)
    if home is not None and home is not asyncio.get_running_loop():
        text = (
            "the lease was acquired in another event loop: call it there (asyncio.run_coroutine_threadsafe)"
        )
        raise NotSupported(f"{doing} {lease.name!r}: {text}", name=lease.name)


class AsyncLease(BaseLease):
    """A grant that its owner may rely on until ``valid_until``; an async context manager that releases at its end.

    While a task is inside ``async with``, a loss cancels it at its next await, and the block raises ``LeaseLost``.
    """

    __slots__ = ()

    @property
    def lost(self) -> AsyncLost:
        """Whether the lease is lost; ``await lost.wait(timeout)`` sleeps until then."""
        return AsyncLost(self)

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
        _check_home(self, "extend")
        await extend.extend(self._engine, self, check_ttl(ttl))

    async def release(self) -> None:
        """Release the lock; the next waiter gets it immediately.

        Raises:
            NotHeld: It was already lost or released; nothing was changed.
            BackendError: The server did not answer, or refused; the TTL frees the lock at the latest.
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        _check_home(self, "release")
        local_queue = self._server_lease.local_queue
        if (self._server_lease.behind if local_queue is None else local_queue.local_waiters) and hand_on(
            self._engine, self
        ):
            return
        outcome = await release.release(self._engine, self)
        if outcome is not Release.RELEASED:
            release.tell(self, outcome)

    def detach(self) -> str:
        """Stop renewing the lease without releasing it; another process may ``adopt`` the returned ticket.

        Returns:
            A ticket: text that holds the token, as secret as the lease. It can be used once, within the TTL.

        Raises:
            NotHeld: It is lost or released.
            NotSupported: It is held for an explicit ``owner=``.
        """
        return transfer.detach(self._engine, self)

    async def __aenter__(self) -> Self:
        CancelScope.enter(self)
        if not self._server_lease.primitive.transferable:
            self._bind()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await CancelScope.leave(self, error)


class AsyncWriteLease(AsyncLease):
    """The lease of a writer, which excludes all others; ``downgrade`` turns it into a reader's."""

    __slots__ = ()

    @property
    def writing(self) -> bool:
        """True until ``downgrade`` was called, even after a loss."""
        return self._server_lease.primitive.lowered() is not None

    async def downgrade(self) -> None:
        """Downgrade to a read lease atomically: no writer comes in between, and waiting readers are granted.

        From the call on it is a read lease, whatever the answer: renewals repeat the downgrade if needed. The
        fencing token stays, and must not be used to write any more.

        Raises:
            NotHeld: It is lost, released, a reader's already, or held more than once (leave the inner blocks first).
            BackendError: The server did not answer; the lease is a reader's all the same.
        """
        await extend.downgrade(self._engine, self)
