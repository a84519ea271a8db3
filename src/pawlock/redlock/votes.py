"""Votes of several independent masters: majorities, and what is decided by them. Pure arithmetic.

The algorithm is Redlock (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with fences. Its
safety rests on one sentence: any two majorities have a node in common, and a node gives a name to one token at a time.

The fence. Each node mints its own number; the candidate takes the largest of its majority. That alone can fall: the
next majority may lack the node that had it. So the number counts only once a majority of nodes *that hold this very
token* knows it. Either they said it themselves (the candidate's proposal was above what each of them knew), or it is
written back to them, by a script that writes only where it finds the token. The next grant's majority then shares a
node with these, and that node mints above it. This holds while nodes keep their memory; for those that restarted see
``nodes``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from pawlock.core.protocol.faults import is_transient
from pawlock.core.protocol.outcomes import (
    NOBODY_MS,
    AsAsked,
    Busy,
    Dead,
    Granted,
    Look,
    Outcome,
    Released,
)
from pawlock.core.protocol.runtime import Fault, FaultKind

__all__ = ["GrantVotes", "MergedVotes", "Votes", "majority", "merge_inspect"]

T = TypeVar("T")


def majority(nodes: int) -> int:
    """The least number of ``nodes`` such that any two groups of that size share a member."""
    return nodes // 2 + 1


class Votes(ABC):
    """The answers of all nodes to one request.

    Args:
        nodes: How many nodes there are.

    Attributes:
        needed: The majority.
        outcomes: What each node answered; None: nothing yet.
    """

    __slots__ = ("needed", "nodes", "outcomes")

    def __init__(self, nodes: int) -> None:
        self.nodes: int = nodes
        self.needed: int = majority(nodes)
        self.outcomes: list[Outcome | Fault | None] = [None] * nodes

    @abstractmethod
    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """Count an answer; True once it is decided, and nobody else need be waited for."""

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """Take note of an answer that came after the decision: for the record."""
        self.outcomes[index] = outcome

    @property
    def worth_a_wait(self) -> bool:
        """Whether it is worth listening on once a node's time is up, and it is not decided."""
        return False

    def of(self, kind: type[T]) -> list[T]:
        """The answers of a kind."""
        return [o for o in self.outcomes if type(o) is kind]

    @property
    def lacking(self) -> bool:
        """Whether so many nodes failed that there is no majority without them."""
        return len(self.of(Fault)) > self.nodes - self.needed

    def fault(self, text: str) -> Fault:
        """What becomes of the request where too few nodes answered: final if the others never will."""
        faults = self.of(Fault)
        lasting = [fault for fault in faults if fault.final or not is_transient(fault.kind)]
        if len(lasting) > self.nodes - self.needed:
            return Fault(lasting[0].kind, lasting[0].text, maybe_applied=True, final=True)
        # What broke just now says nothing of the nodes; that they could not even be asked does.
        broke = any(fault.maybe_applied for fault in faults)
        kind = FaultKind.UNANSWERED if broke else FaultKind.UNREACHABLE
        return Fault(kind, text, maybe_applied=broke or len(faults) < self.nodes)


