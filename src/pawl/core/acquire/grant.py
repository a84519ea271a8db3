"""A lease made of what was granted by the server, or handed over inside the client; the straight way has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from pawl.core.acquire.fast import void
from pawl.core.state.records import Tenure
from pawl.core.state.strict_handover import begin

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.lease.base import BaseLease, NewLease
    from pawl.core.state.local_queue import Sleeper
    from pawl.core.state.plan import Plan
    from pawl.core.state.records import Claim, LocalPlace
    from pawl.model import Grant

__all__ = ["own_grant", "take_over"]


def own_grant(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    place: LocalPlace | None,
    claim: Claim,
    grant: Grant,
    who: object,
    began: float,
) -> BaseLease:
    """Own what the server granted: renewed from here on."""
    tenure = Tenure(
        plan.primitive, plan.options, claim.token, grant.fence, grant.valid_until, engine.runtime.now()
    )
    tenure.place = place
    tenure.unanswered = claim.unanswered
    tenure.quorum = grant.quorum
    tenure.lone = claim.rank is None
    if place is not None:
        place.keeper = ref(tenure)
        place.streak = 0
        tenure.turn = claim.turn
    elif claim.spot:
        begin(engine, tenure, claim)
    tenure.who = who
    if not plan.counted:
        spot = who, plan.primitive.key
        outer = engine.held.get(spot)
        tenure.outer = outer if outer is not None and outer.live else None
        engine.held[spot] = tenure
    try:
        lease = new_lease(engine, tenure, grant.fence, who, grant.holds)
        engine.keep(tenure, confirmed=grant.confirmed)
        if engine.observer is not None:
            engine.observer.acquired(tenure, began, contended=claim.contended)
    except BaseException:
        void(engine, tenure)
        raise
    return lease


def take_over(
    engine: Engine, plan: Plan, new_lease: NewLease, sleeper: Sleeper | Claim, who: object, began: float
) -> BaseLease | None:
    """Own a tenure that was handed over; None if it was lost on the way."""
    tenure, fence = sleeper.tenure, sleeper.fence
    if tenure is None:
        raise AssertionError("a sleeper without a tenure owns nothing")
    now = engine.runtime.now()
    # Nobody's until it is made: interrupted before that, it is passed on by what it came to.
    lease = new_lease(engine, tenure, fence, who, 1)
    # Who re-enters, and who is notified of a loss, is from here on for this plan to say.
    tenure.who, tenure.primitive, tenure.options = who, plan.primitive, plan.options
    if not tenure.live or engine.expired(tenure, now):
        lease._released = True
        return None
    if plan.options.max_hold is not None:
        engine.limit_hold(tenure, now + plan.options.max_hold)
    if tenure.place is not None:
        tenure.place.keeper = ref(tenure)
    engine.held[who, plan.primitive.key] = tenure
    engine.counters["handed_over"] += 1
    if engine.observer is not None:
        engine.observer.acquired(tenure, began, contended=True)
        engine.observer.counted("handed_over")
    return lease
