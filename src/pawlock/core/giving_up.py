"""What follows an acquisition that came to nothing: for its caller, for the server, and for later callers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pawlock.core.local_queue import ASK, Waiter, WaiterState
from pawlock.core.primitive import TOMB_MS
from pawlock.core.records import Attempt, Hold
from pawlock.core.reentry import waits_for_itself
from pawlock.core.retry import ENDLESS
from pawlock.core.runtime import Fault
from pawlock.errors import AcquireTimeout

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan

__all__ = ["end_wait", "give_back", "timed_out"]

log: logging.Logger = logging.getLogger("pawlock.acquire")

_HOLDER_PATIENCE = 0.1


async def timed_out(engine: Engine, plan: Plan, began: float, waiter: Waiter | None) -> AcquireTimeout:
    """The error of one that has waited since ``began``, with who holds it and the place in the queue."""
    holder = waiter.holder if waiter is not None else None
    waited = engine.runtime.now() - began
    if holder is None:
        # Asked only now that it is needed: a waiter knows its place in the queue, not the holder.
        try:
            look = await engine.runtime.call(
                plan.primitive.inspect(0), engine.within(min(_HOLDER_PATIENCE, plan.options.answer_within))
            )
            holder = look.holder or None
        except Fault as fault:
            log.debug("the holder of %r could not be read: %s", plan.primitive.name, fault.text)
    engine.count("timeouts")
    name = plan.primitive.name
    endless = ENDLESS if waiter is not None and waiter.endless else None
    by = ", ".join(filter(None, (holder, endless)))
    text = f"acquire {name!r}: still held after {round(waited, 3):.3g} s{by and f' by {by}'}"
    own = waits_for_itself(engine, plan.primitive, engine.runtime.who())
    text += own and f"; {own}"
    return AcquireTimeout(
        text,
        name=name,
        holder=holder,
        waited=waited,
        position=waiter.rank if waiter is not None else None,
        outcomes=waiter.outcomes if waiter is not None else None,
    )


async def end_wait(engine: Engine, plan: Plan, attempt: Attempt) -> None:
    """End a wait on the server whose time is up: nothing of it may be left there when the caller goes on."""
    waiter = _pass_turn(engine, attempt)
    if waiter is None:
        return
    tomb_ms = TOMB_MS if waiter.unanswered else 0
    try:
        await engine.runtime.call(plan.primitive.leave(waiter.token, tomb_ms, 0), plan.options.answer_within)
    except BaseException as error:
        engine.post(plan.primitive.leave(waiter.token, TOMB_MS, 0))
        if not isinstance(error, Fault):
            raise


def give_back(engine: Engine, plan: Plan, attempt: Attempt, error: BaseException) -> None:
    """Give back whatever an acquisition has that ends with an error: refused, cancelled or interrupted. Sends nothing."""
    lease = attempt.lease
    if attempt.again:
        lease.take_level()
        return
    with engine.guard:
        if attempt.queue is not None:
            attempt.queue.leave(attempt)
    hold = attempt.given if isinstance(attempt.given, Hold) else attempt.hold
    if hold is not None:
        if lease is not None and not lease.released:
            lease.released = True
            engine.count_end(hold, "background")
        engine.give_back(hold, attempt.number, attempt.who)
        # Interrupted before the turn was the hold's.
        engine.end_turn(attempt.queue, attempt)
        return
    for waiter in (attempt.waiter, attempt.given):
        if isinstance(waiter, Waiter):
            waiter.note_unconfirmed(error)
    waiter = _pass_turn(engine, attempt)
    if waiter is not None:
        engine.post(plan.primitive.leave(waiter.token, TOMB_MS, 0))


def _pass_turn(engine: Engine, attempt: Attempt) -> Waiter | None:
    """Give a turn to who sleeps first, with the ticket if there is one; else what is to be left on the server."""
    waiter = attempt.given if isinstance(attempt.given, Waiter) else attempt.waiter
    with engine.guard:
        goes_on = waiter is not None and waiter.state is WaiterState.QUEUED and not waiter.late_grants
        queue, attempt.last = attempt.queue, waiter
        # Before the next one has it: two that end one ticket would take it from each other.
        attempt.queue, attempt.given, attempt.waiter = None, None, None
        woken = [] if queue is None else queue.end(attempt, waiter if goes_on else ASK)
    for place in woken:
        place.unpark()
    if waiter is None or (goes_on and woken) or (waiter.state is WaiterState.BUSY and not waiter.unanswered):
        return None
    return waiter if waiter.sent else None
