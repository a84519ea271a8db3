"""How a task begins to acquire, and how its blocks begin and end.

A loss cancels a task; a signal handler may interrupt the loop's thread.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pawlock._block import Block, InnerBlock, Leaving, Shared, begun
from pawlock._cancel import CancelScope
from pawlock._fallback import ACQUIRE
from pawlock._hints import Unawaited
from pawlock._inside import engine_here
from pawlock.core.base_lease import BaseLease
from pawlock.core.lease import HeldLease, Losable, abandon
from pawlock.core.plan import Plan
from pawlock.core.runtime import StopSignal
from pawlock.errors import NotSupported

__all__ = [
    "Acquiring",
    "Ended",
    "Entered",
    "LeaseBlock",
    "LockBlock",
    "OwnBlock",
    "acquired",
    "check_home",
    "enter_block",
    "leave_block",
]

L = TypeVar("L")
L_co = TypeVar("L_co", bound=BaseLease, covariant=True)
O_co = TypeVar("O_co", bound="OwnBlock", covariant=True)

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
    """A lease that its block releases, if its owner did not."""

    __slots__ = ()

    async def _leave(self, _: Block | None, error: BaseException | None) -> None:
        record = self._record
        levels = record.levels
        try:
            await CancelScope.leave(record, error)
        except BaseException:
            if record.levels == levels and not record.released:
                abandon(record)
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
            abandon(record)
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
                abandon(held)
            raise

    async def _end(self, held: HeldLease, error: BaseException | None) -> None:
        """See ``_leave``, which saves each block a call."""


class Acquiring(Unawaited, Ended, Coroutine[Any, Any, O_co]):
    """An acquisition that is awaited for its lease, entered with ``async with``, or turned into a task."""

    __slots__ = ("_lease", "_operation")

    def __init__(self, operation: Coroutine[Any, Any, O_co]) -> None:
        self._operation = operation
        self._lease: O_co | None = None

    def __await__(self) -> Generator[Any, Any, O_co]:
        return self._operation.__await__()

    def send(self, value: Any, /) -> Any:
        """Go on; for the event loop."""
        return self._operation.send(value)

    def throw(self, *args: Any) -> Any:
        """Go on with an error; for the event loop."""
        return self._operation.throw(*args)

    def close(self) -> None:
        """End without a result; for the event loop."""
        self._operation.close()

    async def __aenter__(self) -> O_co:
        block = begun(self)
        lease = self._lease = await self
        enter_block(lease._record, block)  # noqa: SLF001 - for either kind of lease
        return lease

    async def _leave(self, block: Block | None, error: BaseException | None) -> None:
        if self._lease is not None:
            await self._lease._leave(block, error)  # noqa: SLF001 - its block is this one's


async def acquired(
    client: object, plan: Plan, wait: float | None, stop: StopSignal | None, *, give: Callable[[HeldLease], L]
) -> L:
    """Acquire it for the caller, with its client, which nothing else may refer to; see ``core.acquire``."""
    return await ACQUIRE[plan.options.on_unavailable](engine_here(client), plan, wait, stop, give=give)
