"""What a release comes to: one guarded step ends the lease, and what is to be done follows. Nothing is sent here."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, cast

from pawl.core.quorum.ballot import GrantedVotes, is_open
from pawl.core.state.records import Turn, Waiter
from pawl.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.lease.in_progress import Ending
    from pawl.core.protocol.carrier import Request
    from pawl.core.protocol.quorum import QuorumRuntime
    from pawl.core.state.records import ServerLease

__all__ = ["Step", "decide", "settle"]


class Step(Enum):
    """What is to be done about a release, where it is not a request to send."""

    OVER = "nothing: the lease was released before"
    PARENT = "nothing: it belongs to the parent of this process"
    INNER = "nothing: one level of a re-entered lease has ended"
    LOST = "nothing: it was lost before"
    PASSED = "nothing: a local waiter owns it now, or is to leave its token"
    REFUSED = "somebody of this client waits, who may not own it: see ``settle``"
    LEAVE = "its token is to be left: see ``settle``"


def decide(  # noqa: C901, PLR0912 - one guarded step, and a call costs each release as much as a branch
    engine: Engine, mark: Ending, *, waited_for: bool
) -> Step | Request:
    """End a lease, or one level of it, and say what is to be done.

    Args:
        engine: The client's engine.
        mark: The release. It says from the same step on that the lease ended by it: then it must come to its end, even
            if a signal handler raises here.
        waited_for: True where somebody of this client was seen to wait. Otherwise the release must be noted as in
            progress: it is sent at once, and the end of the client waits for it.

    Returns:
        The step, or what is to be sent.
    """
    lease, history = mark.lease, engine.reports.history
    server_lease = lease.server_lease
    owner, local_queue, row = server_lease.owner, server_lease.local_queue, server_lease.row
    now = engine.runtime.now()
    held, held_key = engine.leases.held, (lease.who, server_lease.primitive.key)
    with engine.guard:
        if lease.released:
            return Step.OVER
        if lease.levels != 1:
            lease.levels -= 1
            return Step.INNER
        lease.released = True
        if owner.epoch != engine.epoch:
            return Step.PARENT
        mark.ended = True
        # The server lease may go on under another owner: its loss is none of this lease's business then.
        owner.watchers = None
        forgets = history is None and owner.outer is None
        # Where it is passed on, the caller holds it until then: a handler in between must not wait for it.
        if forgets and not waited_for and held_key in held and held[held_key] is server_lease:
            del held[held_key]
        state = server_lease.state
        ends = (
            not waited_for
            and state is LeaseState.HELD
            and now < server_lease.valid_until
            and row is not None
            and (
                local_queue is None
                or not (local_queue.local_waiters or local_queue.turn != server_lease.turn)
            )
        )
        if ends:
            server_lease.state = LeaseState.RELEASED
            if local_queue is not None:
                local_queue.closed = True
                if local_queue.key in local_queue.home and local_queue.home[local_queue.key] is local_queue:
                    del local_queue.home[local_queue.key]
            if row is not None and server_lease in row:
                del row[server_lease]
    if not forgets:
        # A history notes who had it before anybody else has.
        engine.forget_holder(server_lease, lease.who)
    if lease.parked:
        lease.wake()
    if ends:
        if engine.leases.tracked:
            engine.untrack(server_lease)
        return _first_request(engine, server_lease)
    if state is LeaseState.RELEASED:
        # The garbage collector came to the lease before it came to the block that ends it.
        step = Step.LEAVE
    elif state is LeaseState.LOST or now >= server_lease.valid_until:
        step = _lose(engine, server_lease, now)
    else:
        turn = engine.pass_turn(server_lease, now)
        # Gone: those who sleep go on without this server lease, and nobody but its owner leaves it.
        step = Step.PASSED if turn is Turn.HANDED else Step.REFUSED if turn is Turn.REFUSED else Step.LEAVE
        run_is_over = (
            local_queue is not None
            and not server_lease.uncontended
            and local_queue.streak >= local_queue.most
        )
        if turn is Turn.HANDED and local_queue is not None and run_is_over:
            local_queue.part(server_lease, Waiter(engine.runtime.new_token()))
    if waited_for and forgets:
        with engine.guard:
            if held_key in held and held[held_key] is server_lease:
                del held[held_key]
    return step


def _lose(engine: Engine, server_lease: ServerLease, now: float) -> Step:
    engine.expired(server_lease, now)
    if server_lease.reason is LossReason.MAX_HOLD:
        engine.leave_in_background(server_lease, server_lease.close_ms(now))
    return Step.LOST


def settle(engine: Engine, server_lease: ServerLease, step: Step) -> Step | Request:
    """Stop renewing what nobody here may own, and say who leaves its token; the release is noted as in progress."""
    engine.end(server_lease)
    if server_lease.state is LeaseState.LOST:
        return Step.LOST
    if step is Step.REFUSED and engine.promote_next(server_lease):
        return Step.PASSED
    return _first_request(engine, server_lease)


def _first_request(engine: Engine, server_lease: ServerLease) -> Step | Request:
    """What leaves the token where it is as simple as can be; ``Step.LEAVE`` if more is to be thought of."""
    votes, run = server_lease.quorum, server_lease.run
    if server_lease.unanswered or server_lease.options.min_hold > 0:
        return Step.LEAVE
    if votes is not None and (votes.sender[0] is None or _may_come_late(engine, votes)):
        return Step.LEAVE
    followers = engine.queues.followers
    if server_lease.follow_key and (followers or (run is not None and run.spent)):
        call = server_lease.leave(0, 0, server_lease.options.block if followers else 0)
    else:
        call = server_lease.primitive.leave(server_lease.token, 0, 0)
    # One request more, so only for a run of several owners: a strict hand-off stays at two requests.
    return engine.runtime.publish_first(call) if server_lease.used and not server_lease.uncontended else call


def _may_come_late(engine: Engine, kept: GrantedVotes) -> bool:
    """Whether a vote that was not waited for may come behind what gives the lease back."""
    sender, drops = cast("QuorumRuntime", engine.runtime).sender()
    same = sender is kept.sender[0] and drops == kept.sender[1]
    # With a fault, the connection that was asked was gone before the lease was granted.
    return any(is_open(o) and (o is not None or not same) for o in kept.votes.outcomes)
