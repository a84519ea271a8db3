"""Votes of several independent masters: majorities, and what is decided by them. Pure arithmetic.

The algorithm is Redlock (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), with fences. Its
safety rests on one sentence: any two majorities have a node in common, and a node gives a name to one token at a time.

The fence. Each node mints its own number; the candidate takes the largest of its majority. That alone can fall: the
next majority may lack the node that had it. So the number counts only once a majority of nodes *that hold this very
token* knows it. Either they said it themselves (the candidate's proposal was above what each of them knew), or it is
written back to them, by a script that writes only where it finds the token. The next grant's majority then shares a
node with these, and that node mints above it. This holds while nodes keep their memory; for those that restarted see
``nodes``.

What one node means to one token, as ``outcomes`` state it::

    not asked (a Fault that was surely not applied: not reachable, or barred after a restart)
    None (asked) --> Granted | Busy, Dead (refused) | Fault that may be applied (its outcome is not known)
    Granted, asked, not known --> to be undone (a Delivery) --> answered, or over by itself
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple, TypeVar

from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.faults import is_transient, or_raise
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
from pawlock.core.protocol.quorum import NOT_ASKED
from pawlock.core.protocol.runtime import Fault, FaultKind

__all__ = [
    "Delivery",
    "GrantVotes",
    "LeaveVotes",
    "Majority",
    "MergedVotes",
    "NoMajority",
    "may_hold",
    "merge_inspect",
]


T = TypeVar("T")


class Majority(NamedTuple):
    """A majority granted, and knows the fence: the fence, the least of the lives, the votes."""

    fence: int
    left_ms: int
    votes: GrantVotes


class NoMajority(NamedTuple):
    """The votes, where more is to be done or nothing was granted."""

    votes: GrantVotes


class GrantVotes:
    """The votes for one token. No vote is counted any more once a majority gave theirs.

    Args:
        nodes: How many nodes there are.
        plain: What a bare yes of a node means: it granted what it was asked for; None: none may.
        patience: Seconds for which to listen while nobody refused.

    Attributes:
        nodes: How many nodes there are.
        needed: The majority.
        outcomes: What each node answered; None: nothing yet.
        granted: How many gave their vote.
        fence: The largest fence of the votes.
        left_ms: How long each of them lives at least.
    """

    __slots__ = (
        "_patience", "_plain", "_same", "fence", "granted", "left_ms", "needed", "nodes", "outcomes", "refused"
    )  # fmt: skip

    def __init__(self, nodes: int, plain: Granted | None = None, patience: float = 0.0) -> None:
        self.nodes: int = nodes
        self.needed: int = nodes // 2 + 1
        self.outcomes: list[Outcome | Fault | None] = [None] * nodes
        self.granted: int = 0
        self.refused: int = 0
        self.fence: int = 0
        self.left_ms: int = 0
        self._same = 0
        self._plain = plain
        self._patience = patience

    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """Decided by a majority of yes, or when so many said no that none can come."""
        if type(outcome) is AsAsked:
            outcome = self._meant()
        self.outcomes[index] = outcome
        if type(outcome) is Granted:
            fence = outcome.fence
            if fence > 0:
                if fence == self.fence:
                    self._same += 1
                elif fence > self.fence:
                    self.fence, self._same = fence, 1
                if not self.granted or outcome.left_ms < self.left_ms:
                    self.left_ms = outcome.left_ms
                self.granted += 1
                return self.granted >= self.needed
        self.refused += 1
        return self.refused > self.nodes - self.needed

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """Kept for the record."""
        self.outcomes[index] = self._meant() if type(outcome) is AsAsked else outcome

    def patience(self) -> float:
        """A split vote is given up in its time, so that the others can proceed; slow nodes are listened to."""
        return 0.0 if self.held else self._patience

    def _meant(self) -> Granted:
        if self._plain is None:
            raise ValueError("a node granted what was not requested")
        return self._plain

    def outcome(self) -> Majority | NoMajority:
        """What the votes come to, with the votes themselves."""
        if self._same >= self.needed:
            return Majority(self.fence, self.left_ms, self)
        return NoMajority(self)

    def copy(self) -> GrantVotes:
        """The votes as they are now: no answer that comes later is noted there."""
        found = copy(self)
        found.outcomes = list(self.outcomes)
        return found

    @property
    def won(self) -> bool:
        """Whether a majority gave its vote."""
        return self.granted >= self.needed

    @property
    def agreed(self) -> bool:
        """Whether a majority minted the same, largest number itself, so that nothing needs to be written back."""
        return self._same >= self.needed

    @property
    def given(self) -> int:
        """How many nodes granted it, late ones included."""
        return sum(isinstance(o, Granted) for o in self.outcomes)

    @property
    def held(self) -> int:
        """How many nodes said that somebody else holds the name."""
        return sum(isinstance(o, Busy) for o in self.outcomes)

    @property
    def failed(self) -> int:
        """How many nodes gave no answer that counts; one that nobody waits for any more is not among them."""
        return sum(isinstance(o, Fault) for o in self.outcomes)

    @property
    def lacking(self) -> bool:
        """Whether so many nodes failed that there is no majority without them."""
        return self.failed > self.nodes - self.needed

    def refused_for_good(self) -> Fault | None:
        """The first of so many refusals that cannot pass that no majority is left; None: there are not so many."""
        final = [o for o in self.outcomes if isinstance(o, Fault) and (o.final or not is_transient(o.kind))]
        return final[0] if len(final) > self.nodes - self.needed else None

    @property
    def holder(self) -> str | None:
        """Who holds the name, as most of the nodes that said so know it."""
        found = [o.holder for o in self.outcomes if isinstance(o, Busy) and o.holder]
        return max(found, key=found.count) if found else None


class Delivery:
    """What must still be sent to nodes, each until it answered: undo or release of a token. A ballot of the answers.

    Args:
        calls: For each node what is to be sent; None: nothing.
        again: Makes the same for every time but the first: from another connection it needs a tombstone.
        on_unanswered: Called once a node did not answer.

    Attributes:
        until: When the token is over on every node by itself, on the runtime's clock.
        due: When to send it to them again.
        attempt: How often that was done.
        posted: Whether it is repeated in the background by now.
    """

    __slots__ = ("_again", "_on_unanswered", "attempt", "calls", "due", "posted", "until")

    def __init__(
        self,
        calls: Sequence[Request | None],
        again: Callable[[], Request],
        on_unanswered: Callable[[Delivery], object],
    ) -> None:
        self.calls: list[Request | None] = list(calls)
        self.until: float = 0.0
        self.due: float = 0.0
        self.attempt: int = 0
        self.posted: bool = False
        self._again = again
        self._on_unanswered = on_unanswered

    @property
    def done(self) -> bool:
        """Whether every node answered."""
        return not any(self.calls)

    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """A node that answered has nothing of the token; never decided early."""
        if isinstance(outcome, Fault):
            if self.calls[index] is not None and outcome is not NOT_ASKED:
                self.ask_again(index)
        else:
            self.calls[index] = None
        return False

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """The same."""
        self.add(index, outcome)

    def ask_again(self, index: int) -> None:
        """One node more has to be asked."""
        self.calls[index] = self._again()
        self._on_unanswered(self)

    def patience(self) -> float:
        """It is repeated."""
        return 0.0

    def outcome(self) -> None:
        """Nothing is made of the answers."""


class MergedVotes:
    """The answers of all nodes to a renewal, a release or a look, as one answer such as a single master's.

    - A majority of yes (``Granted``, ``Released``) is yes; the life is that of the majority's shortest.
    - A release that a majority answered and that at least one node carried out is done: no majority of the token is
      left.
    - A majority of no is no. Otherwise too few answered, and the outcome is not known: a ``Fault``.
    """

    __slots__ = ("_leading", "_same", "needed", "nodes", "outcomes")

    def __init__(self, nodes: int) -> None:
        self.nodes: int = nodes
        self.needed: int = nodes // 2 + 1
        self.outcomes: list[Outcome | Fault | None] = [None] * nodes
        self._leading: type | None = None
        self._same: int = 0

    def add(self, index: int, outcome: Outcome | Fault) -> bool:
        """Decided once a majority agrees."""
        self.outcomes[index] = outcome
        kind: type[Any] = type(outcome)  # pyright: ignore[reportUnknownVariableType]
        if kind is Fault:
            self.late(index, outcome)
            return False
        if kind is self._leading:
            self._same += 1
        elif isinstance(outcome, Look):
            return self._seen_by_majority(outcome)
        elif self._leading is None:
            self._leading, self._same = kind, 1
        else:
            return len(self._like(kind)) >= self.needed
        return self._same >= self.needed

    def _seen_by_majority(self, look: Look) -> bool:
        """Whether enough looks say the same of one holder, or of nobody."""
        same = [other for other in self._like(Look) if _shows(other) == _shows(look)]
        return len(same) >= self.needed

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """Nothing depends on it."""

    def patience(self) -> float:
        """It can be repeated."""
        return 0.0

    def _like(self, kind: type[T]) -> list[T]:
        return [o for o in self.outcomes if type(o) is kind]

    def outcome(self) -> Outcome:
        """The one answer. Raises ``Fault`` if too few answered."""
        if self._leading is Released:
            for outcome in self.outcomes:
                if type(outcome) is Released and self._same >= self.needed:
                    return outcome
        return or_raise(self.result())

    def result(self) -> Outcome | Fault:
        """The one answer, or why there is none."""
        answered = [o for o in self.outcomes if o is not None and not isinstance(o, Fault)]
        held = self._like(Granted)
        if len(held) >= self.needed:
            held.sort(key=lambda one: one.left_ms, reverse=True)
            return held[self.needed - 1]
        if len(answered) >= self.needed:
            if found := self._like(Released):
                return found[0]
            if looks := self._like(Look):
                return merge_inspect(looks, self.needed)
            if not held or len(answered) - len(held) > self.nodes - self.needed:
                return next(one for one in answered if type(one) is not Granted)
        return self._too_few(len(answered))

    def _too_few(self, answered: int) -> Fault:
        faults = [o for o in self.outcomes if isinstance(o, Fault)]
        text = f"{answered} of {self.nodes} nodes answered, and {self.needed} are needed"
        if faults:
            text += f" ({faults[0].text})"
            if all(fault.final for fault in faults) and len(faults) > self.nodes - self.needed:
                return Fault(faults[0].kind, text, final=True)
        return Fault(FaultKind.UNANSWERED, text, maybe_applied=True)


class LeaveVotes(MergedVotes):
    """The answers to a release: what a node did not answer is its delivery from then on.

    Args:
        nodes: How many nodes there are.
        make: Makes the delivery, for nodes that have to be asked again.
        votes: How each node voted for the token: only one that may hold it has to be asked again; None: each.
    """

    __slots__ = ("_delivery", "_make", "_votes")

    def __init__(
        self, nodes: int, make: Callable[[], Delivery], votes: Sequence[Outcome | Fault | None] | None = None
    ) -> None:
        super().__init__(nodes)
        self._make = make
        self._delivery: Delivery | None = None
        self._votes = votes

    def late(self, index: int, outcome: Outcome | Fault) -> None:
        """A node that will not answer after all has to be asked again."""
        if isinstance(outcome, Fault) and (self._votes is None or may_hold(self._votes[index])):
            if self._delivery is None:
                self._delivery = self._make()
            self._delivery.ask_again(index)


def may_hold(outcome: Outcome | Fault | None) -> bool:
    """Whether a node may have, or get, a vote that was asked for with this outcome."""
    if isinstance(outcome, Fault):
        return outcome.maybe_applied
    return not isinstance(outcome, (Busy, Dead))


def _shows(look: Look) -> tuple[str, bool]:
    return look.holder, look.left_ms == NOBODY_MS


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
