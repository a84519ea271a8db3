"""The straight way: a free name is taken in one question.

Nothing is decided here that the general way (``operations``) would decide otherwise; it is the same steps in one
piece. Most of this code runs once per acquisition and is cold when it does, so the number of functions that
it passes through is what an uncontended lock costs. Whatever is not plain is left to the general way, with all that
is known by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from pawl.core.claim import Claim, patience
from pawl.core.handover import Mark, Place
from pawl.core.runtime import Fault
from pawl.core.tenure import Tenure
from pawl.core.validity import valid_until

if TYPE_CHECKING:
    from pawl.core.engine import Engine
    from pawl.core.lease import BaseLease
    from pawl.core.operations import NewLease, Plan

__all__ = ["own_plainly", "take"]


async def take(
    engine: Engine, plan: Plan, new_lease: NewLease, who: object, mark: Mark, until: float | None
) -> BaseLease | tuple[Place, Claim] | None:
    """Ask once for a name that nobody of this client holds or waits for.

    Args:
        engine: The client's engine.
        plan: The lock; its ``plain`` says that it may come here.
        new_lease: Makes the lease of this colour.
        who: The present thread or task, which holds nothing under this key.
        mark: Lives as long as this call of the caller.
        until: When the caller gives up, on the runtime's clock, or None.

    Returns:
        The lease; or None if this is not the straight way, and nothing was done; or the place that this call speaks
        for and its claim, which has the answer if there was one.
    """
    runtime = engine.runtime
    channel = runtime.channel()
    places = engine.places._places
    if not channel or plan.spot in places:
        return None
    place = Place(plan.spot, runtime.mutex(), places, mark)
    if places.setdefault(plan.spot, place) is not place:
        return None
    claim = Claim(runtime.new_token())
    options = plan.options
    try:
        claim.sent = True
        sent_at = runtime.now()
        call = plan.primitive.acquire(
            claim.token, options.ttl_ms, options.ticket_ms,
            wait=True, block=options.block, channel=channel, max_waiters=options.max_waiters,
        )  # fmt: skip
        reply = await runtime.call(call, patience(sent_at, options, until))
        if reply[0] == b"H" and reply[2] > 0:
            until_when = valid_until(sent_at, reply[3], options.ttl_ms)
            if until_when > runtime.now():
                return own_plainly(engine, plan, new_lease, place, claim.token, reply[2], until_when, who)
        claim.answer = reply, sent_at
    except Fault as fault:
        claim.unanswered = fault.maybe_applied
    except BaseException as error:
        claim.doubt(error)
        engine.drop_claim(plan.primitive, place, claim)
        raise
    return place, claim


def own_plainly(
    engine: Engine,
    plan: Plan,
    new_lease: NewLease,
    place: Place,
    token: str,
    fence: int,
    until_when: float,
    who: object,
) -> BaseLease:
    """What ``operations._own`` does, for a grant that is confirmed and will be renewed."""
    now = engine.runtime.now()
    tenure = Tenure(plan.primitive, plan.options, token, fence, until_when, now)
    tenure.place = place
    tenure.who = who
    tenure.epoch = engine.epoch
    place.keeper = ref(tenure)
    engine.held[who, plan.primitive.key] = tenure
    lease = new_lease(engine, tenure, fence, who, 1)
    late = engine.schedule.add(tenure, tenure.every, now + tenure.every)
    if late or not engine.upkeep_runs:
        engine.wake_upkeep()
    return lease
