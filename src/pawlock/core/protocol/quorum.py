"""What several independent masters are asked, and what their runtimes and primitives must offer."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.primitive import Primitive
from pawlock.core.protocol.runtime import Call, Fault, FaultKind

__all__ = [
    "NOT_ASKED",
    "Ballot",
    "Question",
    "QuorumCall",
    "QuorumConnections",
    "QuorumPrimitive",
    "QuorumRuntime",
    "SpreadCall",
    "majority",
    "spread",
]

NOT_ASKED = Fault(FaultKind.UNREACHABLE, "not asked")
"""What counts as the answer of a node that a question did not go to."""


def majority(nodes: int) -> int:
    """The least number of ``nodes`` such that any two groups of that size share a member."""
    return nodes // 2 + 1


class QuorumCall(Call):
    """The question for a vote.

    Attributes:
        asked: What a bare yes of a node means: it granted what it was asked for; None: none may.
    """

    asked: Granted | None = None


class SpreadCall(Call):
    """A call that is not the same for all nodes; as a ``Call`` it is the first of them.

    Attributes:
        each: The call of each node.
    """

    each: tuple[Call, ...] = ()


def spread(call: Call, nodes: int) -> Sequence[Call]:
    """What each of the nodes is sent."""
    return call.each if isinstance(call, SpreadCall) else [call] * nodes


class Ballot(Protocol):
    """Counts the answers to one question that went to all nodes."""

    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """Count one answer; True once the question is decided and nobody else need be waited for."""
        ...

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """Take note of an answer that came after the decision, or of one that will not come."""
        ...

    def patience(self) -> float:
        """Seconds from the question on for which it is worth listening, if its time is up and it is not decided."""
        ...

    def outcome(self) -> Outcome:
        """What the votes come to, as one answer. Raises ``Fault`` if it is not known."""
        ...


Question = tuple[Sequence[Call | None], Ballot]
"""One call for each node (None: that node is not asked), and who counts the answers."""


class QuorumPrimitive(Primitive, Protocol):
    """What a primitive of several masters can be asked for beside ``Primitive``."""

    def grant(self, token: str, ttl_ms: int, block: int, proposal: int, *, clock: bool) -> QuorumCall:
        """Ask a node for its vote.

        Args:
            token: The candidate's token.
            ttl_ms: The life of the vote.
            block: How many fences it reserves.
            proposal: The fence that the candidate would like; 0: any.
            clock: Whether the node is to return its clock.
        """
        ...

    def ratify(self, token: str, fence: int, block: int) -> Call:
        """Write the fence of a grant back to a node that holds the token."""
        ...


class QuorumConnections(Protocol):
    """The connections to all masters, for a question to all at once; beside ``Connection``."""

    def vote(self, call: Call, ballot: Ballot, timeout: float) -> Outcome | Awaitable[Outcome]:
        """Send one call to all, and have the answers counted: what the ballot's ``outcome`` says, or what brings it."""
        ...


class QuorumRuntime(Protocol):
    """What a runtime of several masters can do beside ``Runtime``."""

    nodes: tuple[str, ...]
    """The nodes' addresses as they may be shown."""

    ahead_us: float
    """The latest server clock, in µs, minus this client's clock at the send: where the next fence will lie."""

    ahead_at: float
    """When that was learned."""

    @property
    def node_timeout(self) -> float:
        """Seconds that one node may take to answer now."""
        ...

    @property
    def patience(self) -> float:
        """Seconds for which an attempt listens that nobody refused, and that has no majority yet."""
        ...

    async def meet(self, timeout: float) -> None:
        """Make the first connections, if none were made yet: to all nodes at once, within ``timeout`` seconds."""
        ...

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """Send each node its calls in one write, and return once every question is decided or answered by all.

        A node that does not answer within ``timeout`` seconds counts as a fault. What is sent later to a node goes
        behind.
        """
        ...

    def remembers(self) -> bool:
        """Whether every node disclosed its run id, so that a restart is noticed."""
        ...

    def send(self, calls: Sequence[Call | None], ballot: Ballot) -> None:
        """Send without waiting, behind what was sent before, where a connection lives.

        Args:
            calls: One call for each node; None: that node is not asked.
            ballot: Is notified of each answer, and of each node that will not give one.
        """
        ...

    def sender(self, *, background: bool = False) -> tuple[object, int]:
        """The connections of the present caller, and how many of them were lost.

        While both are the same, what is sent to a node goes behind all that was sent to it before.

        Args:
            background: True to ask those over which the maintenance sends what the caller leaves to it.
        """
        ...
