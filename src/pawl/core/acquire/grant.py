"""A lease made of what was granted by the server, or handed over inside the client; the first request has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from pawl.core.acquire.first_request import void
from pawl.core.lease.record import HeldLease
from pawl.core.state.records import ServerLease
from pawl.core.state.strict_handover import begin

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.state.plan import Plan
    from pawl.core.state.records import AnyLocalQueue, Handed, Waiter
    from pawl.model import Grant

__all__ = ["own_grant", "take_over"]


def own_grant(
    engine: Engine,
    plan: Plan,
    local_queue: AnyLocalQueue | None,
    waiter: Waiter,
    grant: Grant,
    who: object,
    began: float,
) -> HeldLease:
    """Own what the server granted: renewed from here on."""
    server_lease = ServerLease(
        plan.primitive, plan.options, waiter.token, grant.fence, grant.valid_until, engine.runtime.now()
    )
    server_lease.local_queue = local_queue
    server_lease.unanswered = waiter.unanswered
    server_lease.quorum = grant.quorum
    server_lease.uncontended = waiter.ticket is None
    if local_queue is not None:
        local_queue.turn_holder = ref(server_lease)
        local_queue.streak = 0
        server_lease.turn = waiter.turn
    elif waiter.strict.follow_key:
        begin(server_lease, waiter)
    server_lease.owner.who = who
    if not plan.counted:
        held_key = who, plan.primitive.key
        outer = engine.leases.held.get(held_key)
        server_lease.owner.outer = outer if outer is not None and outer.live else None
        engine.leases.held[held_key] = server_lease
    try:
        lease = HeldLease(engine, server_lease, grant.fence, who, grant.holds)
        engine.keep(server_lease, confirmed=grant.confirmed)
        if engine.reports.observer is not None:
            engine.reports.observer.acquired(server_lease, began, contended=waiter.contended)
    except BaseException:
        void(engine, server_lease)
        raise
    return lease


def take_over(
    engine: Engine,
    plan: Plan,
    handed: Handed,
    who: object,
    began: float,
) -> HeldLease | None:
    """Own a server lease that was handed over; None if it was lost on the way."""
    server_lease, fence = handed.server_lease, handed.fence
    if server_lease is None:
        raise AssertionError("a caller that was handed nothing owns nothing")
    now = engine.runtime.now()
    # Nobody's until it is made: interrupted before that, it is passed on by what it came to.
    lease = HeldLease(engine, server_lease, fence, who, 1)
    # Who re-enters, and who is notified of a loss, is from here on for this plan to say.
    server_lease.owner.who, server_lease.primitive, server_lease.options = who, plan.primitive, plan.options
    if not server_lease.live or engine.expired(server_lease, now):
        lease.released = True
        return None
    if plan.options.max_hold is not None:
        engine.limit_hold(server_lease, now + plan.options.max_hold)
    if server_lease.local_queue is not None:
        server_lease.local_queue.turn_holder = ref(server_lease)
    engine.leases.held[who, plan.primitive.key] = server_lease
    engine.reports.counters["handed_over"] += 1
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(server_lease, began, contended=True)
        engine.reports.observer.counted("handed_over")
    return lease
