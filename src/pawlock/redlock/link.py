"""One request to all masters, one answer: what each runtime of several masters does in the same way.

Rules:

1. Every try has a token of its own (``poll`` of the core); one for which a leave was sent is never asked for again.
2. A grant counts once a majority that holds the token knows its fence (see ``votes``), and if it is still valid then.
   Validity is counted from before the first question was sent.
3. What is refused because others hold the name is undone at once: one leave to all nodes, over any connection, with a
   tombstone for votes that are still to come. What failed is not known: the core asks again with the same token, or
   leaves it.
4. A leave that a node did not answer is owed to it: it is sent once more, before anything else, on the next connection
   to that node. After that the node keeps the token until its ttl is over: a vote that is left over blocks a name, and
   grants nothing (``formal/votes.pml``).
5. The outcome is decided by the answers that came in time. "Held by another" is only said where a node said so, and
   "too few answered" only where failures alone leave no majority.
6. A candidate whose votes were split rests for a random time, so that they do not split again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from pawlock.core.protocol.faults import or_raise
from pawlock.core.protocol.outcomes import Busy, Dead, Granted, Outcome
from pawlock.core.protocol.runtime import DEAF, Call, Fault, FaultKind
from pawlock.model import NodeVote, QuorumInfo
from pawlock.redlock.nodes import Incarnation, Incarnations, KnownNodes
from pawlock.redlock.options import RedlockOptions
from pawlock.redlock.requests import Vote
from pawlock.redlock.votes import GrantVotes, MergedVotes, Votes, majority

__all__ = ["HANDSHAKE_TIMEOUT", "NOT_CONNECTED", "MastersRuntime", "Question"]

NOT_CONNECTED = Fault(FaultKind.UNREACHABLE, "not connected yet")
"""What counts as the answer of a node without a connection."""

_FIRST_WAIT = 0.5
"""Seconds that who asks for a grant waits for connections to a majority, at least."""

_GRACE = 0.05
"""Seconds by which it waits for those beyond the majority."""

_STEP = 0.002
"""Seconds between two looks at connections that are being made."""

HANDSHAKE_TIMEOUT = 1.0
"""Seconds for a handshake, at least: a script answers sooner, but a busy machine needs this to log somebody in."""

_AHEAD_US = 500.0
_CLOCK_FOR = 10.0
"""Seconds after which the nodes are asked for their clocks again: a proposed fence must stay near them."""


class _Won(Granted):
    """A grant by a majority, with the votes for it."""

    votes: Callable[[], QuorumInfo]

    @property
    def quorum(self) -> Callable[[], QuorumInfo]:
        """See ``Granted``."""
        return self.votes


class Question:
    """A request that goes to all nodes: takes their answers until it is decided.

    Args:
        call: What each node is sent.
        votes: Counts the answers.
        timeout: Seconds after which who has not answered counts as failed.
        patience: Seconds for which it is listened to while that is worth it.
        since: From when on its time counts; None: from when it is sent.

    Attributes:
        decided: True once nobody needs to wait any more.
        sent_at: When it was sent.
        until: When its time is up.
        told: Called once it is decided.
    """

    __slots__ = (
        *(
            "_missing",
            "_since",
            "call",
            "decided",
            "patience",
            "sent_at",
            "timeout",
            "told",
            "until",
            "votes",
        ),
    )

    def __init__(
        self,
        call: Call,
        votes: Votes,
        timeout: float,
        patience: float = 0.0,
        since: float | None = None,
    ) -> None:
        self.call: Call = call
        self.votes: Votes = votes
        self.timeout: float = timeout
        self.patience: float = max(timeout, patience)
        self.decided: bool = False
        self.sent_at: float = 0.0
        self.until: float = 0.0
        self.told: Callable[[], object] | None = None
        self._missing = votes.nodes
        self._since = since

    def begin(self, now: float, told: Callable[[], object] | None = None) -> None:
        """It is sent now."""
        self.sent_at, self.told = now, told
        self.until = (now if self._since is None else self._since) + self.timeout

    def take(self, index: int, outcome: Outcome | Fault) -> None:
        """Count an answer."""
        self._missing -= 1
        if self.decided:
            self.votes.late(index, outcome)
        elif self.votes.add(index, outcome) or not self._missing:
            self._decide()

    def overdue(self, now: float) -> bool:
        """Whether it is over: who has not answered in time counts as failed, and an answer of theirs as late."""
        if self.decided or now < self.until:
            return self.decided
        if self.votes.worth_a_wait and now < self.sent_at + self.patience:
            self.until = self.sent_at + self.patience
            return False
        span = self.until - self.sent_at
        fault = Fault(FaultKind.UNANSWERED, f"no answer within {span:.3g} s", maybe_applied=True)
        for index, outcome in enumerate(self.votes.outcomes):
            if outcome is None:
                self.votes.add(index, fault)
        self._decide()
        return True

    def _decide(self) -> None:
        self.decided = True
        if self.told is not None:
            self.told()


class MastersRuntime(ABC):
    """A part of each runtime of several masters; see ``pawlock.core.protocol.runtime.Runtime``."""

    now: Callable[[], float]
    random: Callable[[], float]
    sleep: Callable[[float], Coroutine[Any, Any, None]]
    pause: Callable[[float], Coroutine[Any, Any, None]]
    nodes: tuple[str, ...]

    def _treat(self, options: RedlockOptions, known: KnownNodes, probe: Call) -> None:
        """Take over how the masters are treated, what is known of them, and what asks one for its incarnation."""
        self._options = options
        self._known = known
        self._incarnations: Incarnations = known.incarnations
        self._probe = probe
        self.nodes = tuple(node.shown for node in known.nodes)
        # The latest clock of a node, in µs, minus this client's at the send, and when that was learnt.
        self._ahead_us = 0.0
        self._ahead_at = 0.0

    @abstractmethod
    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """Send all questions to all nodes, and return once each of them is decided or over.

        Args:
            questions: What to ask.
            timeout: Seconds to wait before for connections to a majority, where there are none.
        """

    @property
    def fence_strength(self) -> str:
        """See ``Runtime``."""
        return "quorum" if self._incarnations.remembers() else "best_effort"

    @property
    def several(self) -> bool:
        """See ``Carrier``: nothing is asked of one of them alone."""
        return True

    def channel(self) -> str:
        """See ``Runtime``: nobody is woken here, since nobody queues."""
        return DEAF

    async def ready(self, timeout: float) -> None:  # noqa: B027 - as above
        """See ``Runtime``: there is nothing to subscribe to."""

    async def call(self, call: Call | Vote, timeout: float) -> Outcome:
        """See ``Runtime``: all nodes are asked; the answer is the majority's."""
        if isinstance(call, Vote):
            return await self._vote(call, timeout)
        return or_raise((await self.call_many([call], max(timeout, self._incarnations.timeout)))[0])

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        votes = [MergedVotes(len(self.nodes)) for _ in calls]
        # Who waits has no more time where there is no connection yet: the background has ends of leases to report.
        now = self.now()
        questions = [Question(call, one, timeout, 0.0, now) for call, one in zip(calls, votes, strict=True)]
        try:
            await self._put(questions, timeout)
        except Fault as fault:
            return [fault] * len(calls)
        return [one.result() for one in votes]

    async def _put(self, questions: Sequence[Question], timeout: float) -> None:
        """Ask, and learn how long a majority takes to answer."""
        await self.ask(questions, timeout)
        first = questions[0]
        took = self.now() - first.sent_at
        # They may be slow, and not gone: the next time they have twice as long.
        self._incarnations.took(took / 2 if took >= first.timeout and first.votes.lacking else took)

    # Grants -----------------------------------------------------------------------------------------------------

    async def _vote(self, vote: Vote, timeout: float) -> Outcome:
        """Have a majority grant what is asked for; or take all of it back, and say why there is none."""
        sent_at = self.now()
        clock = not self._ahead_us or sent_at - self._ahead_at > _CLOCK_FOR
        # A little above all clocks that were seen.
        proposal = int(sent_at * 1e6 + self._ahead_us + _AHEAD_US) if self._ahead_us else 0
        plain = None if clock else Granted(proposal, vote.ttl_ms, 0)
        votes = await self._ask_for(
            vote.grant(proposal, clock=clock), GrantVotes(len(self.nodes), plain), timeout
        )
        if clock:
            self._learn_clock(votes, sent_at)
        counted = votes
        if votes.won and not votes.agreed:
            counted = await self._ask_for(vote.ratify(votes.fence), GrantVotes(len(self.nodes)), timeout)
        if counted.won:
            valid = self._options.valid_until(sent_at, votes.left_ms, vote.ttl_ms)
            left = valid - self.now()
            if left <= 0:
                raise self._too_late(votes)
            found = _Won(votes.fence, votes.left_ms, 0)
            drift = self._options.drift(min(votes.left_ms, vote.ttl_ms) / 1000)
            found.votes = partial(_info, votes, self.nodes, left, drift)
            return found
        if not counted.lacking:
            held = counted.held_by(vote.token.partition("@")[2])
            if held is not None:
                words = counted.words(self.nodes)
                await self.call_many([vote.undo()], self._incarnations.timeout)
                if len(counted.of(Busy)) < counted.needed:
                    await self.sleep(self.random() * self._incarnations.timeout)
                return held._replace(outcomes=words)
            if refused := [
                o for o in counted.outcomes if not isinstance(o, (Fault, Granted, Busy, type(None)))
            ]:
                return refused[0]
            if any(granted.fence <= 0 for granted in counted.of(Granted)):
                # Granted unseen, and the fence went with the node's fence key: a token of no use.
                return Dead()
        raise self._too_few(votes, counted)

    async def _ask_for(self, call: Call, votes: GrantVotes, timeout: float) -> GrantVotes:
        """A caller's time is kept within one node's."""
        incarnations = self._incarnations
        patience = min(incarnations.patience, max(timeout, incarnations.timeout))
        question = Question(call, votes, incarnations.timeout, patience)
        await self._put([question], max(timeout, _FIRST_WAIT))
        return votes

    def _too_late(self, votes: GrantVotes) -> Fault:
        text = "it had expired by the time a majority had answered"
        return Fault(FaultKind.LATE, text, maybe_applied=True, outcomes=votes.words(self.nodes))

    def _too_few(self, votes: GrantVotes, counted: GrantVotes) -> Fault:
        words = (counted if counted.lacking else votes).words(self.nodes)
        given = sum(word == "granted" for word in words.values())
        answers = "; ".join(f"{node}: {word}" for node, word in words.items())
        failed = len(counted.of(Fault))
        fault = counted.fault(
            f"{given} of {votes.nodes} nodes granted it, {votes.needed} are needed, and {failed} did not answer "
            f"({answers})"
        )
        fault.outcomes = words
        return fault

    def _learn_clock(self, votes: GrantVotes, sent_at: float) -> None:
        """Take note of the nodes' clocks, where they sent them."""
        clocks = [
            clock for o in votes.outcomes if isinstance(o, (Granted, Busy, Dead)) and (clock := o.clock)
        ]
        if clocks:
            # By majority, so that one node whose clock jumped does not make every proposal useless.
            middle = sorted(clocks, reverse=True)[len(clocks) // 2 if len(clocks) > 2 else 0]
            close = [clock for clock in clocks if clock - middle < 1_000_000]
            self._ahead_us = max(close) - sent_at * 1e6
            self._ahead_at = sent_at

    # Nodes ------------------------------------------------------------------------------------------------------

    def _met(self, index: int, facts: Outcome) -> tuple[Incarnation, list[Call]]:
        """Take note of what a node said of itself on a new connection.

        Returns:
            The incarnation to which it leads, and what is to be sent to it first. Raises ``Fault``.
        """
        incarnation = self._known.met(index, getattr(facts, "info", ""), self.now())
        if isinstance(incarnation, Fault):
            raise incarnation
        return incarnation, self._known.nodes[index].take_owed(self.now())

    def _lost(self, index: int, fault: Fault) -> None:
        """A connection to a node broke, or could not be made."""
        self._known.nodes[index].failed(fault, self.now(), self.random())

    async def _connect_all(self, missing: Callable[[], list[int]], timeout: float) -> None:
        """Have a caller lead to a majority of the nodes at least, within ``timeout`` seconds.

        Args:
            missing: To which nodes it has no connection, now that it took what there is.
            timeout: Who lacks a majority waits for so long; nobody waits for the nodes beyond it alone.
        """
        nodes = self._known.nodes
        begun: set[int] = set()
        end, waits = self.now() + timeout, False
        while lacking := missing():
            now = self.now()
            if len(nodes) - len(lacking) >= majority(len(nodes)):
                end = min(end, now + _GRACE) if waits else now
            for index in lacking:
                # One that is there is met again by each who needs a connection of its own, and one that is gone by one.
                there = nodes[index].fault is None and index not in begun
                back = nodes[index].fault is not None and not nodes[index].meetings
                if (there and self._known.objection(index, now) is None) or (
                    back and now >= nodes[index].retry_at
                ):
                    begun.add(index)
                    self._begin_meeting(index)
            if now >= end or not any(nodes[index].meetings for index in lacking):
                return
            waits = True
            await self.pause(_STEP)
            begun = {index for index in begun if nodes[index].meetings}

    def _objection(self, index: int, incarnation: Incarnation | None, now: float) -> Fault | None:
        """Why a node is not asked now over a connection that leads to an incarnation; None: ask."""
        if incarnation is None:
            return self._known.objection(index, now)
        # Only its own handshake showed to which it leads.
        return incarnation.objection(now) if now < incarnation.counts_from else None

    @abstractmethod
    def _begin_meeting(self, index: int) -> None:
        """Make a connection to a node in the background, and note in its ``meetings`` who does."""

    def _take(self, index: int, question: Question, outcome: Outcome | Fault) -> None:
        """Count a node's answer. What gives a token back is sent once more if the node did not answer."""
        if isinstance(outcome, Fault) and question.call.name == "leave":
            self._known.nodes[index].owe(question.call, self.now())
        question.take(index, outcome)


def _info(votes: GrantVotes, nodes: tuple[str, ...], validity: float, drift: float) -> QuorumInfo:
    listed = tuple(
        NodeVote(node, word, isinstance(o, Granted))
        for (node, word), o in zip(votes.words(nodes).items(), votes.outcomes, strict=True)
    )
    return QuorumInfo(listed, votes.needed, validity, drift)
