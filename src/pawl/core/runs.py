"""Strict order inside one client without a round trip for each grant.

Where order is strict (``handover=0``, ``fair_lock``) each waiter has its own ticket on the server. The message of a
hand-off names the tickets that stand directly behind the one that was served, as far as they are of the same process.
As nobody can come between two tickets, the next grant is known: when the owner is done, and the waiter of the next
ticket sleeps in this client, the tenure passes to it with the next fence of the block, and no request is made. Each
such grant is the one that the server would make.

Safety: the name stays under the token of the first, whose ``valid_until`` counts for all who follow it. The tickets
that were served here stay queued, untouched, until the script that leaves that token takes them out as well. If the
client dies meanwhile, they are tickets of dead waiters, as they would be without a run.

A run ends where the next ticket is not one of a waiter asleep here, when the block of fences is used up, and when the
lease has less than half of a ticket's life left.

Ctrl-C may strike at every call, so a turn passes in a row of plain assignments with no call among them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pawl.model import LeaseState

if TYPE_CHECKING:
    from pawl.core.claim import Claim
    from pawl.core.engine import Engine
    from pawl.core.lease import BaseLease
    from pawl.core.tenure import Tenure

__all__ = ["RUN", "begin", "disband", "enlist", "hand_on", "pass_on", "resign"]

RUN = 16
"""Grants of one run, at most: the size of the block of fences that a waiter asks for."""


def begin(tenure: Tenure, claim: Claim) -> None:
    """Take note of who stands behind a claim that was served."""
    tenure.spot = claim.spot
    if claim.behind:
        tenure.behind = deque(claim.behind)


def enlist(engine: Engine, claim: Claim) -> bool:
    """Let a run serve a claim that is about to sleep, and others speak for it; False if neither could be noticed."""
    # Who waits alone has nobody before it in this client.
    if not claim.kin or claim.unanswered or len(engine.waits) <= 1:
        return False
    ring = engine.runtime.bell(claim.token)
    if ring is None:
        return False
    claim.ring = ring
    engine.lined[claim.token] = claim
    return True


def resign(engine: Engine, claim: Claim) -> None:
    """The claim sleeps no more: from here on it is either served by a run or never will be."""
    # Under the guard: a thread that found it there serves it in the same step.
    with engine.guard:
        engine.lined.pop(claim.token, None)


def hand_on(engine: Engine, lease: BaseLease) -> bool:
    """Pass a lease to the next in strict order; False if this is not the straight way, and nothing was done."""
    tenure = lease._tenure
    now = engine.runtime.now()
    claim: Claim | None = None
    try:
        with engine.guard:
            if (
                lease._released
                or lease._sleepers
                or lease._levels != 1
                or tenure.state is not LeaseState.HELD
                or tenure.epoch != engine.epoch
                or now >= tenure.valid_until
                or engine.history is not None
                or (claim := _next(engine, tenure, now)) is None
            ):
                return False
            granted_at = tenure.granted_at
            _serve(engine.lined, tenure, claim, now, lease)
        claim.ring()
        engine.forget_holder(tenure, lease._who)
        if engine.observer is not None:
            engine.observer.released(tenure.primitive, granted_at, "released")
    except BaseException:
        if claim is not None and claim.tenure is tenure:
            claim.ring()
            engine.forget_holder(tenure, lease._who)
        raise
    return True


def pass_on(engine: Engine, tenure: Tenure, now: float, number: int | None = None) -> bool:
    """Pass a tenure whose owner has done with it to the next in strict order; False if there is none here.

    Args:
        engine: The client's engine.
        tenure: What is passed on.
        now: The present.
        number: Which of its owners passes it on; None if that is sure.
    """
    claim: Claim | None = None
    try:
        with engine.guard:
            if number is not None and tenure.used != number:
                return True
            claim = _next(engine, tenure, now)
            if claim is None:
                return False
            _serve(engine.lined, tenure, claim, now)
        claim.ring()
    except BaseException:
        if claim is not None and claim.tenure is tenure:
            claim.ring()
        raise
    return True


def disband(engine: Engine, tenure: Tenure) -> None:
    """A tenure goes on elsewhere: who followed it here leaves its ticket by itself."""
    for token in tenure.spent or ():
        engine.depart(tenure.primitive, token, 0)


def _next(engine: Engine, tenure: Tenure, now: float) -> Claim | None:
    behind, options = tenure.behind, tenure.options
    if not (
        behind
        and tenure.live
        and tenure.used + 1 < options.block
        and tenure.failures == 0
        and not tenure.unanswered
        and tenure.valid_until - now >= (options.ticket_ttl or options.ttl) / 2
    ):
        return None
    claim = engine.lined.get(behind[0])
    if claim is None or claim.spot != tenure.spot:
        # It asks right now, or gave up, or belongs to another client: the server knows.
        behind.clear()
        return None
    return claim


def _serve(
    lined: dict[str, Claim], tenure: Tenure, claim: Claim, now: float, lease: BaseLease | None = None
) -> None:
    """Give a tenure to a claim, and end ``lease``; who calls must wake the claim. Under the guard."""
    # No call in here: Ctrl-C finds all of it done, or nothing.
    token = claim.token
    if lease is not None:
        lease._released = True
        tenure.watchers = None
    if tenure.spent is None:
        tenure.spent = [token]
    else:
        tenure.spent += [token]
    if tenure.behind:
        del tenure.behind[0]
    del lined[token]
    tenure.used += 1
    tenure.granted_at = now
    # Nobody's, until the one that is woken takes it: whoever had it may wait for something else by then.
    tenure.who = None
    claim.fence = tenure.fence + tenure.used
    claim.tenure = tenure
