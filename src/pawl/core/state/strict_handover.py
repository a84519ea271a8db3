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

The answer to the request by which somebody queues is "queued", nearly always, and needs a wake-up of its thread. So
who comes while a run is on, and the message of its hand-off named as many tickets as it could hold, sends the request
and leaves the answer unread (``line_up``): it sleeps on a bell alone, and listens to no connection. Why that is right:

- Nothing follows from the answer for who is served by a run: that its ticket is queued is known from the message that
  named it. What comes with the answer is for who listens: its rank, and the least expiry of a message that counts,
  which for a ticket that was never renewed is that of any message.
- No message is for it while it sleeps so: the keeper of the run on which it relies is before it. When that run ends
  (``disperse``) the ticket that comes next is known, and its waiter is woken to listen; it is woken before that where
  the block is used up, with the last grant, so that nobody waits for it. Where the next one is not known, all are.
- One that is woken unserved, or slept for ``UNREAD_FOR``, reads its answer and goes on in the general way, in which the
  answer may be any: a grant, since all others left or died; a refusal; none, as the connection broke. So whatever
  happens to those before it, it is noticed within that time; and its ticket lives at least as long.
- An interrupted request may have queued, so its token is left with a tombstone, as any other. The answer is dropped by
  the next request of that connection, and cannot be taken for another: it has an id, or is read in its order.

A turn passes in one guarded step, see ``Engine.guard``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pawl.model import LeaseState

if TYPE_CHECKING:
    from pawl.core.state.client import ClientState
    from pawl.core.state.records import Claim, LeaseRecord, Tenure

__all__ = ["begin", "disperse", "enlist", "pass_on", "resign"]


def begin(engine: ClientState, tenure: Tenure, claim: Claim) -> None:
    """Take note of who stands behind a claim that was served."""
    tenure.spot = claim.spot
    if claim.behind:
        tenure.behind = deque(claim.behind)
        line = engine.runtime.line()
        unasked = engine.history is None and engine.quorum is None and line is not None and line.defers
        if unasked and len(claim.behind) >= tenure.options.block:
            engine.rows[tenure.primitive.key] = tenure


def disperse(engine: ClientState, tenure: Tenure) -> None:
    """A run ends: have the next in strict order listen, or all who might be, since nobody here is before them now."""
    key = tenure.primitive.key
    if key not in engine.rows:
        return
    # A list first, in one step: other threads come meanwhile.
    asleep = [claim for claim in list(engine.lined.values()) if claim.asleep == key]
    if not asleep:
        engine.rows.pop(key, None)
    first = engine.lined.get(tenure.behind[0]) if tenure.behind else None
    for claim in asleep if first is None else (first,):
        if claim.asleep:
            claim.ring()


def enlist(engine: ClientState, claim: Claim) -> bool:
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


def resign(engine: ClientState, claim: Claim) -> None:
    """The claim sleeps no more: from here on it is either served by a run or never will be."""
    # Guarded: a thread that found it there serves it in the same step.
    with engine.guard:
        if claim.token in engine.lined:
            del engine.lined[claim.token]


def pass_on(
    engine: ClientState, tenure: Tenure, now: float, number: int | None = None, lease: LeaseRecord | None = None
) -> bool:  # fmt: skip
    """Pass a tenure whose owner has done with it to the next in strict order; False if there is none here.

    Args:
        engine: The client's engine.
        tenure: What is passed on.
        now: The present.
        number: Which of its owners passes it on; None if that is sure.
        lease: What ends in the same step; then nothing at all is done unless it is passed on.
    """
    lined, used, behind = engine.lined, tenure.used, tenure.behind
    token = behind[0] if behind else ""
    may, served = token and _may_follow(tenure, now), [token]
    claim: Claim | None = None
    try:
        with engine.guard:
            if tenure.used != (used if number is None else number):
                return lease is None
            ended = lease is not None and (lease._released or lease._levels != 1)
            # Only who passes it on takes one out, and then another number is in use.
            mine = not ended and may and not tenure.shown and tenure.used == used
            if not mine or not behind or behind is not tenure.behind:
                return False
            if tenure.state is not LeaseState.HELD or token not in lined or lined[token].spot != tenure.spot:
                # Who is next asks right now, or gave up, or belongs to another client: the server knows.
                tenure.behind = None
                return False
            if lease is not None:
                lease._released, tenure.watchers = True, None
            claim = lined[token]
            tenure.spent = tenure.spent + served if tenure.spent else served
            del behind[0]
            del lined[token]
            tenure.used = claim.number = used + 1
            # Nobody's, until the one that is woken takes it: its last keeper may wait for something else by then.
            tenure.granted_at, tenure.who = now, None
            claim.fence = tenure.fence + tenure.used
            claim.tenure = tenure
        claim.ring()
        if used + 2 >= tenure.options.block:
            disperse(engine, tenure)
    except BaseException:
        if claim is not None:
            claim.ring()
        raise
    return True


def _may_follow(tenure: Tenure, now: float) -> bool:
    """Whether the rules allow the next to follow the present owner; only its state can change while it is the owner."""
    options = tenure.options
    return (
        tenure.used + 1 < options.block
        and not tenure.failures
        and not tenure.unanswered
        and tenure.valid_until - now >= (options.ticket_ttl or options.ttl) / 2
    )
