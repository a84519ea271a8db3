"""Owning what a waiter was handed by another caller of the same client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.model import LeaseState

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.lease.record import HeldLease
    from pawlock.core.state.plan import Plan
    from pawlock.core.state.records import Handed

__all__ = ["own"]


def own(engine: Engine, plan: Plan, handed: Handed, lease: HeldLease, began: float) -> bool:
    """Own what was handed over; False if it was lost on the way.

    Args:
        engine: The client's engine.
        plan: The lock.
        handed: What it was handed.
        lease: One that was made beforehand, of nothing.
        began: When it was asked for.
    """
    now = engine.runtime.now()
    server_lease = handed.server_lease
    if server_lease is None:
        return False
    lease.server_lease = server_lease
    lease.number = handed.number
    lease.fence = handed.fence
    # From here on this plan says who may re-enter and who is notified of a loss.
    server_lease.primitive, server_lease.options, server_lease.owner.who = (
        plan.primitive,
        plan.options,
        lease.who,
    )
    engine.leases.held[lease.who, plan.primitive.key] = server_lease
    lease.released = False
    server_lease.owner.lease = handed.lease
    # In this order: a loss from here on finds the lease.
    state = server_lease.state
    if (state is not LeaseState.HELD and state is not LeaseState.SUSPECT) or now >= server_lease.valid_until:
        lease.released = True
        return False
    engine.reports.counters["handed_over"] += 1
    if plan.options.max_hold is not None:
        engine.limit_hold(server_lease, now + plan.options.max_hold)
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(server_lease, began, contended=True)
        engine.reports.observer.counted("handed_over")
    return True
