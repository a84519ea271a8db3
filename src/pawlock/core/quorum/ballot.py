"""What a candidate asks several masters for, and what it keeps of their votes. Nothing here waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.protocol.outcomes import Busy, Dead, Granted, Outcome
from pawlock.core.protocol.quorum import QuorumCall, QuorumRuntime
from pawlock.core.protocol.runtime import Fault
from pawlock.core.quorum.votes import GrantVotes
from pawlock.model import NodeVote, QuorumInfo

if TYPE_CHECKING:
    from pawlock.core.protocol.quorum import QuorumPrimitive
    from pawlock.core.protocol.terms import Terms

__all__ = ["GrantedVotes", "is_open", "learn_clock", "patience_until", "question_of", "word_of"]

_AHEAD_US = 500.0
_CLOCK_FOR = 10.0
"""Seconds after which the nodes are asked for their clocks again: a proposed fence must stay near them."""


def question_of(
    nodes: QuorumRuntime,
    primitive: QuorumPrimitive,
    token: str,
    options: Terms,
    sent_at: float,
) -> QuorumCall:
    """The question for a vote, with a proposed fence: a little above all clocks that were seen."""
    ahead = nodes.ahead_us
    proposal = int(sent_at * 1e6 + ahead + _AHEAD_US) if ahead else 0
    clock = not ahead or sent_at - nodes.ahead_at > _CLOCK_FOR
    return primitive.grant(token, options.ttl_ms, options.block, proposal, clock=clock)


def patience_until(nodes: QuorumRuntime, now: float, until: float | None) -> float:
    """For how long an attempt that begins now may listen: a caller's time is kept within one node's."""
    patience = nodes.patience
    if until is None or now + patience <= until:
        return patience
    return min(patience, max(0.0, until - now) + nodes.node_timeout)


def learn_clock(nodes: QuorumRuntime, votes: GrantVotes, sent_at: float) -> None:
    """Take note of the nodes' clocks, where they sent them."""
    clocks = [clock for o in votes.outcomes if isinstance(o, (Granted, Busy, Dead)) and (clock := o.clock)]
    if clocks:
        # By majority, so that one node whose clock jumped does not make every proposal useless.
        middle = sorted(clocks, reverse=True)[len(clocks) // 2 if len(clocks) > 2 else 0]
        close = [clock for clock in clocks if clock - middle < 1_000_000]
        nodes.ahead_us = max(close) - sent_at * 1e6
        nodes.ahead_at = sent_at


class GrantedVotes:
    """The votes by which a lease was granted, as its server lease keeps them.

    Args:
        votes: The votes; those that come later are noted there.
        sender: Who sent the question; see ``QuorumRuntime.sender``.
        nodes: The nodes' addresses.
        drift: Seconds that were taken off.
        validity: Seconds that were left at the grant.
    """

    __slots__ = ("drift", "nodes", "sender", "validity", "votes")

    def __init__(
        self,
        votes: GrantVotes,
        sender: tuple[object, int],
        nodes: tuple[str, ...],
        drift: float,
        validity: float,
    ) -> None:
        self.votes: GrantVotes = votes
        self.sender: tuple[object, int] = sender
        self.nodes: tuple[str, ...] = nodes
        self.drift: float = drift
        self.validity: float = validity

    def info(self) -> QuorumInfo:
        """The same for users."""
        listed = tuple(
            NodeVote(node, word_of(o), isinstance(o, Granted))
            for node, o in zip(self.nodes, self.votes.outcomes, strict=True)
        )
        return QuorumInfo(listed, self.votes.needed, self.validity, self.drift)


def is_open(outcome: Outcome | Fault | None) -> bool:
    """Whether a vote that was asked for may still be given, unseen."""
    return outcome is None or (isinstance(outcome, Fault) and outcome.maybe_applied)


def word_of(outcome: Outcome | Fault | None) -> str:
    """An answer in words."""
    if outcome is None:
        return "no answer yet"
    if isinstance(outcome, Fault):
        return f"{outcome.kind.value}: {outcome.text}" if outcome.text else outcome.kind.value
    if isinstance(outcome, Granted):
        return "granted"
    if isinstance(outcome, Busy):
        return f"held by {outcome.holder or 'another'}"
    return "given up before"
