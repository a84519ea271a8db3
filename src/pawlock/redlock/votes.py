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

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from pawlock.core.faults import is_transient
from pawlock.core.outcomes import NOBODY_MS, Busy, Granted, Look, Outcome, Released
from pawlock.core.runtime import Call, Fault, FaultKind
from pawlock.model import NodeVote, QuorumInfo

__all__ = ["Question", "Votes", "majority", "merge_inspect"]

T = TypeVar("T")


def majority(nodes: int) -> int:
    """The least number of ``nodes`` such that any two groups of that size share a member."""
    return nodes // 2 + 1


class Votes:
    """The answers of all nodes to one request.

    Args:
        nodes: How many nodes there are.

    Attributes:
        needed: The majority.
        outcomes: What each node answered; None: nothing yet.
        decided: Whether nobody else need be waited for; what comes then is for the record.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes: int = nodes
        self.needed: int = majority(nodes)
        self.outcomes: list[Outcome | Fault | None] = [None] * nodes
        self.decided: bool = False
        self._missing = nodes
        # How many said the same: True for yes.
        self._counts: dict[Hashable, int] = {}

    def take(self, index: int, outcome: Outcome | Fault) -> bool:
        """Note an answer; True if it decides: a majority says the same, or nobody else is to answer."""
        self.outcomes[index] = outcome
        if self.decided:
            return False
        self._missing -= 1
        said = _said(outcome)
        count = self._counts[said] = self._counts.get(said, 0) + 1
        self.decided = not self._missing or (count >= self.needed and said is not Fault)
        return self.decided

    def of(self, kind: type[T]) -> list[T]:
        """The answers of a kind."""
        return [o for o in self.outcomes if type(o) is kind]

    @property
    def won(self) -> bool:
        """Whether a majority said yes."""
        return self._counts.get(True, 0) >= self.needed

    @property
    def lacking(self) -> bool:
        """Whether so many nodes failed that there is no majority without them."""
        return self._counts.get(Fault, 0) > self.nodes - self.needed

    @property
    def worth_a_wait(self) -> bool:
        """Whether to listen on once a node's time is up: a split vote ends in time, so that others can proceed."""
        return not self._counts.get(False) and not self.lacking

    def result(self) -> Outcome | Fault:
        """The one answer, such as a single master's, or why there is none.

        - A majority of yes is yes; the life is that of the majority's shortest.
        - A release that a majority answered and that at least one node carried out is done: no majority of the token is
          left.
        - A majority of no is no. Otherwise too few answered, and the outcome is not known: a ``Fault``.
        """
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
        why = self.of(Fault)[0].text
        return self.fault(
            f"{len(answered)} of {self.nodes} nodes answered, and {self.needed} are needed ({why})"
        )

    def fault(self, text: str, outcomes: dict[str, str] | None = None) -> Fault:
        """What becomes of the request where too few nodes answered: final if the others never will."""
        faults = self.of(Fault)
        lasting = [fault for fault in faults if fault.final or not is_transient(fault.kind)]
        if len(lasting) > self.nodes - self.needed:
            text = lasting[0].text
            return Fault(lasting[0].kind, text, maybe_applied=True, final=True, outcomes=outcomes)
        # What broke just now says nothing of the nodes; that they could not even be asked does.
        broke = any(fault.maybe_applied for fault in faults)
        kind = FaultKind.UNANSWERED if broke else FaultKind.UNREACHABLE
        return Fault(kind, text, maybe_applied=broke or len(faults) < self.nodes, outcomes=outcomes)

    def held_by(self, caller: str) -> Busy | None:
        """Who has the name, where a node said that somebody does.

        Args:
            caller: Who asks. A vote of its own that is not undone yet is nobody else's, unless a majority says so.
        """
        names = [busy.holder for busy in self.of(Busy)]
        own = names.count(caller) >= self.needed
        held = [busy for busy in self.of(Busy) if own or busy.holder != caller]
        # As most of the nodes that said so know it.
        return max(held, key=lambda busy: names.count(busy.holder), default=None)

    def words(self, nodes: Sequence[str]) -> dict[str, str]:
        """Each answer in words, by the node's address."""
        return {node: _word(o) for node, o in zip(nodes, self.outcomes, strict=True)}

    def info(self, nodes: Sequence[str], validity: float, drift: float) -> QuorumInfo:
        """What ``lease.quorum`` shows of a grant."""
        said = zip(nodes, self.outcomes, strict=True)
        votes = tuple([NodeVote(node, _word(o), isinstance(o, Granted)) for node, o in said])
        return QuorumInfo(votes, self.needed, validity, drift)


