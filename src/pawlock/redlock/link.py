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
from typing import Any, Generic, Protocol, TypeVar

from pawlock.core.faults import or_raise
from pawlock.core.outcomes import Busy, Dead, Granted, Outcome
from pawlock.core.runtime import NO_CHANNEL, Call, Fault, FaultKind, Parker
from pawlock.model import QuorumInfo
from pawlock.redlock.nodes import Incarnation, KnownMasters, Node
from pawlock.redlock.requests import Vote
from pawlock.redlock.votes import Question, Votes, majority

__all__ = ["MastersRuntime", "NodeLink"]

_FIRST_WAIT = 0.5
"""Seconds that who asks for a grant waits for connections to a majority, at least."""

_GRACE = 0.05
"""Seconds by which it waits for those beyond the majority."""

_STEP = 0.002
"""Seconds between two looks at connections that are being made."""

_HANDSHAKE = 1.0
"""Seconds for a handshake, at least: a script answers sooner, but a busy machine needs this to log somebody in."""

_AHEAD_US = 500.0
_CLOCK_FOR = 10.0
"""Seconds after which the nodes are asked for their clocks again: a proposed fence must stay near them."""


class NodeLink(Protocol):
    """A connection to one node."""

    incarnation: Incarnation
    """To which it leads: only its own handshake showed that."""

    def post(self, question: Question) -> None:
        """Send a question; the node takes the answers."""
        ...


L = TypeVar("L", bound=NodeLink)


class _Won(Granted):
    """A grant by a majority, with the votes for it."""

    votes: tuple[float, Callable[[], QuorumInfo]]

    @property
    def quorum(self) -> tuple[float, Callable[[], QuorumInfo]]:
        """See ``Granted``."""
        return self.votes


