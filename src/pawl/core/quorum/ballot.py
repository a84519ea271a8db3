"""What a candidate asks several masters for, and what it keeps of their votes. Nothing here waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from pawl.core.acquire.queue import TOMB_MS
from pawl.core.keep.outbox import duty_of
from pawl.core.protocol.quorum import QuorumCall, QuorumRuntime, SpreadCall
from pawl.core.protocol.runtime import Call, Fault, Reply
from pawl.core.protocol.validity import valid_until
from pawl.core.quorum.votes import EachVote, GrantVotes, LeaveVotes
from pawl.model import NodeVote, QuorumInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.options import LockOptions
    from pawl.core.protocol.primitive import Primitive
    from pawl.core.protocol.quorum import QuorumPrimitive
    from pawl.core.state.records import Tenure

__all__ = [
    "Granted",
    "barred",
    "granted",
    "is_open",
    "learn_clock",
    "leave_call",
    "leave_votes",
    "patience_until",
    "question_of",
    "validity_of",
    "word_of",
]

_AHEAD_US = 500.0
_CLOCK_FOR = 10.0
"""Seconds after which the nodes are asked for their clocks again: a wish must not stray from them."""


def question_of(
    nodes: QuorumRuntime,
    primitive: QuorumPrimitive,
    token: str,
    options: LockOptions,
    sent_at: float,
    *,
    wait: bool,
) -> QuorumCall:
    """The question for a vote, with a wish for the fence: a little above all clocks that were seen."""
    ahead = nodes.ahead_us
    hint = int(sent_at * 1e6 + ahead + _AHEAD_US) if ahead else 0
    clock = not ahead or sent_at - nodes.ahead_at > _CLOCK_FOR
    return primitive.grant(token, options.life_ms, options.block, hint, clock=clock, wait=wait)


def patience_until(nodes: QuorumRuntime, now: float, until: float | None) -> float:
    """For how long an attempt that begins now may listen: a caller's time is kept within one node's."""
    patience = nodes.patience
    if until is None or now + patience <= until:
        return patience
    return min(patience, max(0.0, until - now) + nodes.node_timeout)


def learn_clock(nodes: QuorumRuntime, votes: GrantVotes, sent_at: float) -> None:
    """Take note of the nodes' clocks, where they sent them."""
    clocks = [int(o[-1]) for o in votes.outcomes if isinstance(o, list) and o[-1]]
    if clocks:
        # By majority, so that one node whose clock jumped does not make every wish useless.
        middle = sorted(clocks, reverse=True)[len(clocks) // 2 if len(clocks) > 2 else 0]
        close = [clock for clock in clocks if clock - middle < 1_000_000]
        nodes.ahead_us = max(close) - sent_at * 1e6
        nodes.ahead_at = sent_at


class Granted:
    """The votes by which a lease was granted, as its tenure keeps them.

    Args:
        votes: The votes; those that come later are noted there.
        sender: Who sent the question; see ``QuorumRuntime.sender``.
        nodes: The nodes' addresses.
        drift: Seconds that were taken off.
        validity: Seconds that were left at the grant.
        since: When they were counted.

    Attributes:
        renewed: What the nodes said to the last renewal.
    """

    __slots__ = ("_again", "_since", "drift", "nodes", "renewed", "sender", "validity", "votes")

    def __init__(
        self,
        votes: GrantVotes,
        sender: tuple[object, int],
        nodes: tuple[str, ...],
        drift: float,
        validity: float,
        since: float,
    ) -> None:
        self.votes: GrantVotes = votes
        self.sender: tuple[object, int] = sender
        self.nodes: tuple[str, ...] = nodes
        self.drift: float = drift
        self.validity: float = validity
        self.renewed: EachVote | None = None
        self._since = since
        self._again: dict[int, float] | None = None

    def voted_since(self, index: int, met_at: float) -> bool:
        """Whether a node voted in the life that was first met then."""
        outcome = self.votes.outcomes[index]
        since = self._since if self._again is None else self._again.get(index, self._since)
        return isinstance(outcome, list) and outcome[0] == b"H" and met_at <= since

    def ask_again(self, indices: Sequence[int]) -> None:
        """Nodes without a vote are asked again, over other connections: from here on each may have the token."""
        self.sender = None, 0
        for index in indices:
            self.votes.outcomes[index] = None

    def won_back(self, index: int, outcome: Reply, now: float) -> None:
        """A node gave its vote again."""
        self.votes.outcomes[index] = outcome
        self._again = {**(self._again or {}), index: now}

    def info(self) -> QuorumInfo:
        """The same for users."""
        listed = tuple(
            NodeVote(node, word_of(o), isinstance(o, list) and o[0] == b"H")
            for node, o in zip(self.nodes, self.votes.outcomes, strict=True)
        )
        return QuorumInfo(listed, self.votes.needed, self.validity, self.drift)


def granted(engine: Engine, votes: GrantVotes, valid: float, ttl_ms: int) -> Granted:
    """What is kept of the votes of a grant that is valid until ``valid``."""
    nodes = cast("QuorumRuntime", engine.runtime)
    ttl = min(votes.left_ms, ttl_ms) / 1000
    drift = 0.0 if engine.quorum is None else engine.quorum.drift(ttl)
    now = engine.runtime.now()
    return Granted(votes, nodes.sender(), nodes.nodes, drift, max(0.0, valid - now), now)


def is_open(outcome: Reply | Fault | None) -> bool:
    """Whether a vote that was asked for may still be given, unseen."""
    return outcome is None or (isinstance(outcome, Fault) and outcome.maybe_applied)


def leave_votes(engine: Engine, tenure: Tenure) -> LeaveVotes:
    """Counts the answers to a release; a node that does not answer is asked again in the background."""
    nodes = cast("QuorumRuntime", engine.runtime)
    voted = None if tenure.quorum is None else tenure.quorum.votes.outcomes
    return LeaveVotes(len(nodes.nodes), partial(duty_of, engine, tenure.primitive, tenure.token), voted)


def leave_call(
    engine: Engine, tenure: Tenure, tomb_ms: int, close_ms: int, *, background: bool = False
) -> Call:
    """What gives a lease back; see ``barred``."""
    call = tenure.leave(tomb_ms, close_ms)
    if tenure.quorum is None or tomb_ms:
        return call
    return barred(
        engine, tenure.quorum, call, tenure.primitive, tenure.token, close_ms, background=background
    )


def barred(
    engine: Engine,
    kept: Granted,
    call: Call,
    primitive: Primitive,
    token: str,
    close_ms: int = 0,
    *,
    background: bool = False,
) -> Call:
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
        background: True if the engine's upkeep will send it, over connections of its own.
    """
    outcomes = kept.votes.outcomes
    if not any(is_open(outcome) for outcome in outcomes):
        return call
    if kept.sender == cast("QuorumRuntime", engine.runtime).sender(background=background):
        return call
    barring = primitive.leave(token, TOMB_MS, close_ms)
    spread = tuple.__new__(SpreadCall, call)  # pyright: ignore[reportUnknownMemberType]
    spread.each = tuple(barring if is_open(outcome) else call for outcome in outcomes)
    return spread


def validity_of(engine: Engine) -> Callable[[float, int, int], float]:
    """How the engine's leases count their validity: with the drift that is set for several masters, or the usual."""
    return valid_until if engine.quorum is None else engine.quorum.valid_until


def word_of(outcome: Reply | Fault | None) -> str:
    """An answer in words."""
    if outcome is None:
        return "no answer yet"
    if isinstance(outcome, Fault):
        return f"{outcome.kind.value}: {outcome.text}" if outcome.text else outcome.kind.value
    if outcome[0] == b"H":
        return "granted"
    if outcome[0] == b"B":
        holder = outcome[4].decode(errors="replace")
        return f"held by {holder}" if holder else "held by another"
    return "given up before"
