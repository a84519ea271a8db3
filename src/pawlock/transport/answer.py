"""What a task awaits of its connection: a future that wakes its task at once.

An ``asyncio.Future`` wakes its task through the event loop: one more turn of the loop, with one more look for readable
sockets, between a reply and the task that waits for it. A connection hands out replies where no task runs, so there the
task may take its next step right away. A cancel, which may come from another task, goes through the loop as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

__all__ = ["Answer"]

T = TypeVar("T")


class Answer(Generic[T]):
    """A result that is awaited by one task; speaks to ``asyncio.Task`` like a future.

    Args:
        loop: The loop of the task.
    """

    # As attributes of the class, so that only what differs is set.
    ended: bool = False
    """True once it has a result, an error, or was cancelled."""
    _asyncio_future_blocking: bool = False
    _callback: Callable[[Answer[T]], object] | None = None
    _context: Context | None = None
    _others: list[tuple[Callable[[Answer[T]], object], Context | None]] | None = None
    _error: BaseException | None = None
    value: T

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Tasks look here where there is no ``get_loop``, which would be one more call for each answer.
        self._loop = loop

    def give(self, result: T) -> bool:
        """Set the result, without waking; False if it has ended already."""
        if self.ended:
            return False
        self.ended = True
        self.value = result
        return True

    def fail(self, error: BaseException) -> None:
        """Set an error unless it has ended already, and wake the task in the next turn of the loop."""
        if not self.ended:
            self._error = error
            self.ended = True
        # Also if it has: a signal handler may have raised before it was woken.
        self.wake_soon()

    def wake(self) -> None:
        """Let the task take its next step, now. Only where no task of the loop is running."""
        callback, context = self._callback, self._context
        if callback is None or self._others is not None:
            self.wake_soon()
            return
        self._callback = None
        if context is None:
            callback(self)
        else:
            context.run(callback, self)

    def wake_soon(self) -> None:
        """Let the task take its next step in the next turn of the loop; from anywhere, any number of times."""
        callback = self._callback
        if callback is not None:
            self._loop.call_soon(callback, self, context=self._context)
            # After that: a signal handler may have raised before the loop knew of it, and then it is done again.
            self._callback = None
        others, self._others = self._others, None
        for other, context in others or ():
            self._loop.call_soon(other, self, context=context)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.ended:
            self._asyncio_future_blocking = True
            yield self
        if self._error is not None:
            raise self._error
        return self.value

    # What asyncio.Task asks of a future -------------------------------------------------------------------------

    def done(self) -> bool:
        """The same as ``ended``."""
        return self.ended

    def add_done_callback(
        self, callback: Callable[[Answer[T]], object], *, context: Context | None = None
    ) -> None:
        """Call back once it has ended."""
        if self.ended:
            self._loop.call_soon(callback, self, context=context)
        elif self._callback is None:
            self._callback, self._context = callback, context
        else:
            self._others = [*(self._others or ()), (callback, context)]

    def cancel(self, msg: Any = None) -> bool:
        """End without a result; False if it has ended already."""
        if self.ended:
            return False
        self.fail(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True

    def cancelled(self) -> bool:
        """True if it was cancelled."""
        return isinstance(self._error, asyncio.CancelledError)

    def exception(self) -> BaseException | None:
        """What it ended with instead of a result."""
        return self._error

    def result(self) -> T:
        """The result; raises what it ended with instead."""
        if self._error is not None:
            raise self._error
        if not self.ended:
            raise asyncio.InvalidStateError("there is no result yet")
        return self.value