class MastersRuntime(ABC, Generic[L]):
    """A part of each runtime of several masters; see ``pawlock.core.runtime.Runtime``."""

    now: Callable[[], float]
    random: Callable[[], float]
    sleep: Callable[[float], Coroutine[Any, Any, None]]
    pause: Callable[[float], Coroutine[Any, Any, None]]
    parker: Callable[[], Parker]
    _ending: bool

    def _treat(self, known: KnownMasters) -> None:
        """Take over what is known of the masters."""
        self._known = known
        # The latest clock of a node, in µs, minus this client's at the send, and when that was learnt.
        self._ahead_us = 0.0
        self._ahead_at = 0.0
        self._forget()

    def _forget(self) -> None:
        """No connection is ours, as at first."""
        known = self._known
        self._nodes = [Node(index, known, self.now, self.random) for index in range(len(known.shown))]
        # Of who shares one connection to each node, those that there are.
        self._shared: dict[int, L] = {}

    @property
    def fence_strength(self) -> str:
        """See ``Runtime``."""
        return "quorum" if self._known.remembers() else "best_effort"

    @property
    def several(self) -> bool:
        """See ``Carrier``: nothing is asked of one of them alone."""
        return True

    def channel(self) -> str:
        """See ``Runtime``: nobody is woken here, since nobody queues."""
        return NO_CHANNEL

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``: there is nothing to subscribe to."""

    async def call(self, call: Call | Vote, timeout: float) -> Outcome:
        """See ``Runtime``: all nodes are asked; the answer is the majority's."""
        if isinstance(call, Vote):
            return await self._vote(call, timeout)
        return or_raise((await self.call_many([call], max(timeout, self._known.timeout)))[0])

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        # Who waits has no more time where there is no connection yet: the background has ends of leases to report.
        question = Question(calls, len(self._nodes), timeout, since=self.now())
        await self._ask(question, timeout)
        return [votes.result() for votes in question.votes]

    # Grants -----------------------------------------------------------------------------------------------------

    async def _vote(self, vote: Vote, timeout: float) -> Outcome:
        """Have a majority grant what is asked for; or take all of it back, and say why there is none."""
        now, proposal, mutex = self.now(), 0, vote.mutex
        if self._ahead_us and now - self._ahead_at <= _CLOCK_FOR:
            # A little above all clocks that were seen.
            proposal = int(now * 1e6 + self._ahead_us + _AHEAD_US)
        question = await self._ask_for(mutex.grant(vote, proposal), timeout)
        votes, sent_at = question.votes[0], question.sent_at
        counted = votes
        if not proposal:
            self._learn_clock(votes, sent_at)
        if votes.won:
            granted = votes.of(Granted)
            fences = [one.fence for one in granted]
            fence, left_ms = max(fences), min([one.left_ms for one in granted])
            if fences.count(fence) < votes.needed:
                counted = (await self._ask_for(mutex.ratify(vote, fence), timeout)).votes[0]
            if counted.won:
                return self._won(vote, votes, sent_at, fence, left_ms)
        if not counted.lacking:
            held = counted.held_by(vote.token.partition("@")[2])
            if held is not None:
                words = counted.words(self._known.shown)
                await self.call_many([mutex.leave(vote.token, 0, 0)], self._known.timeout)
                if len(counted.of(Busy)) < counted.needed:
                    await self.sleep(self.random() * self._known.timeout)
                return held._replace(outcomes=words)
            known = (Fault, Granted, Busy, type(None))
            if refused := [outcome for outcome in counted.outcomes if not isinstance(outcome, known)]:
                return refused[0]
        raise self._too_few(votes, counted)

    async def _ask_for(self, call: Call, timeout: float) -> Question:
        """A caller's time is kept within one node's."""
        least = self._known.timeout
        patience = min(self._known.patience, max(timeout, least))
        question = Question([call], len(self._nodes), least, patience)
        await self._ask(question, max(timeout, _FIRST_WAIT))
        return question

    def _won(self, vote: Vote, votes: Votes, sent_at: float, fence: int, left_ms: int) -> Granted:
        shown, options = self._known.shown, self._known.options
        left = options.valid_until(sent_at, left_ms, vote.ttl_ms) - self.now()
        if left <= 0:
            text, words = "it had expired by the time a majority had answered", votes.words(shown)
            raise Fault(FaultKind.LATE, text, maybe_applied=True, outcomes=words)
        found = _Won(fence, left_ms, 0)
        drift = options.drift(min(left_ms, vote.ttl_ms) / 1000)
        found.votes = sent_at, partial(votes.info, shown, left, drift)
        return found

    def _too_few(self, votes: Votes, counted: Votes) -> Fault:
        words = (counted if counted.lacking else votes).words(self._known.shown)
        given = sum(word == "granted" for word in words.values())
        answers = "; ".join(f"{node}: {word}" for node, word in words.items())
        text = f"{given} of {votes.nodes} nodes granted it, and {votes.needed} are needed ({answers})"
        return counted.fault(text, words)

    def _learn_clock(self, votes: Votes, sent_at: float) -> None:
        """Take note of the nodes' clocks."""
        clocks = [o.clock for o in votes.outcomes if isinstance(o, (Granted, Busy, Dead)) and o.clock]
        if clocks:
            # By majority, so that one node whose clock jumped does not make every proposal useless.
            middle = sorted(clocks)[len(clocks) // 2]
            close = [clock for clock in clocks if clock - middle < 1_000_000]
            self._ahead_us = max(close) - sent_at * 1e6
            self._ahead_at = sent_at

    # Questions --------------------------------------------------------------------------------------------------

    async def _ask(self, question: Question, timeout: float) -> None:
        """Send a question to all nodes, and return once it is decided or its time is up.

        Args:
            question: What to ask.
            timeout: Seconds to wait before for connections to a majority, where there are none.
        """
        await self._put(question, self._shared, timeout)

    async def _put(self, question: Question, links: dict[int, L], timeout: float) -> None:
        """The same over these connections, to which those that are missing are added."""
        closed = Fault(FaultKind.CLOSED, "the client is closed", final=True) if self._ending else None
        if closed is None:
            await self._lead(links, timeout)
        question.sent_at = now = self.now()
        for node in self._nodes:
            link = links.get(node.index)
            objection = closed or (node.fault if link is None else link.incarnation.objection(now))
            if link is not None and objection is None:
                link.post(question)
                continue
            for at in range(len(question.calls)):
                node.take(question, at, objection or Fault(FaultKind.UNREACHABLE, "not connected yet"))
        await self._hear(question, links)
        # Where too few answered they may be slow, and not gone: the next time they have longer.
        self._known.took(self.now() - now)

    async def _hear(self, question: Question, links: dict[int, L]) -> None:
        """Return once a question that was sent is decided or its time is up."""
        del links
        parker = self.parker()
        question.told = parker.unpark
        while not question.over(self.now()):
            await parker.park(max(0.0, question.until - self.now()))

    # Nodes ------------------------------------------------------------------------------------------------------

    async def _lead(self, links: dict[int, L], timeout: float) -> None:
        """Have a caller lead to a majority of the nodes at least, within ``timeout`` seconds.

        Who lacks a majority waits for so long; nobody waits for the nodes beyond it alone.
        """
        end, waits, begun = self.now() + timeout, False, set[Node]()
        while True:
            self._take_idle(links)
            missing = [node for node in self._nodes if node.index not in links]
            now = self.now()
            if len(links) >= majority(len(self._nodes)):
                end = min(end, now + _GRACE) if waits else now
            for node in missing:
                # One that is there is met by each who needs a connection of its own, and one that is gone by one.
                alone = node.fault is None or not node.meetings
                if alone and node not in begun and now >= node.retry_at:
                    begun.add(node)
                    self._begin_meeting(node)
            if now >= end or not any(node.meetings for node in missing):
                return
            waits = True
            await self.pause(_STEP)

    def _take_idle(self, links: dict[int, L]) -> None:
        """Take connections that nobody uses."""

    @abstractmethod
    def _begin_meeting(self, node: Node) -> None:
        """Have ``_meet`` run in the background, and note in the ``meetings`` of the node that it does."""

    async def _meet(self, node: Node) -> None:
        try:
            await self._join(node, max(self._known.timeout, _HANDSHAKE))
        except Fault as fault:
            node.failed(fault)

    @abstractmethod
    async def _join(self, node: Node, timeout: float) -> None:
        """Connect to a node, and learn what it is. Raises ``Fault``."""
