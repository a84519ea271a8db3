"""How a loss stops the body of an ``async with``: its task is cancelled, and the block raises ``LeaseLost``.

Rules, after ``asyncio.timeout``:

1. The number of cancel requests is remembered at entry; ``CancelledError`` becomes ``LeaseLost`` only if ours is the
   only one on top of it. An outside cancel is passed on as it is.
2. A block that is being left is not cancelled any more. A cancel that was requested but not yet delivered is taken
   back by letting it arrive inside the exit; otherwise it would hit the user's next await outside the block.
3. The body's own exception wins; the loss goes into its notes.
4. While an async generator that holds the lease stands at its ``yield``, its task is at work in another body, which a
   cancel would end without a word (PEP 789): it is cancelled once it is back in the generator, and sleeps there. A
   generator that ``asynccontextmanager`` made a context manager is the block of its user, as any other.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from inspect import CO_ASYNC_GENERATOR
from typing import TYPE_CHECKING, Any

from pawlock.core.lease import end_block
from pawlock.errors import LeaseLost
from pawlock.model import LeaseState

if TYPE_CHECKING:
    from pawlock.core.lease import Losable

__all__ = ["CancelScope"]


_End = Callable[[Any, BaseException | None], Awaitable[None]]

_ENTERS = ("enter", "enter_block", "__aenter__", "enter_async_context")
"""Functions that enter a block for their caller."""

_WAITS = ("cr_await", "ag_await", "gi_yieldfrom")
"""What a coroutine or generator sleeps in, by its kind."""

_LEADS_ON = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable")
"""Types of what a task may sleep in that do not say what they are the way to: the first thing that they refer to."""

_LOOKS_AGAIN = 0.01


def _generator() -> int:
    """The ``id`` of the frame of the async generator in which a block begins; 0 if it begins in none."""
    frame = sys._getframe(1)
    while (caller := frame.f_back) is not None:
        if frame.f_code.co_flags & CO_ASYNC_GENERATOR:
            if caller.f_code.co_name not in _ENTERS:
                return id(frame)
        elif frame.f_code.co_name not in _ENTERS:
            # A function has not ended while its block lasts.
            return 0
        frame = caller
    return 0


def _is_in(task: asyncio.Task[object], generator: int) -> bool:
    """Whether a task sleeps in a generator, or in what that awaits."""
    at: Any = task.get_coro()
    while at is not None and id(getattr(at, "ag_frame", at)) != generator:
        if type(at).__name__ in _LEADS_ON:
            at = gc.get_referents(at)[0]
        else:
            at = next((getattr(at, name) for name in _WAITS if hasattr(at, name)), None)
    return at is not None


class CancelScope:
    """One task inside one block of one lease."""

    __slots__ = ("_cancelling", "_generator", "leaving", "requested", "task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self._cancelling = task.cancelling()
        self._generator = 0
        self.requested = False
        self.leaving = False

    @staticmethod
    def enter(lease: Losable) -> None:
        """Watch a lease for the present task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("async with needs a running asyncio task")
        scope = CancelScope(task)
        try:
            scope._generator = _generator()
            if lease.scopes is None:
                lease.scopes = []
            lease.scopes.append(scope)
            lease.watch(scope.cancel)
            if lease.state is LeaseState.LOST:
                scope.cancel()
        except BaseException:
            # A signal handler raised: the block is not begun, and nobody leaves it.
            scope.drop(lease)
            raise

    def cancel(self) -> None:
        """The lease is lost: cancel the task while it is inside."""
        if self.leaving or self.requested or self.task.done():
            return
        if self._generator and not _is_in(self.task, self._generator):
            self._cancel_inside()
            return
        self.requested = True
        self.task.cancel(msg="the pawlock lease was lost")

    def _cancel_inside(self) -> None:
        """Look again once the task has made a step."""
        sleeps: asyncio.Future[object] | None = getattr(self.task, "_fut_waiter", None)
        if sleeps is None:
            self.task.get_loop().call_later(_LOOKS_AGAIN, self.cancel)
        else:
            # Called behind the task, which has asked for it before.
            sleeps.add_done_callback(lambda _: self.cancel())

    def drop(self, lease: Losable) -> None:
        """Watch no more; safe to repeat."""
        self.leaving = True
        if lease.scopes and self in lease.scopes:
            lease.scopes.remove(self)
        lease.unwatch(self.cancel)

    @staticmethod
    async def leave(lease: Losable, error: BaseException | None, end: _End = end_block) -> None:
        """End the block: release (or what else ``end`` does), and report a lock loss."""
        task, scopes = asyncio.current_task(), lease.scopes
        if not scopes:
            await end(lease, error)
            return
        scope = scopes[-1]
        if scope.task is not task:
            scope = ([one for one in scopes if one.task is task] or scopes)[-1]
        scope.drop(lease)
        ours = False
        if scope.requested and scope.task is task:
            try:
                ours = await scope.take_back(error)
            except asyncio.CancelledError as outside:
                await end(lease, outside)
                raise
        if ours:
            await scope.leave_lost(lease, error, end)
            return
        try:
            await end(lease, error)
        except LeaseLost:
            # Nothing of a loss awaits: a cancel from outside that has not arrived yet does here, and goes first.
            await asyncio.sleep(0)
            raise

    async def take_back(self, error: BaseException | None) -> bool:
        """Undo our cancel request; True unless another one is pending as well."""
        if not isinstance(error, asyncio.CancelledError):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if self.task.uncancel() > self._cancelling:
                    raise
                return True
        return self.task.uncancel() <= self._cancelling

    async def leave_lost(self, lease: Losable, error: BaseException | None, end: _End) -> None:
        body_error = None if isinstance(error, asyncio.CancelledError) else error
        try:
            await end(lease, body_error)
        except LeaseLost as lost:
            raise lost from (error if body_error is None else None)
        if isinstance(error, asyncio.CancelledError):
            # on_exit="warn", or the body released it itself: the cancel was ours and says the same.
            raise lease.loss() from error
