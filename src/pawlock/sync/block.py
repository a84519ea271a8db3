"""How a block of a thread begins and ends. Signal handlers interrupt a thread; a loss cancels a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pawlock._inside import engine_of
from pawlock.core.lease.base import BaseLease, take_entered
from pawlock.core.lease.record import HeldLease
from pawlock.core.release import release
from pawlock.errors import Reentered
from pawlock.model import Release
from pawlock.runtimes.threads import run

if TYPE_CHECKING:
    from pawlock.sync.context import Context

__all__ = ["Entered", "LeaseBlock", "LockBlock", "finish", "leave_block"]

L_co = TypeVar("L_co", bound=BaseLease, covariant=True)
X = TypeVar("X")
_End = Callable[[X, BaseException | None], Coroutine[Any, Any, None]]


def finish(lease: X, end: Callable[[X], Coroutine[Any, Any, None]], cut_short: Callable[[X], object]) -> None:
    """End a lease by ``end``; interrupted before that has begun, ``cut_short`` ends it in the background."""
    try:
        run(end(lease))
    except BaseException:
        cut_short(lease)
        raise


def leave_block(
    lease: X, error: BaseException | None, end: _End[X], cut_short: Callable[[X], object]
) -> None:
    """End a block by ``end``; what a signal handler interrupts before that has begun is ended by ``cut_short``."""
    try:
        run(end(lease, error))
    except BaseException:
        cut_short(lease)
        raise


class Entered(Generic[X]):
    """Who is in the blocks of an object that is shared, and with what."""

    __slots__ = ()
    _client: Context
    _entered: list[tuple[object, X]]

    def _leave(
        self,
        error: BaseException | None,
        end: Callable[[X, BaseException | None], None],
        cut_short: Callable[[X], object],
    ) -> None:
        """End the block that the present thread entered last."""
        found: tuple[X] | None = None
        try:
            found = (self._take(),)
            end(found[0], error)
        except BaseException:
            # Interrupted before it was taken: it would stay in the list, and its lease would be renewed indefinitely.
            cut_short(self._take() if found is None else found[0])
            raise

    def _take(self) -> X:
        return take_entered(self._entered, engine_of(self._client).runtime.who())


class LeaseBlock(BaseLease):
    """A lease that its block releases, or its owner."""

    __slots__ = ()

    def release(self) -> None:
        """Release the lock; the next waiter gets it immediately.

        Raises:
            NotHeld: It was already lost or released; nothing was changed.
            BackendError: The server did not answer, or refused; the TTL frees the lock at the latest.
        """
        record = self._record
        levels = record.levels
        try:
            outcome = run(release.release(record.engine, record))
            if outcome is not Release.RELEASED:
                release.raise_outcome(record, outcome)
        except Reentered:
            raise
        except BaseException:
            release.cut_short(record, levels)
            raise

    def __enter__(self) -> Self:
        if not self._record.server_lease.primitive.transferable:
            self._record.bind()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        record = self._record
        levels = record.levels
        try:
            run(release.end_block(record, error))
        except BaseException:
            release.cut_short(record, levels)
            raise


class LockBlock(ABC, Generic[L_co]):
    """A lock whose block acquires and releases it."""

    __slots__ = ()
    _entered: list[tuple[object, HeldLease]]

    @abstractmethod
    def acquire(self, *args: Any, **kwargs: Any) -> L_co:
        """Acquire it; see the class for each kind."""

    def __enter__(self) -> L_co:
        lease = self.acquire()
        # No call here: a signal handler may run there, and nobody would leave the block that was not begun.
        record = lease._record  # noqa: SLF001 - what record_of returns, without a call
        record.server_lease.owner.user = record.who
        self._entered += [(record.who, record)]
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        record: HeldLease | None = None
        levels = 1
        try:
            record = take_entered(self._entered, self._entered[0][1].engine.runtime.who())
            levels = record.levels
            run(release.end_block(record, error))
        except BaseException:
            if record is None:
                # Interrupted before it was taken: it would stay in the list, and be renewed indefinitely.
                record = take_entered(self._entered, self._entered[0][1].engine.runtime.who())
                levels = record.levels
            release.cut_short(record, levels)
            raise
