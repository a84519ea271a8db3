"""The straight way: a free name is taken in one question, and given back in one where nobody of the client waits.

Nothing is decided here that the general way (``acquire``, ``release``) would decide otherwise; it is the same steps
in one piece. Most of this code runs once per acquisition and is cold when it does, so the number of functions that
it passes through is what an uncontended lock costs. Whatever is not plain is left to the general way, with all that
is known by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawl.core.acquire.queue import Claim, patience
from pawl.core.protocol.runtime import behind_subscribe
from pawl.core.protocol.validity import valid_until
from pawl.core.quorum.ballot import Granted, is_open, leave_votes, patience_until, question_of
from pawl.core.quorum.votes import GrantVotes
from pawl.core.state.local_queue import Place, Turn
from pawl.core.state.records import Tenure
from pawl.core.state.strict_handover import disperse, pass_on
from pawl.errors import PawlError
from pawl.model import LeaseState

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pawl.core.acquire.acquire import NewLease, Plan
    from pawl.core.keep.engine import Engine
    from pawl.core.lease.base import BaseLease
    from pawl.core.protocol.quorum import QuorumLine, QuorumPrimitive, QuorumRuntime
    from pawl.core.protocol.runtime import Call, Fault, Line, Reply

__all__ = ["ask", "begin", "claim_of", "cut_short", "end", "give_back", "hand_on", "settle", "void"]


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
        engine.wake_upkeep()
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


def hand_on(engine: Engine, lease: BaseLease) -> bool:
    """Pass a lease to the next who waits here; False if this is not the straight way, and nothing was done."""
    tenure = lease._tenure
    place = tenure.place
    if not (tenure.behind if place is None else place.sleepers):
        return False
    # A history notes who had it before anybody else has.
    if lease._sleepers or engine.history is not None or tenure.epoch != engine.epoch:
        return False
    granted_at = tenure.granted_at
    now = engine.runtime.now()
    try:
        if place is None:
            if not pass_on(engine, tenure, now, lease=lease):
                return False
        elif place.hand_over(tenure, now, lease=lease) is not Turn.HANDED:
            return False
        elif not tenure.lone and place.streak >= place.most:
            place.part(tenure, Claim(engine.runtime.new_token()))
        engine.forget_holder(tenure, lease._who)
        if engine.observer is not None:
            engine.observer.released(tenure.primitive, granted_at, "released")
    except BaseException:
        if lease._released:
            engine.forget_holder(tenure, lease._who)
        raise
    return True


def cut_short(engine: Engine, lease: BaseLease, error: BaseException) -> None:
    """Go on in the background with a release that a signal broke off in its first steps; else do nothing.

    An inner level of a re-entered lease is left alone: that the outer section goes on unprotected would be worse.
    """
    if not isinstance(error, PawlError) and lease._levels == 1 and not lease._inert() and lease._take_end():
        engine.finish_release(lease)


def give_back(engine: Engine, tenure: Tenure, line: Line, call: Call) -> Reply | Awaitable[Reply]:
    """Send what ``end`` gave."""
    timeout = tenure.options.request_timeout
    if tenure.quorum is None:
        return line.ask(call, timeout)
    timeout = max(timeout, cast("QuorumRuntime", engine.runtime).node_timeout)
    return cast("QuorumLine", line).vote(call, leave_votes(engine, tenure), timeout)


def end(engine: Engine, lease: BaseLease) -> Call | None:
    """End a lease that nobody of this client waits for; None if this is not the straight way, and nothing was done."""
    tenure = lease._tenure
    place, row, votes = tenure.place, tenure.row, tenure.quorum
    if row is None or tenure.unanswered or tenure.options.min_hold > 0 or lease._sleepers:
        return None
    sender = None if votes is None else votes.sender
    if votes is not None and (votes.sender[0] is None or _may_come_late(engine, votes)):
        return None
    now = engine.runtime.now()
    with engine.guard:
        if (
            lease._released
            or tenure.state is not LeaseState.HELD
            or tenure.epoch != engine.epoch
            or now >= tenure.valid_until
            or lease._levels != 1
            or (place is not None and (place.sleepers or place.turn != tenure.turn))
            # Asked again meanwhile: see ``majority.renew_votes``.
            or (votes is not None and votes.sender is not sender)
        ):
            return None
        lease._released = True
        if place is not None:
            place.closed = True
            if place.key in place.home and place.home[place.key] is place:
                del place.home[place.key]
        tenure.state = LeaseState.RELEASED
        if tenure in row:
            del row[tenure]
    # The tenure may still be seen by the upkeep: its loss is none of this lease's business any more.
    tenure.watchers = None
    engine.forget_holder(tenure, lease._who)
    if engine.rows:
        disperse(engine, tenure)
    if tenure.spot and (engine.lined or tenure.spent):
        call = tenure.leave(0, 0, tenure.options.block if engine.lined else 0)
    else:
        call = tenure.primitive.leave(tenure.token, 0, 0)
    # One request more, so only for a run of several owners: a strict hand-off stays at two requests.
    return behind_subscribe(call, engine.runtime.channel()) if tenure.used and not tenure.lone else call


def _may_come_late(engine: Engine, kept: Granted) -> bool:
    """Whether a vote that was not waited for may come behind what gives the lease back."""
    sender, drops = cast("QuorumRuntime", engine.runtime).sender()
    if sender is kept.sender[0] and drops == kept.sender[1]:
        return False
    return any(is_open(outcome) for outcome in kept.votes.outcomes)
