"""The straight way back: a lease is passed on, or given back in one question where nobody of the client waits.

As in ``acquire.fast``, the steps are those of the general way (``release.release``) in one piece, and whatever is not
plain is left to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawl.core.keep.outbox import leave_votes
from pawl.core.protocol.runtime import behind_subscribe
from pawl.core.quorum.ballot import Granted, is_open
from pawl.core.state.records import Claim, Tenure, Turn
from pawl.core.state.strict_handover import disperse, pass_on
from pawl.errors import PawlError
from pawl.model import LeaseState

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pawl.core.keep.engine import Engine
    from pawl.core.lease.base import BaseLease
    from pawl.core.protocol.quorum import QuorumLine, QuorumRuntime
    from pawl.core.protocol.runtime import Call, Line, Reply

__all__ = ["cut_short", "end", "give_back", "hand_on"]


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
    same = sender is kept.sender[0] and drops == kept.sender[1]
    # With a fault, the connection that was asked was gone before the lease was granted.
    return any(is_open(o) and (o is not None or not same) for o in kept.votes.outcomes)
