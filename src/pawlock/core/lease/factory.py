"""Creates the lease for every grant of the server; nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.lease.record import HeldLease

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.state.plan import Plan
    from pawlock.core.state.records import Attempt, ServerLease

__all__ = ["own_given", "own_grant"]


def own_grant(engine: Engine, plan: Plan, hold: ServerLease, attempt: Attempt) -> HeldLease:
    """Own what the server granted: register it as held, plan its renewal, and report it to observers."""
    queue, rhythm = attempt.queue, hold.rhythm
    attempt.hold, hold.who, hold.epoch = hold, attempt.who, engine.epoch
    if queue is not None and plan.capacity == 1:
        with engine.guard:
            hold.queue = queue
            queue.granted(hold)
    if not plan.counted:
        engine.held[attempt.who, plan.primitive.key] = hold
    attempt.lease = lease = HeldLease(engine, hold, attempt.who)
    if hold.confirmed and rhythm is plan.options.renewed:
        late = engine.schedule.add(hold, rhythm.every, hold.granted_at + rhythm.every)
    else:
        late = engine.plan_service(hold, hold.granted_at, confirmed=hold.confirmed)
    if late:
        engine.background.nudge()
    if engine.reports.observer is not None:
        contended = not hold.uncontended or attempt.parker is not None
        engine.reports.observer.acquired(hold, attempt.began, contended=contended)
    if queue is not None and plan.capacity > 1:
        engine.end_turn(queue, attempt)
    return lease


def own_given(engine: Engine, plan: Plan, hold: ServerLease, attempt: Attempt) -> HeldLease | None:
    """Own what another caller of this client passed on; None: it was lost on the way."""
    now = engine.runtime.now()
    lease: HeldLease = attempt.lease
    lease.server_lease, lease.number, lease.fence = hold, attempt.number, hold.fence + attempt.number
    # From here on this plan says who may re-enter and who is notified of a loss.
    hold.primitive, hold.options, hold.who = plan.primitive, plan.options, attempt.who
    engine.held[attempt.who, plan.primitive.key] = hold
    # In this order: a loss from here on finds the lease.
    lease.released = False
    if not hold.live or now >= hold.valid_until:
        lease.released = True
        engine.forget_holder(hold, attempt.who)
        engine.expired(hold, now)
        return None
    engine.reports.counters["handed_over"] += 1
    if plan.options.max_hold is not None:
        engine.limit_hold(hold, now + plan.options.max_hold)
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(hold, attempt.began, contended=True)
        engine.reports.observer.counted("handed_over")
    return lease
