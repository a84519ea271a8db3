"""How a block of a task begins and ends. A loss cancels a task; a signal handler may interrupt the loop's thread."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pawlock._cancel import CancelScope
from pawlock._inside import engine_here
from pawlock.core.lease.base import BaseLease, take_entered
from pawlock.core.lease.record import HeldLease, Losable
from pawlock.core.release import release
from pawlock.errors import NotSupported
from pawlock.model import Release

if TYPE_CHECKING:
    from pawlock.aio.context import AsyncContext

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
    """End a lease by ``end``; interrupted before that has begun, ``cut_short`` ends it in the background."""
    try:
        await end(lease)
    except BaseException:
        cut_short(lease)
        raise


async def leave_block(
    lease: X, error: BaseException | None, end: _End[X], cut_short: Callable[[X], object]
) -> None:
    """End a block by ``end``, and report a loss; interrupted before that has begun, ``cut_short`` ends it."""
    try:
        await CancelScope.leave(lease, error, end)
    except BaseException:
        cut_short(lease)
        raise


class Entered(Generic[E]):
    """Who is in the blocks of an object that is shared, and with what."""

    __slots__ = ()
    _client: AsyncContext
    _entered: list[tuple[object, E]]

    async def _leave(
        self, error: BaseException | None, end: _End[E], cut_short: Callable[[E], object]
    ) -> None:
        """End the block that the present task entered last."""
        found: tuple[E] | None = None
        try:
            found = (self._take(),)
            await end(found[0], error)
        except BaseException:
            # Interrupted before it was taken: it would stay in the list, and its lease would be renewed indefinitely.
            cut_short(self._take() if found is None else found[0])
            raise

    def _take(self) -> E:
        return take_entered(self._entered, engine_here(self._client).runtime.who())


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
        record = self._record
        levels = record.levels
        try:
            outcome = await release.release(record.engine, record)
            if outcome is not Release.RELEASED:
                release.raise_outcome(record, outcome)
        except BaseException:
            release.cut_short(record, levels)
            raise

    async def __aenter__(self) -> Self:
        check_home(self._record, "enter the block of")
        if not self._record.server_lease.primitive.transferable:
            self._record.bind()
        CancelScope.enter(self._record)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        record = self._record
        levels = record.levels
        try:
            await CancelScope.leave(record, error)
        except BaseException:
            release.cut_short(record, levels)
            raise


class LockBlock(ABC, Generic[L_co]):
    """A lock whose block acquires and releases it."""

    __slots__ = ()
    _entered: list[tuple[object, HeldLease]]

    @abstractmethod
    def acquire(self, *args: Any, **kwargs: Any) -> Awaitable[L_co]:
        """Acquire it; see the class for each kind."""

    async def __aenter__(self) -> L_co:
        lease = await self.acquire()
        # No call here: a signal handler may run there, and nobody would leave the block that was not begun.
        record = lease._record  # noqa: SLF001 - what record_of returns, without a call
        try:
            if not record.server_lease.primitive.transferable:
                record.bind()
            CancelScope.enter(record)
        except BaseException:
            release.cut_short(record, record.levels)
            raise
        self._entered += [(record.who, record)]
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        record: HeldLease | None = None
        levels = 1
        try:
            record = take_entered(self._entered, asyncio.current_task())
            levels = record.levels
            await CancelScope.leave(record, error)
        except BaseException:
            if record is None:
                # Interrupted before it was taken: it would stay in the list, and be renewed indefinitely.
                record = take_entered(self._entered, asyncio.current_task())
                levels = record.levels
            release.cut_short(record, levels)
            raise
