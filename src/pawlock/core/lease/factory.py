"""Creates the lease for every grant of the server; nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawlock.core.lease.record import HeldLease
from pawlock.core.state.records import ServerLease

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.state.plan import Plan
    from pawlock.core.state.records import Attempt, Waiter
    from pawlock.model import Grant

__all__ = ["make_lease", "own_given", "own_grant"]


def make_lease(
    engine: Engine,
    server_lease: ServerLease,
    began: float,
    *,
    counted: bool = False,
    confirmed: bool = True,
    contended: bool = False,
) -> HeldLease:
    """Create the lease of a grant: register it as held, schedule its renewal, and report it to observers.

    Args:
        engine: The client's engine.
        server_lease: What was granted; it says to whom.
        began: When the acquisition began.
        counted: Whether each acquisition counts for itself, and is not its thread's or task's.
        confirmed: False for a hand-off, which lives on its ticket's expiry until it is renewed.
        contended: Whether the acquisition had to wait for somebody.
    """
    who, leases, rhythm = server_lease.who, engine.leases, server_lease.rhythm
    server_lease.epoch = engine.epoch
    if not counted:
        leases.held[who, server_lease.primitive.key] = server_lease
    lease = HeldLease(engine, server_lease, server_lease.fence, who)
    if confirmed and rhythm is server_lease.options.renewed:
        late = leases.schedule.add(server_lease, rhythm.every, server_lease.granted_at + rhythm.every)
    else:
        late = engine.plan_service(server_lease, server_lease.granted_at, confirmed=confirmed)
    if late:
        engine.background.nudge()
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(server_lease, began, contended=contended)
    return lease


def own_grant(engine: Engine, plan: Plan, waiter: Waiter, grant: Grant, attempt: Attempt) -> HeldLease:
    """Own what the server granted to a waiter."""
    now, queue = engine.runtime.now(), attempt.queue
    hold = ServerLease(plan.primitive, plan.options, waiter.token, grant.fence, grant.valid_until, now)
    hold.unanswered = waiter.unanswered
    hold.quorum = grant.quorum
    hold.uncontended = waiter.ticket is None
    hold.who = attempt.who
    attempt.hold = hold
    if queue is not None and plan.capacity == 1:
        with engine.guard:
            hold.queue = queue
            queue.granted(attempt, hold)
    attempt.lease = lease = make_lease(
        engine, hold, attempt.began, counted=plan.counted, confirmed=grant.confirmed,
        contended=waiter.contended or attempt.parker is not None,
    )  # fmt: skip
    if queue is not None and plan.capacity > 1:
        engine.end_turn(queue, attempt)
    return lease


def own_given(engine: Engine, plan: Plan, hold: ServerLease, attempt: Attempt) -> HeldLease | None:
    """Own what another caller of this client passed on; None: it was lost on the way."""
    now, lease = engine.runtime.now(), cast("HeldLease", attempt.lease)
    lease.server_lease, lease.number, lease.fence = hold, attempt.number, hold.fence + attempt.number
    # From here on this plan says who may re-enter and who is notified of a loss.
    hold.primitive, hold.options, hold.who = plan.primitive, plan.options, attempt.who
    engine.leases.held[attempt.who, plan.primitive.key] = hold
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
