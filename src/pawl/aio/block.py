"""How a block of a task begins and ends. A loss cancels a task; signal handlers interrupt a thread."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pawl._cancel import CancelScope
from pawl._inside import engine_here
from pawl.core.lease.base import BaseLease, record_of, take_entered
from pawl.core.lease.record import HeldLease, Losable
from pawl.core.release import release
from pawl.errors import NotSupported
from pawl.model import Release

if TYPE_CHECKING:
    from pawl.aio.context import AsyncContext

__all__ = ["Entered", "LeaseBlock", "LockBlock", "check_home", "finish", "leave_block", "watch_loss"]

L_co = TypeVar("L_co", bound=BaseLease, covariant=True)

X = TypeVar("X", bound=Losable)
E = TypeVar("E")
_Y = TypeVar("_Y")
_End = Callable[[_Y, BaseException | None], Awaitable[None]]


def watch_loss(lease: Losable) -> None:
    """Cancel the present task at a loss, until it leaves the block."""
    check_home(lease, "enter the block of")
    CancelScope.enter(lease)


def check_home(lease: Losable, doing: str) -> None:
    """Raise ``NotSupported`` in another event loop than the lease's: what it would wait for belongs to that one."""
    home = getattr(lease.engine.runtime, "loop", None)
    if home is not None and home is not asyncio.get_running_loop():
        text = (
            "the lease was acquired in another event loop: call it there (asyncio.run_coroutine_threadsafe)"
        )
        raise NotSupported(f"{doing} {lease.name!r}: {text}", name=lease.name)


async def finish(lease: X, end: Callable[[X], Awaitable[None]], cut_short: Callable[[X], object]) -> None:
    """End a lease by ``end``. No signal handler interrupts it: ``cut_short`` is for threads."""
    del cut_short
    await end(lease)


async def leave_block(
    lease: X, error: BaseException | None, end: _End[X], cut_short: Callable[[X], object]
) -> None:
    """End a block by ``end``, and report a loss. No signal handler interrupts it: ``cut_short`` is for threads."""
    del cut_short
    await CancelScope.leave(lease, error, end)


class Entered(Generic[E]):
    """Who is in the blocks of an object that is shared, and with what."""

    __slots__ = ()
    _client: AsyncContext
    _entered: list[tuple[object, E]]

    async def _leave(
        self, error: BaseException | None, end: _End[E], cut_short: Callable[[E], object]
    ) -> None:
        """End the block that the present task entered last."""
        del cut_short
        await end(take_entered(self._entered, engine_here(self._client).runtime.who()), error)


class LeaseBlock(BaseLease):
    """A lease that its block or its owner releases."""

    __slots__ = ()

    async def release(self) -> None:
        """Release the lock; the next waiter gets it immediately.

        Raises:
            NotHeld: It was already lost or released; nothing was changed.
            BackendError: The server did not answer, or refused; the TTL frees the lock at the latest.
            NotSupported: This is another event loop than that which acquired it; nothing was touched.
        """
        check_home(self._record, "release")
        outcome = await release.release(self._record.engine, self._record)
        if outcome is not Release.RELEASED:
            release.raise_outcome(self._record, outcome)

    async def __aenter__(self) -> Self:
        watch_loss(self._record)
        if not self._record.server_lease.primitive.transferable:
            self._record.bind()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await CancelScope.leave(self._record, error)


class LockBlock(ABC, Generic[L_co]):
    """A lock whose block acquires and releases it."""

    __slots__ = ()
    _entered: list[tuple[object, HeldLease]]

    @abstractmethod
    def acquire(self, *args: Any, **kwargs: Any) -> Awaitable[L_co]:
        """Acquire it; see the class for each kind."""

    async def __aenter__(self) -> L_co:
        lease = await self.acquire()
        record = record_of(lease)
        self._entered.append((record.who, record))
        CancelScope.enter(record)
        if not record.server_lease.primitive.transferable:
            record.bind()
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await CancelScope.leave(take_entered(self._entered, asyncio.current_task()), error)
