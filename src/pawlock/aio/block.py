"""How a block of a task begins and ends. A loss cancels a task; a signal handler may interrupt the loop's thread."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pawlock._block import Block, InnerBlock, Leaving, Shared, begun
from pawlock._cancel import CancelScope
from pawlock._inside import engine_here
from pawlock.core.lease.base import BaseLease
from pawlock.core.lease.record import HeldLease, Losable
from pawlock.core.release import release
from pawlock.errors import NotSupported

__all__ = [
    "Ended",
    "Entered",
    "LeaseBlock",
    "LockBlock",
    "OwnBlock",
    "check_home",
    "enter_block",
    "leave_block",
]

L_co = TypeVar("L_co", bound=BaseLease, covariant=True)

X = TypeVar("X", bound=Losable)
E = TypeVar("E")
_Y = TypeVar("_Y")
_End = Callable[[_Y, BaseException | None], Awaitable[None]]


def enter_block(lease: Losable, block: Block | None) -> None:
    """Note in which block of the present task a lease is; a loss cancels the task there."""
    check_home(lease, "enter the block of")
    lease.bind(block)
    CancelScope.enter(lease)


def check_home(lease: Losable, doing: str) -> None:
    """Raise ``NotSupported`` in another event loop than the lease's: what it would wait for belongs to that one."""
    home = getattr(lease.engine.runtime, "loop", None)
    if home is not None and home is not asyncio.get_running_loop():
        text = (
            "the lease was acquired in another event loop: call it there (asyncio.run_coroutine_threadsafe)"
        )
        raise NotSupported(f"{doing} {lease.name!r}: {text}", name=lease.name)


async def leave_block(lease: X, error: BaseException | None, end: _End[X]) -> None:
    """End a block by ``end``, and report a loss."""
    await CancelScope.leave(lease, error, end)


class Ended:
    """What ends its blocks by ``_leave``."""

    __slots__ = ()

    if TYPE_CHECKING:

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...
    else:
        __aexit__ = Leaving()

    @abstractmethod
    async def _leave(self, block: Block | None, error: BaseException | None, /) -> None:
        """End a block."""


class Entered(Ended, Shared[E]):
    """A shared object, in whose blocks tasks are."""

    __slots__ = ()
    _client: Any

    def _who(self) -> object:
        return engine_here(self._client).runtime.who()

    async def _leave(self, block: Block | None, error: BaseException | None) -> None:
        if block is None or block.held is None:
            held = self._taken()
        else:
            held, block.held = block.held[0], None
        await self._end(held, error)

    @abstractmethod
    async def _end(self, held: E, error: BaseException | None) -> None:
        """End what a block has."""


class OwnBlock(Ended):
    """A lease of one name or several: its block ends it."""

    __slots__ = ()
    _record: Any

    async def __aenter__(self) -> Self:
        enter_block(self._record, begun(self))
        return self


class LeaseBlock(BaseLease, OwnBlock):
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
        await release.release_or_raise(self._record.engine, self._record)

    async def _leave(self, _: Block | None, error: BaseException | None) -> None:
        record = self._record
        levels = record.levels
        try:
            await CancelScope.leave(record, error)
        except BaseException:
            if record.levels == levels and not record.released:
                release.abandon(record)
            raise


class LockBlock(Entered[HeldLease], Generic[L_co]):
    """A lock whose block acquires and releases it."""

    __slots__ = ()

    @abstractmethod
    def acquire(self, *args: Any, **kwargs: Any) -> Awaitable[L_co]:
        """Acquire it; see the class for each kind."""

    async def __aenter__(self) -> L_co:
        block = begun(self)
        lease = await self.acquire()
        # Without a call, after which a signal handler may run: of a re-entered lease nobody would end this level.
        record = lease._record  # noqa: SLF001 - what record_of returns
        try:
            record.bind(block)
            CancelScope.enter(record)
        except BaseException:
            release.abandon(record)
            raise
        if block is not None:
            block.held = (record,)
            if record.levels > 1:
                block.__class__ = InnerBlock
        else:
            self._entered += [(record.who, record)]
        return lease

    async def _leave(self, block: Block | None, error: BaseException | None) -> None:
        held = self._taken() if block is None or block.held is None else block.held[0]
        levels = held.levels
        try:
            if block is not None:
                block.held = None
            await CancelScope.leave(held, error)
        except BaseException:
            if held.levels == levels and not held.released:
                release.abandon(held)
            raise

    async def _end(self, held: HeldLease, error: BaseException | None) -> None:
        """See ``_leave``, which saves each block a call."""
