"""What an acquisition does until it is granted: it sleeps in the local queue, listens for a hand-off, polls, or rests.

A hand-off message counts as a grant only if its expiry is not below that of the last ``Queued``; otherwise it is a hint:
ask.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, cast

from pawlock.core.faults import to_error
from pawlock.core.local_queue import Waiter, WaiterState
from pawlock.core.records import Attempt, Hold
from pawlock.core.retry import (
    NO_SIGN_WITHIN,
    STOP_POLL,
    check_stop,
    explained,
    pause_after,
    rest,
)
from pawlock.core.runtime import NO_CHANNEL, Fault, FaultKind, Request, Wakeup

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan
    from pawlock.core.primitive import PolledPrimitive

__all__ = ["go_on", "poll", "sleep", "wait_more"]


_FOREIGN_POLL = 0.05
_NO_CHANNEL_POLL = 0.05


async def sleep(engine: Engine, plan: Plan, attempt: Attempt) -> bool:
    """Sleep in the local queue until something is given; False: the caller does not wait, or its time is up.

    Raises:
        NotAcquired: The caller was asked to stop.
        ClientClosed: The client was closed.
    """
    queue, parker = attempt.queue, attempt.parker
    if queue is None or parker is None:
        return False
    _note_wait(engine, plan, attempt)
    while attempt.given is None:
        pause = _next_look(engine, plan, attempt)
        if pause is not None and pause <= 0:
            with engine.guard:
                if queue.leave(attempt):
                    attempt.queue = None
                    return False
            continue
        resting = parker.rest(pause)
        if not isinstance(resting, bool):
            await resting
    if engine.closed:
        engine.check_open(plan.primitive.name)
    return True


def _next_look(engine: Engine, plan: Plan, attempt: Attempt) -> float | None:
    """For how long to sleep; None: until somebody wakes the caller."""
    if engine.closed:
        engine.check_open(plan.primitive.name)
    if attempt.wait_error is not None:
        raise attempt.wait_error
    left = None if attempt.until is None else attempt.until - engine.runtime.now()
    if attempt.stop is None:
        return left
    check_stop(attempt.stop, plan.primitive.name)
    return STOP_POLL if left is None else min(left, STOP_POLL)


def _note_wait(engine: Engine, plan: Plan, attempt: Attempt) -> None:
    """Have who looks for deadlocks see a wait that begins now."""
    if attempt not in engine.waits:
        engine.waits[attempt] = plan.primitive, attempt.who, attempt.began
        engine.watch()


async def wait_more(engine: Engine, plan: Plan, attempt: Attempt, waiter: Waiter) -> Hold | bool:
    """Wait for a grant, or until it is time to ask again; False: the time is up, and somebody else holds it."""
    if attempt.wait_error is not None:
        raise attempt.wait_error
    if waiter.state is WaiterState.BUSY:
        return await poll(engine, plan, attempt, waiter, share=1 + engine.runtime.random())
    if waiter.state is WaiterState.QUEUED:
        hold = await _listen(engine, plan, attempt, waiter)
        return hold or engine.runtime.now() < (attempt.until or inf)
    return True


async def poll(engine: Engine, plan: Plan, attempt: Attempt, waiter: Waiter, *, share: float) -> bool:
    """Rest before the next try for a key that other programs share; False if there is none, or the time is up.

    Args:
        engine: The client's engine.
        plan: The lock.
        attempt: Who waits.
        waiter: What it asks for.
        share: For how many of the shortest pauses to rest.
    """
    runtime, primitive, pause = engine.runtime, plan.primitive, _FOREIGN_POLL * share
    left = inf if attempt.until is None else attempt.until - runtime.now()
    if not (primitive.polls and attempt.wait) or left <= 0:
        return False
    _note_wait(engine, plan, attempt)
    if waiter.holder_ms >= 0:
        pause = min(pause, (waiter.holder_ms + 1) / 1000)
    tries = left > _FOREIGN_POLL
    # The last question comes early enough for its answer.
    pause = min(pause, left - _FOREIGN_POLL) if tries else left
    hears = cast("PolledPrimitive", primitive).hears
    try:
        await (runtime.sleep(pause) if hears is None else runtime.hear(hears, pause))
    except Fault as fault:
        raise to_error(fault, primitive.name, "acquire") from fault
    check_stop(attempt.stop, primitive.name)
    if attempt.wait_error is not None:
        raise attempt.wait_error
    return tries


async def go_on(
    engine: Engine,
    plan: Plan,
    attempt: Attempt,
    waiter: Waiter,
    fault: Fault,
    call: Request | None,
    asked_at: float,
    before: WaiterState,
) -> bool:
    """Rest after a question without an answer; False: it was held ``before``, and there is no time for another."""
    primitive, until = plan.primitive, attempt.until
    _note_fault(waiter, fault)
    was_held = before is WaiterState.BUSY or before is WaiterState.QUEUED
    if was_held and fault.maybe_applied and until is not None:
        left = until - engine.runtime.now()
        if left < NO_SIGN_WITHIN and until - asked_at < engine.within(NO_SIGN_WITHIN):
            # It was held a moment ago, and the time is up before an answer can be expected: no outage.
            await rest(engine, max(0.0, left), primitive.name, "acquire")
            return False
    why = await explained(engine, call, fault) if call is not None else fault
    retry, doing = waiter.failing(), f"acquire {primitive.kind}"
    pause = pause_after(engine, why, retry, plan.options, until, doing, primitive.name, asked_at)
    await rest(engine, pause, primitive.name, "acquire")
    return True


async def _listen(engine: Engine, plan: Plan, attempt: Attempt, waiter: Waiter) -> Hold | None:
    runtime, name, stop = engine.runtime, plan.primitive.name, attempt.stop
    _note_wait(engine, plan, attempt)
    timeout = _patience(engine, plan, waiter)
    if attempt.until is not None:
        timeout = min(timeout, max(0.0, attempt.until - runtime.now()))
    end = runtime.now() + timeout
    while True:
        left = end - runtime.now()
        pause = max(0.0, left if stop is None else min(left, STOP_POLL))
        try:
            wakeup = await runtime.wait_wakeup(waiter.token, pause)
        except Fault as fault:
            raise to_error(fault, name, "acquire") from fault
        if wakeup is not None:
            return _check(engine, plan, waiter, wakeup)
        check_stop(stop, name)
        if stop is None or left <= STOP_POLL or runtime.channel() == "":
            return None


def _check(engine: Engine, plan: Plan, waiter: Waiter, wakeup: Wakeup) -> Hold | None:
    options, now = plan.options, engine.runtime.now()
    # Asking raises the ticket's short life to the ttl, which without renewal nobody else would.
    if options.confirms or wakeup.expires_ms < waiter.expires_ms:
        return None
    if waiter.valid_until <= now + options.ticket / 4:
        return None
    hold = Hold(plan.primitive, options, waiter, wakeup.fence, waiter.valid_until, now)
    hold.confirmed = False
    return hold


def _patience(engine: Engine, plan: Plan, waiter: Waiter) -> float:
    """How long to listen before asking: a third of the ticket; the head also wakes when the holder's lease ends."""
    timeout = plan.options.ticket / 3
    if waiter.rank == 0:
        left_ms = waiter.holder_ms
        if waiter.foreign:
            timeout = min(timeout, _FOREIGN_POLL * (1 + engine.runtime.random()))
        if left_ms >= 0:
            timeout = min(timeout, (left_ms + 1) / 1000)
    if engine.runtime.channel() == NO_CHANNEL:
        timeout = min(timeout, _NO_CHANNEL_POLL * (1 + engine.runtime.random()))
    return timeout


def _note_fault(waiter: Waiter, fault: Fault) -> None:
    if fault.maybe_applied:
        waiter.unanswered = True
    elif fault.kind is FaultKind.WRONG_KEY and waiter.state is WaiterState.ASKED and not waiter.unanswered:
        # Types are checked before anything is written: there is nothing to take back.
        waiter.state = WaiterState.NEW
