"""How a loss stops the body of an ``async with``: its task is cancelled, and the block raises ``LeaseLost``.

Rules, after ``asyncio.timeout``:

1. The number of cancel requests is remembered at entry; ``CancelledError`` becomes ``LeaseLost`` only if ours is the
   only one on top of it. An outside cancel is passed on as it is.
2. A block that is being left is not cancelled any more. A cancel that was requested but not yet delivered is taken
   back by letting it arrive inside the exit; otherwise it would hit the user's next await outside the block.
3. The body's own exception wins; the loss goes into its notes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pawlock.core.lease import end_block
from pawlock.errors import LeaseLost
from pawlock.model import LeaseState

if TYPE_CHECKING:
    from pawlock.core.lease import Losable

__all__ = ["CancelScope"]


_End = Callable[[Any, BaseException | None], Awaitable[None]]


class CancelScope:
    """One task inside one block of one lease."""

    __slots__ = ("_cancelling", "leaving", "requested", "task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self._cancelling = task.cancelling()
        self.requested = False
        self.leaving = False

    @staticmethod
    def enter(lease: Losable, task: Any = None) -> None:
        """Watch a lease for a task, or the present one."""
        task = task or asyncio.current_task()
        if task is None:
            raise RuntimeError("async with needs a running asyncio task")
        scope = CancelScope(task)
        try:
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
        if not self.leaving and not self.requested and not self.task.done():
            self.requested = True
            self.task.cancel(msg="the pawlock lease was lost")

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
