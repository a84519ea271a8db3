"""The decision about a release: one guarded step ends the lease, and says what is to be done. Nothing is sent here."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from pawlock.core.state.records import Turn, Waiter
from pawlock.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.lease.record import HeldLease
    from pawlock.core.protocol.carrier import Request
    from pawlock.core.state.records import ServerLease

__all__ = ["Step", "decide", "stop_and_request"]


class Step(Enum):
    """What is to be done about a release, where it is not a request to send."""

    ALREADY_RELEASED = "nothing: the lease was released before"
    FORKED = "nothing: it belongs to the parent of this process"
    REENTRANT = "nothing: one level of a re-entered lease has ended"
    LOST = "nothing: it was lost before"
    HANDED_OVER = "nothing: a local waiter owns it now, or will release its token"
    NOT_HANDED_OVER = "a local waiter is there, and may not own it: see ``stop_and_request``"
    SEND = "its token is to be released on the server: see ``stop_and_request``"


def decide(  # noqa: C901, PLR0912 - one guarded step, and a call costs each release as much as a branch
    engine: Engine, lease: HeldLease, *, waited_for: bool
) -> Step | Request:
    """End a lease, or one level of it, and say what is to be done.

    Args:
        engine: The client's engine.
        lease: What is released.
        waited_for: True if a local waiter was seen.

    Returns:
        The step, or what is to be sent.
    """
    server_lease = lease.server_lease
    owner, local_queue, bucket = server_lease.owner, server_lease.local_queue, server_lease.bucket
    now = engine.runtime.now()
    held, held_key = engine.leases.held, (lease.who, server_lease.primitive.key)
    with engine.guard:
        if lease.released:
            return Step.ALREADY_RELEASED
        if lease.levels != 1:
            lease.levels -= 1
            return Step.REENTRANT
        lease.released = True
        if owner.epoch != engine.epoch:
            return Step.FORKED
        # The server lease may continue under another owner, so this one must no longer be notified of its loss.
        owner.watchers = None
        if not waited_for and held_key in held and held[held_key] is server_lease:
            del held[held_key]
        state = server_lease.state
        ends = (
            not waited_for
            and state is LeaseState.HELD
            and now < server_lease.valid_until
            and bucket is not None
            and (
                local_queue is None
                or not (local_queue.local_waiters or local_queue.turn != server_lease.turn)
            )
        )
        if ends:
            server_lease.state = LeaseState.RELEASED
            if local_queue is not None:
                local_queue.closed = True
                if (
                    local_queue.key in local_queue.by_key
                    and local_queue.by_key[local_queue.key] is local_queue
                ):
                    del local_queue.by_key[local_queue.key]
            if bucket is not None and server_lease in bucket:
                del bucket[server_lease]
    if lease.parked:
        lease.wake()
    if ends:
        return _first_request(server_lease)
    if state is LeaseState.RELEASED:
        # The lease object was finalised before its block exited.
        step = Step.SEND
    elif state is LeaseState.LOST or now >= server_lease.valid_until:
        step = _lose(engine, server_lease, now)
    else:
        turn = Turn.ALONE if local_queue is None else local_queue.hand_over(server_lease, now)
        # Turn.GONE: the queue has moved on without this lease, so its owner must release it.
        step = Step.NOT_HANDED_OVER if turn is Turn.REFUSED else Step.SEND
        if turn is Turn.HANDED:
            step = Step.HANDED_OVER
            run_is_over = local_queue is not None and local_queue.streak >= local_queue.most
            if local_queue is not None and run_is_over and not server_lease.uncontended:
                local_queue.promote(Waiter(engine.runtime.new_token()), server_lease.turn, server_lease)
    if waited_for:
        with engine.guard:
            if held_key in held and held[held_key] is server_lease:
                del held[held_key]
    return step


def _lose(engine: Engine, server_lease: ServerLease, now: float) -> Step:
    engine.expired(server_lease, now)
    if server_lease.reason is LossReason.MAX_HOLD:
        engine.leave_in_background(server_lease, server_lease.close_ms(now))
    return Step.LOST


def stop_and_request(engine: Engine, server_lease: ServerLease, step: Step) -> Step | Request:
    """Stop renewal; then have the next local waiter release the token, or return the release request."""
    engine.end(server_lease)
    if server_lease.state is LeaseState.LOST:
        return Step.LOST
    if step is Step.NOT_HANDED_OVER and engine.promote_next(server_lease):
        return Step.HANDED_OVER
    return _first_request(server_lease)


def _first_request(server_lease: ServerLease) -> Step | Request:
    """The release request in the simple case; ``Step.SEND`` where it needs the slow path."""
    if server_lease.unanswered or server_lease.options.min_hold > 0:
        return Step.SEND
    return server_lease.primitive.leave(server_lease.token, 0, 0)
