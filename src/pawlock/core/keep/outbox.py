"""What is still to be sent about a token that is given up: undo or release, until each master answered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.quorum import QuorumRuntime, SpreadCall, spread
from pawlock.core.protocol.runtime import Fault
from pawlock.core.protocol.validity import valid_until
from pawlock.core.quorum.ballot import GrantedVotes, is_open
from pawlock.core.quorum.votes import Delivery, GrantVotes, LeaveVotes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.state.client import ClientState
    from pawlock.core.state.records import ServerLease

__all__ = [
    "OUTBOX_FOR",
    "barred",
    "delivery_of",
    "granted",
    "leave_call",
    "leave_votes",
    "post_to_all",
    "validity_of",
]

OUTBOX_FOR = 60.0
"""Seconds for which a token is tried to be left, at least."""


def delivery_of(
    engine: ClientState, primitive: Primitive, token: str, calls: Sequence[Request | None] = ()
) -> Delivery:
    """What must be sent to several masters about a token, until each has answered.

    Args:
        engine: The client's engine.
        primitive: What the token is of.
        token: The token.
        calls: What is sent to each first; none: nothing has to be sent yet.
    """
    nodes = cast("QuorumRuntime", engine.runtime).nodes
    again = partial(primitive.leave, token, TOMB_MS, 0)
    return Delivery(calls or [None] * len(nodes), again, partial(_post_delivery, engine))


def _post_delivery(engine: ClientState, delivery: Delivery) -> None:
    """A master did not answer: ask it again in the background."""
    if delivery.posted:
        return
    delivery.posted = True
    now = engine.runtime.now()
    most = 0.0 if engine.quorum is None else engine.quorum.max_ttl
    delivery.until, delivery.due, delivery.attempt = now + max(OUTBOX_FOR, most), now, 0
    engine.outbox.entries[delivery] = None
    if not engine.activity.closed or engine.activity.maintenance_runs:
        engine.wake_maintenance()


def post_to_all(engine: ClientState, call: Request) -> None:
    """Send to all masters: at once where a connection lives, and again until each has answered."""
    nodes = cast("QuorumRuntime", engine.runtime)
    calls = spread(call, len(nodes.nodes))
    delivery = Delivery(calls, lambda: call, partial(_post_delivery, engine))
    _post_delivery(engine, delivery)
    nodes.send(calls, delivery)


def granted(engine: ClientState, votes: GrantVotes, valid: float, ttl_ms: int) -> GrantedVotes:
    """What is kept of the votes of a grant that is valid until ``valid``."""
    nodes = cast("QuorumRuntime", engine.runtime)
    ttl = min(votes.left_ms, ttl_ms) / 1000
    drift = 0.0 if engine.quorum is None else engine.quorum.drift(ttl)
    left = max(0.0, valid - engine.runtime.now())
    return GrantedVotes(votes, nodes.sender(), nodes.nodes, drift, left)


def leave_votes(engine: ClientState, server_lease: ServerLease) -> LeaveVotes:
    """Counts the answers to a release; a node that does not answer is asked again in the background."""
    nodes = cast("QuorumRuntime", engine.runtime)
    voted = None if server_lease.quorum is None else server_lease.quorum.votes.outcomes
    return LeaveVotes(
        len(nodes.nodes), partial(delivery_of, engine, server_lease.primitive, server_lease.token), voted
    )


def leave_call(
    engine: ClientState, server_lease: ServerLease, tomb_ms: int, close_ms: int, *, background: bool = False
) -> Request:
    """What gives a lease back; see ``barred``."""
    call = server_lease.primitive.leave(server_lease.token, tomb_ms, close_ms)
    if server_lease.quorum is None or tomb_ms:
        return call
    return barred(
        engine,
        server_lease.quorum,
        call,
        server_lease.primitive,
        server_lease.token,
        close_ms,
        background=background,
    )


def barred(
    engine: ClientState,
    kept: GrantedVotes,
    call: Request,
    primitive: Primitive,
    token: str,
    close_ms: int = 0,
    *,
    background: bool = False,
) -> Request:
    """What gives a token back, made so that no vote for it comes later.

    A node that was asked for its vote and has not answered may give it later. What is sent behind the question, on
    the same connection, takes it back. From elsewhere (another thread, or a new connection) it may come first; then a
    tombstone awaits the vote, on the nodes that this concerns.

    Args:
        engine: The client's engine.
        kept: The votes for the token.
        call: What gives it back where no vote is open.
        primitive: What the token is of.
        token: The token.
        close_ms: For how long the name stays closed.
        background: True if the engine's maintenance will send it, over connections of its own.
    """
    outcomes = kept.votes.outcomes
    if not any(is_open(outcome) for outcome in outcomes):
        return call
    same = kept.sender == cast("QuorumRuntime", engine.runtime).sender(background=background)
    # A fault: the connection that was asked was gone before the lease was granted.
    if same and not any(isinstance(outcome, Fault) and outcome.maybe_applied for outcome in outcomes):
        return call
    barring = primitive.leave(token, TOMB_MS, close_ms)
    spread = tuple.__new__(SpreadCall, call)  # pyright: ignore[reportUnknownMemberType]
    spread.each = tuple(barring if is_open(outcome) else call for outcome in outcomes)
    return spread


def validity_of(engine: ClientState) -> Callable[[float, int, int], float]:
    """How the engine's leases count their validity: with the drift that is set for several masters, or the usual."""
    return valid_until if engine.quorum is None else engine.quorum.valid_until
