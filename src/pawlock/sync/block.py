"""How a block of a thread begins and ends. Signal handlers interrupt a thread; a loss cancels a task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pawlock._block import Block, InnerBlock, Leaving, Shared, begun, present_task
from pawlock._inside import engine_of
from pawlock.core.base_lease import BaseLease
from pawlock.core.lease import HeldLease, Losable, abandon, end_block
from pawlock.runtimes.threads import run

__all__ = ["Ended", "Entered", "LeaseBlock", "LockBlock", "OwnBlock", "enter_block", "leave_block"]

L_co = TypeVar("L_co", bound=BaseLease, covariant=True)
X = TypeVar("X")
_End = Callable[[X, BaseException | None], Coroutine[Any, Any, None]]


def enter_block(lease: Losable, block: Block | None) -> None:
    """Note in which block of the present thread a lease is."""
    lease.bind(block)


def leave_block(lease: X, error: BaseException | None, end: _End[X]) -> None:
    """End a block by ``end``."""
    run(end(lease, error))


class Ended:
    """What ends its blocks by ``_leave``."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...
    else:
        __exit__ = Leaving(present_task)

    @abstractmethod
    def _leave(self, block: Block | None, error: BaseException | None, /) -> None:
        """End a block."""


class Entered(Ended, Shared[X]):
    """A shared object, in whose blocks threads are."""

    __slots__ = ()
    _client: Any

    def _who(self) -> object:
        return engine_of(self._client).runtime.who()

    def _leave(self, block: Block | None, error: BaseException | None) -> None:
        if block is None or block.held is None:
            held = self._taken()
        else:
            held, block.held = block.held[0], None
        self._end(held, error)

    @abstractmethod
    def _end(self, held: X, error: BaseException | None) -> None:
        """End what a block has."""


class OwnBlock(Ended):
    """A lease of one name or several: its block ends it."""

    __slots__ = ()
    _record: Any

    def __enter__(self) -> Self:
        enter_block(self._record, begun(self))
        return self


class LeaseBlock(BaseLease, OwnBlock):
    """A lease that its block releases, if its owner did not."""

    __slots__ = ()

    def _leave(self, _: Block | None, error: BaseException | None) -> None:
        record = self._record
        levels = record.levels
        try:
            run(end_block(record, error))
        except BaseException:
            if record.levels == levels and not record.released:
                abandon(record)
            raise


class LockBlock(Entered[HeldLease], Generic[L_co]):
    """A lock whose block acquires and releases it."""

    __slots__ = ()

    @abstractmethod
    def acquire(self, *args: Any, **kwargs: Any) -> L_co:
        """Acquire it; see the class for each kind."""

    def __enter__(self) -> L_co:
        block = begun(self)
        lease = self.acquire()
        # Without a call, after which a signal handler may run: of a re-entered lease nobody would end this level.
        record = lease._record  # noqa: SLF001 - what record_of returns
        if block is not None:
            block.held = (record,)
            if record.levels > 1:
                block.__class__ = InnerBlock
        else:
            self._entered += [(record.who, record)]
        record.bind(block)
        return lease

    def _leave(self, block: Block | None, error: BaseException | None) -> None:
        held = self._taken() if block is None or block.held is None else block.held[0]
        levels = held.levels
        try:
            if block is not None:
                block.held = None
            run(end_block(held, error))
        except BaseException:
            if held.levels == levels and not held.released:
                abandon(held)
            raise

    def _end(self, held: HeldLease, error: BaseException | None) -> None:
        """See ``_leave``, which saves each block a call."""