def _said(outcome: Outcome | Fault) -> Hashable:
    """What an answer counts as."""
    if isinstance(outcome, Look):
        return outcome.holder, outcome.left_ms == NOBODY_MS
    return Fault if isinstance(outcome, Fault) else isinstance(outcome, Granted)


def _word(outcome: Outcome | Fault | None) -> str:
    if outcome is None:
        return "no answer yet"
    if isinstance(outcome, Fault):
        return f"{outcome.kind.value}: {outcome.text}" if outcome.text else outcome.kind.value
    if isinstance(outcome, Granted):
        return "granted"
    if isinstance(outcome, Busy):
        return f"held by {outcome.holder or 'another'}"
    return "not granted"


def merge_inspect(looks: Sequence[Look], needed: int) -> Look:
    """What a majority of the nodes says of a name; free where no holder has a majority."""
    held = [look for look in looks if look.left_ms != NOBODY_MS]
    holders = [look.holder for look in held]
    top = max(holders, key=holders.count, default="")
    same = sorted([look for look in held if look.holder == top], key=lambda look: look.left_ms, reverse=True)
    last = max(look.last for look in looks)
    if len(same) < needed:
        return Look("", NOBODY_MS, max(look.fence for look in looks), last, looks[0].now_ms)
    # A vote that came after the decision may have a number of its own, which is nobody's fence.
    fences = [look.fence for look in same]
    return same[needed - 1]._replace(fence=max(fences, key=fences.count), last=last)


class Question:
    """Requests that go to all nodes together: takes their answers until each of them is decided.

    Args:
        calls: What each node is sent.
        nodes: How many nodes there are.
        timeout: Seconds after which who has not answered counts as failed.
        patience: Seconds for which it is listened to while that is worth it; at least the same.
        since: From when on its time counts; 0: from when it is sent.

    Attributes:
        votes: The answers to each request.
        sent_at: When it was sent.
        told: Called once all is decided.
    """

    def __init__(
        self, calls: Sequence[Call], nodes: int, timeout: float, patience: float = 0.0, since: float = 0.0
    ) -> None:
        self.calls: Sequence[Call] = calls
        self.votes: list[Votes] = [Votes(nodes) for _ in calls]
        self.timeout: float = timeout
        self.patience: float = max(timeout, patience)
        self.since: float = since
        self.sent_at: float = 0.0
        self.told: Callable[[], object] | None = None
        self._left = len(calls)

    @property
    def until(self) -> float:
        """When its time is up."""
        return (self.since or self.sent_at) + (self.patience if self.votes[0].worth_a_wait else self.timeout)

    def take(self, index: int, at: int, outcome: Outcome | Fault) -> None:
        """Count a node's answer to one of the requests."""
        if self.votes[at].take(index, outcome):
            self._left -= 1
            if not self._left and self.told is not None:
                self.told()

    def over(self, now: float) -> bool:
        """Whether all is decided; once its time is up it is, and who has not answered counts as failed."""
        if self._left and now >= self.until:
            text = f"no answer within {self.until - self.sent_at:.3g} s"
            fault = Fault(FaultKind.UNANSWERED, text, maybe_applied=True)
            for at, votes in enumerate(self.votes):
                for index in [index for index, outcome in enumerate(votes.outcomes) if outcome is None]:
                    self.take(index, at, fault)
        return not self._left