class GrantVotes(Votes):
    """The votes for one token. No vote is counted any more once a majority gave theirs.

    Args:
        nodes: How many nodes there are.
        plain: What a bare yes of a node means: it granted what it was asked for; None: none may.

    Attributes:
        fence: The largest fence of the votes.
        left_ms: How long each of them lives at least.
    """

    __slots__ = ("_granted", "_plain", "_refused", "_same", "fence", "left_ms")

    def __init__(self, nodes: int, plain: Granted | None = None) -> None:
        super().__init__(nodes)
        self.fence: int = 0
        self.left_ms: int = 0
        self._granted = 0
        self._refused = 0
        self._same = 0
        self._plain = plain

    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """Decided by a majority of yes, or when so many said no that none can come; one that failed says nothing."""
        if type(outcome) is AsAsked:
            outcome = self._meant()
        self.outcomes[index] = outcome
        if isinstance(outcome, Fault):
            return False
        if type(outcome) is not Granted or outcome.fence <= 0:
            self._refused += 1
            return self._refused > self.nodes - self.needed
        if outcome.fence > self.fence:
            self.fence, self._same = outcome.fence, 0
        self._same += outcome.fence == self.fence
        self.left_ms = min(outcome.left_ms, self.left_ms) if self._granted else outcome.left_ms
        self._granted += 1
        return self._granted >= self.needed

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """Kept for the record."""
        self.outcomes[index] = self._meant() if type(outcome) is AsAsked else outcome

    @property
    def worth_a_wait(self) -> bool:
        """A split vote is given up in its time, so that the others can proceed; slow nodes are listened to."""
        return not self.of(Busy) and not self.lacking

    def _meant(self) -> Granted:
        if self._plain is None:
            raise ValueError("a node granted what was not requested")
        return self._plain

    @property
    def won(self) -> bool:
        """Whether a majority gave its vote."""
        return self._granted >= self.needed

    @property
    def agreed(self) -> bool:
        """Whether a majority minted the same, largest number itself, so that nothing needs to be written back."""
        return self._same >= self.needed

    def held_by(self, caller: str) -> Busy | None:
        """Who has the name, where a node said that somebody does.

        Args:
            caller: Who asks. A vote of its own that is not undone yet is nobody else's, unless a majority says so.
        """
        held = self.of(Busy)
        others = [busy for busy in held if busy.holder != caller]
        held = others if len(held) - len(others) < self.needed else held
        names = [busy.holder for busy in held]
        # As most of the nodes that said so know it.
        return max(held, key=lambda busy: names.count(busy.holder), default=None)

    def words(self, nodes: Sequence[str]) -> dict[str, str]:
        """Each answer in words, by the node's address."""
        return {node: _word(o) for node, o in zip(nodes, self.outcomes, strict=True)}


class MergedVotes(Votes):
    """The answers of all nodes to a renewal, a release or a look, as one answer such as a single master's.

    - A majority of yes (``Granted``, ``Released``) is yes; the life is that of the majority's shortest.
    - A release that a majority answered and that at least one node carried out is done: no majority of the token is
      left.
    - A majority of no is no. Otherwise too few answered, and the outcome is not known: a ``Fault``.
    """

    __slots__ = ()

    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """Decided once a majority agrees."""
        self.outcomes[index] = outcome
        if isinstance(outcome, Fault):
            return False
        if not isinstance(outcome, Look):
            return [o.__class__ for o in self.outcomes].count(outcome.__class__) >= self.needed
        return [(look.holder, look.left_ms == NOBODY_MS) for look in self.of(Look)].count(
            (outcome.holder, outcome.left_ms == NOBODY_MS)
        ) >= self.needed

    def result(self) -> Outcome | Fault:
        """The one answer, or why there is none."""
        answered = [o for o in self.outcomes if o is not None and not isinstance(o, Fault)]
        held = sorted(self.of(Granted), key=lambda one: one.left_ms, reverse=True)
        if len(held) >= self.needed:
            return held[self.needed - 1]
        if len(answered) >= self.needed:
            if found := self.of(Released):
                return found[0]
            if looks := self.of(Look):
                return merge_inspect(looks, self.needed)
            if not held or len(answered) - len(held) > self.nodes - self.needed:
                return next(one for one in answered if type(one) is not Granted)
        text = f"{len(answered)} of {self.nodes} nodes answered, and {self.needed} are needed"
        faults = self.of(Fault)
        return self.fault(f"{text} ({faults[0].text})" if faults else text)


def _word(outcome: Outcome | Fault | None) -> str:
    if outcome is None:
        return "no answer yet"
    if isinstance(outcome, Fault):
        return f"{outcome.kind.value}: {outcome.text}" if outcome.text else outcome.kind.value
    if isinstance(outcome, Granted):
        return "granted"
    if isinstance(outcome, Busy):
        return f"held by {outcome.holder or 'another'}"
    return "given up before" if isinstance(outcome, Dead) else "not granted"


def merge_inspect(looks: Sequence[Look], needed: int) -> Look:
    """What a majority of the nodes says of a name; free where no holder has a majority."""
    held = [look for look in looks if look.left_ms != NOBODY_MS]
    holders = [look.holder for look in held]
    top = max(holders, key=holders.count) if holders else ""
    same = [look for look in held if look.holder == top]
    last = max(look.last for look in looks)
    if len(same) < needed:
        return Look("", NOBODY_MS, max(look.fence for look in looks), last, looks[0].now_ms)
    # A vote that came after the decision may have a number of its own, which is nobody's fence.
    fences = [look.fence for look in same]
    same.sort(key=lambda look: look.left_ms, reverse=True)
    return same[needed - 1]._replace(fence=max(fences, key=fences.count), last=last)
