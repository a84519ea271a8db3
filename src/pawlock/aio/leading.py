"""How a leader's function is run, and how a candidate pauses. A task can be cancelled, a thread cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pawlock._candidacy import POLL, Candidacy
from pawlock._inside import is_closed

__all__ = ["clock", "lead", "pause"]

L = TypeVar("L")
R = TypeVar("R")


def clock() -> float:
    """Seconds, for differences."""
    return asyncio.get_running_loop().time()


async def lead(candidacy: Candidacy, function: Callable[[L], Awaitable[R]], lease: L) -> R | None:
    """Run the function in a task of its own, so that ``stop`` can end it without ending the caller's task."""
    task = asyncio.ensure_future(function(lease))
    try:
        while not task.done() and not candidacy.stopped():
            await asyncio.wait([task], timeout=POLL if candidacy.stoppable else None)
        return task.result() if task.done() else None
    finally:
        # Lost, stopped or cancelled: the function has ended before the name is released.
        await _end(candidacy, task)


async def _end(candidacy: Candidacy, task: asyncio.Future[R]) -> None:
    """Cancel the function and wait until it has ended, also where this task is cancelled meanwhile."""
    if task.done():
        return
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as again:
            cancelled = again
    if not task.cancelled() and (error := task.exception()) is not None:
        candidacy.failed_at_end(error)
    if cancelled is not None:
        raise cancelled


async def pause(client: Any, candidacy: Candidacy, seconds: float) -> None:
    """Pause, unless it is to end."""
    until = clock() + seconds
    while (left := until - clock()) > 0 and not candidacy.stopped() and not is_closed(client):  # noqa: ASYNC110
        await asyncio.sleep(min(POLL, left))
