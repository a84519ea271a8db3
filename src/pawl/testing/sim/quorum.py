"""The third runtime for several independent masters: ``tasks`` share a connection to each, ``threads`` do not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pawl.core.quorum import NOT_ASKED, Ballot, MergedVotes, Question, spread
from pawl.core.roster import Roster
from pawl.core.runtime import DEAF, Call, Fault, FaultKind, Reply
from pawl.primitives.probe import probe
from pawl.testing.sim.network import Link, Network, Request
from pawl.testing.sim.runtime import SimRuntime
from pawl.testing.sim.waits import Sleep
from pawl.testing.sim.world import Process, Task, suspend

if TYPE_CHECKING:
    from pawl.core.redlock import RedlockOptions
    from pawl.testing.sim.fleet import Fleet

__all__ = ["QuorumSimRuntime"]

_GREETING = 0.25
_GRACE = 0.05
_LOOK = 0.005
_NOT_YET = Fault(FaultKind.UNREACHABLE, "not connected yet")


class _Asked:
    """A question under way: counts the answers, and wakes its asker once."""

    __slots__ = ("ballot", "done", "missing", "tell")

    def __init__(self, ballot: Ballot, missing: int, tell: _Tell) -> None:
        self.ballot = ballot
        self.missing = missing
        self.done = False
        self.tell = tell

    def take(self, index: int, outcome: Any) -> None:
        self.missing -= 1
        if self.done:
            self.ballot.late(index, outcome)
        elif self.ballot.add(index, outcome) or not self.missing:
            self.done = True
            self.tell.one_done()


class _Tell:
    """Wakes the asker when all its questions are decided."""

    __slots__ = ("open", "step", "task")

    def __init__(self, task: Task, questions: int) -> None:
        self.task = task
        self.step = task.step
        self.open = questions

    def one_done(self) -> None:
        self.open -= 1
        if not self.open:
            self.task.wake(self.step)


class QuorumSimRuntime(SimRuntime):
    """See ``pawl.core.runtime.Runtime`` and ``pawl.core.quorum.QuorumRuntime``.

    Args:
        process: Where it runs.
        network: What its connections run through.
        fleet: The masters.
        colour: ``"threads"`` or ``"tasks"``.
        options: How they are treated.
    """

    def __init__(
        self, process: Process, network: Network, fleet: Fleet, colour: str, options: RedlockOptions
    ) -> None:
        super().__init__(process, network, fleet, colour)
        self.nodes: tuple[str, ...] = tuple(node.name for node in fleet.nodes)
        self.ahead_us: float = 0.0
        self.ahead_at: float = 0.0
        self._drops = 0
        self._roster = Roster(self.nodes, options.max_ttl, fresh=options.fresh)
        self._probe = probe("sim")
        self._node_timeout = options.node_timeout
        self._held: dict[tuple[Task | None, int], Link] = {}
        self._looked = False
        self._looking = False

    def remembers(self) -> bool:
        """See ``QuorumRuntime``."""
        return self._roster.remembers()

    def channel(self) -> str:
        """See ``Runtime``: nobody is woken here, since nobody queues."""
        return DEAF

    def line(self) -> None:
        """See ``Runtime``: there is not one."""

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``: the first call meets the nodes, and other callers wait with it."""
        if not self._looking:
            self._looking = True
            Task(self._process, "connect", self._look_around(max(timeout, _GREETING)), _ended)
        while not self._looked and not self.ending:
            await Sleep(self._process).park(_LOOK)

    # Questions --------------------------------------------------------------------------------------------------

    def _owner(self) -> Task | None:
        return self._world.current if self._threads else None

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``QuorumRuntime``."""
        if self.ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if not self._looked:
            await self.ready(timeout)
        links = [await self._link_to(index) for index in range(len(self.nodes))]
        tell = _Tell(self._me(), len(questions))
        for calls, ballot in questions:
            self._pose(calls, _Asked(ballot, len(calls), tell), links, timeout)
        await suspend()

    def _pose(
        self, calls: Sequence[Call | None], question: _Asked, links: Sequence[Link | Fault], timeout: float
    ) -> None:
        for index, (call, link) in enumerate(zip(calls, links, strict=True)):
            if call is None:
                question.take(index, NOT_ASKED)
            elif isinstance(link, Fault):
                question.take(index, link)
            else:
                self._post(link, call, timeout, question.take, index)

    def send(self, calls: Sequence[Call | None]) -> None:
        """See ``QuorumRuntime``."""
        owner = self._owner()
        for index, call in enumerate(calls):
            link = self._held.get((owner, index))
            if call is not None and link is not None and not link.dead and self._process.alive:
                self._post(link, call, 1.0, _dropped)

    def sender(self, *, background: bool = False) -> tuple[object, int]:
        """See ``QuorumRuntime``."""
        if background and self._threads:
            return None, 0
        return self._owner() or self, self._drops

    def cast(self, call: Call) -> None:
        """See ``Runtime``."""
        if self._world.current is not None or not self._threads:
            self.send(spread(call, len(self.nodes)))

    async def call(self, call: Call, timeout: float) -> Reply:  # type: ignore[override]
        """See ``Runtime``: all nodes are asked; the answer is the majority's."""
        votes = MergedVotes(len(self.nodes))
        await self.ask([(spread(call, len(self.nodes)), votes)], timeout)
        return votes.reply()

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Reply | Fault]:
        """See ``Runtime``."""
        count = len(self.nodes)
        questions = [(spread(call, count), MergedVotes(count)) for call in calls]
        try:
            await self.ask(questions, timeout)
        except Fault as fault:
            return [fault] * len(calls)
        return [votes.result() for _, votes in questions]

    # Nodes ------------------------------------------------------------------------------------------------------

    async def _link_to(self, index: int) -> Link | Fault:
        """The caller's connection to a node, made anew where a node is back; a node that is gone costs nothing."""
        node, key = self._roster.nodes[index], (self._owner(), index)
        link = self._held.get(key)
        now = self.now()
        if (link is None or link.dead) and node.fault is not None and now >= node.retry_at:
            self._look_at(index)
        objection = node.objection(now)
        if objection is not None:
            return objection
        if (link is None or link.dead) and self._threads:
            # Another thread met it already: this one needs a connection of its own.
            link = await self._meet(index, self._me(), self._node_timeout)
        return _NOT_YET if link is None or link.dead else link

    def _look_at(self, index: int) -> None:
        node = self._roster.nodes[index]
        if not node.meeting and not self.ending:
            node.meeting = True
            Task(self._process, "connect", self._visit(index), _ended)

    async def _visit(self, index: int) -> None:
        try:
            link = await self._meet(index, None, max(self._node_timeout, _GREETING))
            if link is not None and self._threads:
                link.close(Fault(FaultKind.CLOSED, "looked"))
        finally:
            self._roster.nodes[index].meeting = False

    async def _meet(self, index: int, owner: Task | None, timeout: float) -> Link | None:
        """Connect to a node and learn what it is; None, and noted, if that fails."""
        self._channels += 1
        channel = f"wake:{self._process.name}:{self._process.life}:{self._channels}"
        node = self.servers[index]
        link = Link(self._network, self._process, node, channel, self._woken, partial(self._node_gone, index))
        task = self._me()
        step = task.step
        link.greet(lambda fault: task.wake(step, fault or link))
        task.over_in(timeout)
        outcome = await suspend()
        if outcome is link:
            self._post(link, self._probe, timeout, task.wake, task.step)
            outcome = await suspend()
        if isinstance(outcome, list):
            outcome = self._roster.met(index, outcome[2].decode(), self.now())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType] - a reply, so of anything
            if outcome is None and not self.ending:
                self._held[owner, index] = link
                return link
        fault = outcome if isinstance(outcome, Fault) else Fault(FaultKind.UNREACHABLE, "no connection")
        self._failed(index, fault)
        link.close(fault)
        return None

    def _failed(self, index: int, fault: Fault) -> None:
        self._roster.nodes[index].failed(fault, self.now(), self.random())

    def _node_gone(self, index: int, link: Link) -> None:
        self._drops += 1
        for key, held in list(self._held.items()):
            if held is link:
                del self._held[key]
                if not self.ending and not (self._threads and key[0] is None):
                    self._failed(index, Fault(FaultKind.UNREACHABLE, "the connection ended"))

    def _overdue(self, link: Link, request: Request) -> bool:
        """Give up a request; one that stays silent condemns its connection."""
        request.end(Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True))
        if link.heard_at < request.sent_at:
            link.silent += 1
            if link.silent >= 2:
                link.close(Fault(FaultKind.UNANSWERED, "the server is silent", maybe_applied=True))
                return False
        return True

    async def _look_around(self, timeout: float) -> None:
        for index in range(len(self.nodes)):
            self._look_at(index)
        end = self.now() + timeout * 2
        needed = len(self.nodes) // 2 + 1
        while self.now() < end and any(node.meeting for node in self._roster.nodes):
            await Sleep(self._process).park(_LOOK)
            if sum(node.fault is None for node in self._roster.nodes) >= needed:
                end = min(end, self.now() + _GRACE)
        self._looked = True

    # The end ----------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """See ``SimRuntime``."""
        super().shut_down()
        for link in list(self._held.values()):
            link.close(Fault(FaultKind.CLOSED, "the client is closed", final=True))


def _dropped(*_: object) -> None:
    """Nobody waits for the reply."""


def _ended(task: Task, error: BaseException | None) -> None:
    if error is not None:
        raise AssertionError(f"{task.name} ended") from error
