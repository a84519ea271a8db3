"""The straight way in: a free name is taken in one question. ``release.fast`` is the way back.

Nothing is decided here that the general way (``acquire.acquire``) would decide otherwise; it is the same steps in one
piece. Most of this code runs once per acquisition and is cold when it does, so the number of functions that it passes
through is what an uncontended lock costs. Whatever is not plain is left to the general way, with all that is known by
then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawl.core.protocol.validity import valid_until
from pawl.core.quorum.ballot import Granted, patience_until, question_of
from pawl.core.quorum.votes import GrantVotes
from pawl.core.retry import patience
from pawl.core.state.local_queue import Place
from pawl.core.state.records import Claim, Tenure

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pawl.core.keep.engine import Engine
    from pawl.core.lease.base import BaseLease, NewLease
    from pawl.core.protocol.quorum import QuorumLine, QuorumPrimitive, QuorumRuntime
    from pawl.core.protocol.runtime import Fault, Reply
    from pawl.core.state.plan import Plan

__all__ = ["ask", "begin", "claim_of", "settle", "void"]


def begin(engine: Engine, plan: Plan) -> Tenure | None:
    """Open the local queue of a name that nobody of this client holds or waits for.

    Returns:
        The tenure to ask for, which holds nothing yet; None if this is not the straight way, and nothing was done.
    """
    spot, places = plan.spot, engine.places._places
    if spot in places:
        return None
    who, token = engine.runtime.comer()
    primitive = plan.primitive
    if engine.closed or (who, primitive.key) in engine.held:
        return None
    tenure = Tenure(primitive, plan.options, token, 0, 0.0, 0.0)
    tenure.who = who
    if not plan.alone:
        # The tenure lives as long as this call of the caller, and so shows that somebody has the turn. As
        # ``Places.open`` does it: one step under the interpreter's lock, so two callers cannot both open the place.
        place = tenure.place = Place(spot, engine.guard, places, tenure)
        if places.setdefault(spot, place) is not place:
            return None
    else:
        tenure.spot = plan.run
    return tenure


def ask(
    engine: Engine, tenure: Tenure, sent_at: float, until: float | None
) -> Reply | Awaitable[Reply] | None:
    """Ask for a tenure that is noted as under way; None if there is no connection, and nothing was sent."""
    line = engine.runtime.line()
    # Looked at now: a close that did not see this call under way has closed the client by then.
    if line is None or engine.closed:
        return None
    options = tenure.options
    if engine.quorum is not None:
        return _ask_all(engine, tenure, cast("QuorumLine", line), sent_at, until)
    call = tenure.primitive.acquire(
        tenure.token, options.life_ms, options.ticket_ms,
        wait=True, block=options.block, channel=line.channel, max_waiters=options.max_waiters,
    )  # fmt: skip
    return line.ask(call, options.request_timeout if until is None else patience(sent_at, options, until))


def _ask_all(
    engine: Engine, tenure: Tenure, line: QuorumLine, sent_at: float, until: float | None
) -> Reply | Awaitable[Reply]:
    nodes = cast("QuorumRuntime", engine.runtime)
    primitive = cast("QuorumPrimitive", tenure.primitive)
    call = question_of(nodes, primitive, tenure.token, tenure.options, sent_at, wait=True)
    votes = GrantVotes(len(nodes.nodes), call.plain, patience_until(nodes, sent_at, until))
    return line.vote(call, votes, nodes.node_timeout)


def settle(
    engine: Engine, tenure: Tenure, new_lease: NewLease, reply: Reply, sent_at: float
) -> BaseLease | None:
    """Own what a plain yes grants: confirmed, and to be renewed; None for every other answer."""
    if reply[0] != b"H" or reply[2] <= 0:
        return None
    options = tenure.options
    settings = engine.quorum
    now = engine.runtime.now()
    if settings is None:
        left_ms = reply[3] - options.delay_ms
        until = (
            sent_at + options.lasts
            if left_ms >= options.ttl_ms
            else valid_until(sent_at, left_ms, options.ttl_ms)
        )
    else:
        until = settings.valid_until(sent_at, reply[3] - options.delay_ms, options.ttl_ms)
        nodes = cast("QuorumRuntime", engine.runtime)
        drift = settings.drift(options.ttl)
        tenure.quorum = Granted(reply[4], nodes.sender(), nodes.nodes, drift, until - now, now)
    if until <= now:
        return None
    tenure.fence = reply[2]
    tenure.valid_until = until
    tenure.granted_at = now
    tenure.epoch = engine.epoch
    engine.held[tenure.who, tenure.primitive.key] = tenure
    lease = new_lease(engine, tenure, tenure.fence, tenure.who, 1)
    if engine.schedule.add(tenure, tenure.every, now + tenure.every) or not engine.upkeep_runs:
        engine.wake_for(tenure)
    return lease


def void(engine: Engine, tenure: Tenure) -> None:
    """Undo a lease that was made of a tenure and that nobody got; its token is for the caller to give back."""
    lease = tenure.lease() if tenure.lease is not None else None
    if lease is not None:
        lease._released = True
    engine.end(tenure)
    engine.forget_holder(tenure, tenure.who)


def claim_of(tenure: Tenure, answer: Reply | Fault | None, sent_at: float) -> Claim:
    """What the general way goes on with: the token, and what became of its first question.

    Args:
        tenure: What was asked for.
        answer: The reply; the fault; or None if it is not known whether the question ever went out.
        sent_at: When it was asked.
    """
    claim = Claim(tenure.token)
    claim.sent = True
    if isinstance(answer, list):
        claim.answer = answer, sent_at
    else:
        claim.unanswered = answer is None or answer.maybe_applied
    return claim
