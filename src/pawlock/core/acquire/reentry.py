"""What happens when a thread or task acquires a name that it already holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawlock.errors import DeadlockDetected
from pawlock.model import LeaseState

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.lease.record import HeldLease
    from pawlock.core.state.plan import Attempt, Plan
    from pawlock.core.state.records import ServerLease

__all__ = ["holds", "taken_again"]


def taken_again(engine: Engine, plan: Plan, mine: ServerLease, attempt: Attempt) -> HeldLease | None:
    """What an owner that holds it already gets: its lease once more, or nothing."""
    name = plan.primitive.name
    lease = cast("HeldLease | None", mine.owner.lease() if mine.owner.lease is not None else None)
    if lease is None:
        # Dropped without release, so it belongs to nobody. Its ttl or the maintenance ends it, so a caller may wait.
        return None
    if not mine.live or mine.owner.epoch != engine.epoch or engine.expired(mine, engine.runtime.now()):
        if plan.reentrant and not lease.released and mine.state is LeaseState.LOST:
            # The outer section lost its lease: counting on would hide it from the inner one.
            raise lease.lost_error()
        return None
    if plan.reentrant and mine.primitive.covers(plan.primitive):
        with engine.guard:
            if lease.released:
                return None
            lease.levels += 1
            attempt.again = lease
        return lease
    if attempt.wait:
        raise DeadlockDetected(
            f"acquire {name!r}: this thread or task holds it and would wait for itself: {plan.primitive.advice}",
            name=name,
            holder=mine.token.partition("@")[2],
            cycle=(name, name),
        )
    return None


def holds(engine: Engine, plan: Plan) -> bool:
    """Whether the present thread or task holds it by a lease that has not ended, as far as this client knows."""
    mine = engine.leases.held.get((engine.runtime.who(), plan.primitive.key))
    return (
        mine is not None
        and mine.live
        and mine.owner.epoch == engine.epoch
        and not engine.expired(mine, engine.runtime.now())
        and mine.owner.lease is not None
        and mine.owner.lease() is not None
        and mine.primitive.covers(plan.primitive)
    )
