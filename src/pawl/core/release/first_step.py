"""The first step of a release: under the guard, the lease goes to the next local waiter, or ends and is to be left.

What is not plain (an inner level, a lease that may be lost, one that others wait for but may not have) is left to
``release.release``, and nothing is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawl.core.keep.outbox import leave_votes
from pawl.core.quorum.ballot import GrantedVotes, is_open
from pawl.core.state.records import ServerLease, Turn, Waiter
from pawl.core.state.strict_handover import pass_on
from pawl.errors import PawlError
from pawl.model import LeaseState

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pawl.core.keep.engine import Engine
    from pawl.core.lease.record import HeldLease
    from pawl.core.protocol.carrier import Request
    from pawl.core.protocol.outcomes import Outcome
    from pawl.core.protocol.quorum import QuorumLine, QuorumRuntime
    from pawl.core.protocol.runtime import Line

__all__ = ["cut_short", "end", "hand_on", "vote_to_leave"]


def hand_on(engine: Engine, lease: HeldLease) -> bool:
    """Pass a lease to the next who waits here; False if it may not be, and nothing was done."""
    server_lease = lease.server_lease
    local_queue, run = server_lease.local_queue, server_lease.run
    if not (run is not None and run.behind if local_queue is None else local_queue.local_waiters):
        return False
    # A history notes who had it before anybody else has.
    if lease.parked or engine.reports.history is not None or server_lease.owner.epoch != engine.epoch:
        return False
    granted_at = server_lease.owner.granted_at
    now = engine.runtime.now()
    try:
        if local_queue is None:
            if not pass_on(engine, server_lease, now, lease=lease):
                return False
        elif local_queue.hand_over(server_lease, now, lease=lease) is not Turn.HANDED:
            return False
        elif not server_lease.uncontended and local_queue.streak >= local_queue.most:
            local_queue.part(server_lease, Waiter(engine.runtime.new_token()))
        engine.forget_holder(server_lease, lease.who)
        if engine.reports.observer is not None:
            engine.reports.observer.released(server_lease.primitive, granted_at, "released")
    except BaseException:
        if lease.released:
            engine.forget_holder(server_lease, lease.who)
        raise
    return True


def cut_short(lease: HeldLease, levels: int, error: BaseException) -> None:
    """Go on in the background with a release that a signal broke off in its first steps; else do nothing.

    An inner level of a re-entered lease is left alone: that the outer section goes on unprotected would be worse.

    Args:
        lease: What was to be released.
        levels: How many times it was held before: the inner level may be over by now.
        error: What broke it off.
    """
    if not isinstance(error, PawlError) and levels == 1 and not lease.inert() and lease.take_end():
        lease.engine.finish_release(lease)


def vote_to_leave(
    engine: Engine, server_lease: ServerLease, line: Line, call: Request
) -> Outcome | Awaitable[Outcome]:
    """Send what ``end`` gave to several masters."""
    timeout = max(server_lease.options.request_timeout, cast("QuorumRuntime", engine.runtime).node_timeout)
    return cast("QuorumLine", line).vote(call, leave_votes(engine, server_lease), timeout)


def end(engine: Engine, lease: HeldLease) -> Request | None:  # noqa: C901 - one guarded step
    """End a lease that nobody in this client is waiting for; None if more is to be done: then nothing was done yet."""
    server_lease = lease.server_lease
    local_queue, row, votes = server_lease.local_queue, server_lease.row, server_lease.quorum
    if row is None or server_lease.unanswered or server_lease.options.min_hold > 0 or lease.parked:
        return None
    sender = None
    if votes is not None:
        sender = votes.sender
        if sender[0] is None or _may_come_late(engine, votes):
            return None
    now = engine.runtime.now()
    held, held_key = engine.leases.held, (lease.who, server_lease.primitive.key)
    with engine.guard:
        if (
            lease.released
            or server_lease.owner.outer is not None
            or server_lease.state is not LeaseState.HELD
            or server_lease.owner.epoch != engine.epoch
            or now >= server_lease.valid_until
            or lease.levels != 1
            or (
                local_queue is not None
                and (local_queue.local_waiters or local_queue.turn != server_lease.turn)
            )
            # Asked again meanwhile: see ``majority.renew_votes``.
            or (votes is not None and votes.sender is not sender)
        ):
            return None
        lease.released = True
        if local_queue is not None:
            local_queue.closed = True
            if local_queue.key in local_queue.home and local_queue.home[local_queue.key] is local_queue:
                del local_queue.home[local_queue.key]
        server_lease.state = LeaseState.RELEASED
        if server_lease in row:
            del row[server_lease]
        # As ``forget_holder``; a history notes more there.
        if engine.reports.history is None and held_key in held and held[held_key] is server_lease:
            del held[held_key]
    if engine.reports.history is not None:
        engine.forget_holder(server_lease, lease.who)
    # The server lease may still be seen by the maintenance: its loss is none of this lease's business any more.
    server_lease.owner.watchers = None
    if engine.leases.tracked:
        engine.untrack(server_lease)
    run = server_lease.run
    if server_lease.follow_key and (engine.queues.followers or (run is not None and run.spent)):
        call = server_lease.leave(0, 0, server_lease.options.block if engine.queues.followers else 0)
    else:
        call = server_lease.primitive.leave(server_lease.token, 0, 0)
    # One request more, so only for a run of several owners: a strict hand-off stays at two requests.
    return engine.runtime.told_first(call) if server_lease.used and not server_lease.uncontended else call


def _may_come_late(engine: Engine, kept: GrantedVotes) -> bool:
    """Whether a vote that was not waited for may come behind what gives the lease back."""
    sender, drops = cast("QuorumRuntime", engine.runtime).sender()
    same = sender is kept.sender[0] and drops == kept.sender[1]
    # With a fault, the connection that was asked was gone before the lease was granted.
    return any(is_open(o) and (o is not None or not same) for o in kept.votes.outcomes)
