"""Waiting for a name that somebody of the same client has: in the local queue, behind one ticket for all.

A caller is a ``LocalWaiter`` from its first step to its lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.acquire.giving_up import timed_out
from pawlock.core.retry import STOP_POLL, check_stop
from pawlock.errors import ClientClosed

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.runtime import Runtime
    from pawlock.core.state.local_queue import LocalWaiter
    from pawlock.core.state.plan import Attempt, Plan

__all__ = ["await_turn", "local_patience", "remaining"]


async def await_turn(
    engine: Engine,
    plan: Plan,
    local_waiter: LocalWaiter,
    attempt: Attempt,
) -> None:
    """Sleep until a turn was passed to a local waiter.

    Raises:
        NotAcquired: The time is up, or the caller was asked to stop.
        ClientClosed: The client was closed.
    """
    local_queue, runtime = local_waiter.local_queue, engine.runtime
    until, stop = attempt.until, attempt.stop
    # What happened before the call, and woke it, is checked first.
    woken = True
    while True:
        if local_queue is not None and not woken:
            local_queue.take_orphan(local_waiter, runtime.new_token())
        if local_waiter.served:
            return
        if local_waiter.closed or engine.activity.closed:
            raise ClientClosed("the client was closed while waiting", name=plan.primitive.name)
        check_stop(stop, plan.primitive.name)
        if local_waiter.wait_error is not None:
            raise local_waiter.wait_error
        over = until is not None and not woken and runtime.now() >= until
        if over and local_queue is not None and local_queue.withdraw(local_waiter):
            raise await timed_out(engine, plan, attempt.began, None)
        woken = await local_waiter.parker.park(local_patience(runtime, attempt))


def local_patience(runtime: Runtime, attempt: Attempt) -> float | None:
    """How long a local waiter sleeps before it checks again."""
    pause = runtime.recheck_after if attempt.stop is None else STOP_POLL
    left = remaining(runtime, attempt.until)
    return left if pause is None or (left is not None and left < pause) else pause


def remaining(runtime: Runtime, until: float | None) -> float | None:
    """Seconds until a time; None for never."""
    return None if until is None else max(1e-9, until - runtime.now())
