"""The third runtime for several independent masters: ``tasks`` share a connection to each, ``threads`` do not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pawlock.core.protocol.outcomes import ServerFacts
from pawlock.core.protocol.quorum import NOT_ASKED, Ballot, Question, majority
from pawlock.core.protocol.runtime import Call, Fault, FaultKind
from pawlock.core.quorum.nodes import Incarnation, Incarnations, KnownNodes
from pawlock.primitives.probe import probe
from pawlock.primitives.redlock import SCRIPTS
from pawlock.runtimes.masters import MastersRuntime
from tests.simulator.network import Link, Network, Request
from tests.simulator.runtime import SimRuntime
from tests.simulator.waits import Sleep
from tests.simulator.world import Process, Task, suspend

if TYPE_CHECKING:
    from tests.simulator.fleet import Fleet

__all__ = ["QuorumSimRuntime"]

_HANDSHAKE_TIMEOUT = 1.0
_LEAST_HANDSHAKE_TIMEOUT = 0.25
_FIRST_MEETING = 0.5
_GRACE = 0.05
_POLL = 0.005
_MOST_IDLE = 4
_GONE = Fault(FaultKind.UNREACHABLE, "there is no connection")
_NOT_YET = Fault(FaultKind.UNREACHABLE, "not connected yet")


class _Asked:
    """A question under way: counts the answers, and wakes its asker once."""

    __slots__ = ("ballot", "done", "incarnations", "missing", "sent_at", "tell")

    def __init__(
        self, ballot: Ballot, missing: int, tell: _Tell | None, incarnations: Incarnations, sent_at: float
    ) -> None:
        self.ballot = ballot
        self.missing = missing
        self.done = False
        self.tell = tell
        self.incarnations = incarnations
        self.sent_at = sent_at

    def __call__(self, index: int, outcome: Any) -> None:
        self.take(index, outcome)

    def take(self, index: int, outcome: Any) -> None:
        self.missing -= 1
        if self.done:
            self.ballot.late(index, outcome)
        elif self.ballot.add(index, outcome) or not self.missing:
            self.done = True
            if self.tell is not None:
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


class _NodeLink(Link):
    """A connection to one of several masters: behind a vote its undo may be on its way, so it is not sent again."""

    def _turned_down(self, request: Request, reply: str) -> None:
        if self.pending and reply.startswith("NOSCRIPT") and request.call.script.name != "leave":
            # It is taught the script for the next vote.
            self.node.scripts.add(request.call.script.sha)
            request.end(Fault(FaultKind.NOT_READY, "it had forgotten the script"))
        else:
            super()._turned_down(request, reply)


class _ThreadLink(_NodeLink):
    """A connection that nobody looks at while nothing is awaited on it: that it broke is seen at its next use."""

    broken: str = ""

    def send(self, request: Request) -> None:
        """See ``Link``."""
        if self.broken and not self.dead:
            super().close(
                Fault(FaultKind.UNANSWERED, f"the connection broke: {self.broken}", maybe_applied=True)
            )
            request.end(Fault(FaultKind.UNANSWERED, "the connection broke", maybe_applied=True))
            return
        super().send(request)

    def _reset(self, text: str) -> None:
        if any(request.answered is not None for request in self.pending.values()):
            super()._reset(text)
        else:
            self.broken = text


class QuorumSimRuntime(MastersRuntime, SimRuntime):  # type: ignore[misc]  # ``SimRuntime.call`` is a step of the simulation
    """See ``pawlock.core.protocol.runtime.Runtime`` and ``pawlock.core.protocol.quorum.QuorumRuntime``.

    Args:
        process: Where it runs.
        network: What its connections run through.
        fleet: The masters.
        api: ``"threads"`` or ``"tasks"``.
        incarnations: What the client knows of them, in all its loops.
    """

    def __init__(
        self, process: Process, network: Network, fleet: Fleet, api: str, incarnations: Incarnations
    ) -> None:
        super().__init__(process, network, fleet, api)
        self.nodes: tuple[str, ...] = tuple(node.name for node in fleet.nodes)
        self._drops = 0
        self._incarnations = incarnations
        self._known_nodes = KnownNodes(incarnations)
        self._probe = probe("sim")
        self._life: dict[Link, Incarnation] = {}
        self._held: dict[tuple[Task | None, int], Link] = {}
        self._idle_by_node: list[list[Link]] = [[] for _ in self.nodes]
        self._met_all = False
        self._meeting = False
        self._meetings = 0

    def connection(self) -> None:
        """See ``Runtime``: there is not one."""

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``."""
        await self.meet(max(timeout, _FIRST_MEETING))

    async def meet(self, timeout: float) -> None:
        """See ``QuorumRuntime``: the first call meets the nodes, and other callers wait with it."""
        if not self._meeting:
            self._meeting = True
            Task(self._process, "connect", self._meet_all(_HANDSHAKE_TIMEOUT * 2), _ended)
        end = self.now() + timeout
        while not self._met_all and not self.ending and self.now() < end:
            await Sleep(self._process).park(_POLL)
        if self._met_all:
            await self._ensure_connected(timeout)

    # Questions --------------------------------------------------------------------------------------------------

    def _owner(self) -> Task | None:
        return self._world.current if self._threads else None

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``QuorumRuntime``."""
        if self.ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if not self._met_all:
            await self.ready(timeout)
        await self._ensure_connected(max(timeout, _LEAST_HANDSHAKE_TIMEOUT))
        links = [self._link_to(index) for index in range(len(self.nodes))]
        tell = _Tell(self._me(), len(questions))
        now = self.now()
        for calls, ballot in questions:
            self._send_all(calls, _Asked(ballot, len(calls), tell, self._incarnations, now), links, timeout)
        if questions:
            await suspend()

    def _send_all(
        self, calls: Sequence[Call | None], question: _Asked, links: Sequence[Link | Fault], timeout: float
    ) -> None:
        for index, (call, link) in enumerate(zip(calls, links, strict=True)):
            if call is None:
                question.take(index, NOT_ASKED)
            elif isinstance(link, Fault):
                question.take(index, link)
            else:
                self._post(link, call, timeout, question, index)

    def send(self, calls: Sequence[Call | None], ballot: Ballot) -> None:
        """See ``QuorumRuntime``."""
        owner = self._owner()
        if self._threads and owner is None:
            found: list[Link | None] = [None] * len(calls)
        else:
            found = [self._held.get((owner, index)) for index in range(len(calls))]
        links = [_GONE if link is None or link.dead or not self._process.alive else link for link in found]
        self._send_all(
            calls, _Asked(ballot, len(calls), None, self._incarnations, self.now()), links, self.node_timeout
        )

    def sender(self, *, background: bool = False) -> tuple[object, int]:
        """See ``QuorumRuntime``."""
        if background and self._threads:
            return None, 0
        return self._owner() or self, self._drops

    # Nodes ------------------------------------------------------------------------------------------------------

    async def _ensure_connected(self, timeout: float) -> None:
        """Connections for a caller that has none: to all nodes at once, and a majority of them is waited for."""
        if self._missing() and self._threads:
            for index in self._missing():
                self._meet_soon(index)
        elif len(self._missing()) < majority(len(self.nodes)):
            return
        else:
            for index in self._missing():
                if self.now() >= self._known_nodes.nodes[index].retry_at:
                    self._meet_again(index)
        end = self.now() + timeout
        while len(self._missing()) >= majority(len(self.nodes)) and self.now() < end and not self.ending:
            if not self._meetings and not any(node.meeting for node in self._known_nodes.nodes):
                return
            await Sleep(self._process).park(_POLL)

    def _missing(self) -> list[int]:
        owner = self._owner()
        held = [self._held.get((owner, index)) for index in range(len(self.nodes))]
        none: list[list[Link]] = [[] for _ in held]
        idle = self._idle_by_node if self._threads else none
        return [i for i, link in enumerate(held) if (link is None or link.dead) and not idle[i]]

    def _meet_soon(self, index: int) -> None:
        node = self._known_nodes.nodes[index]
        if node.fault is not None and self.now() >= node.retry_at:
            self._meet_again(index)
        elif self._known_nodes.objection(index, self.now()) is None:
            self._meetings += 1
            Task(self._process, "connect", self._run_meet(index), self._met_one)

    def _met_one(self, task: Task, error: BaseException | None) -> None:
        self._meetings -= 1
        _ended(task, error)

    def _link_to(self, index: int) -> Link | Fault:
        """The caller's connection to a node, made anew where a node is back; a node that is gone costs nothing."""
        node, key = self._known_nodes.nodes[index], (self._owner(), index)
        link = self._held.get(key)
        if (
            link is not None
            and not link.dead
            and (self._threads or self._life[link].objection(self.now()) is None)
        ):
            return link
        now = self.now()
        if node.fault is not None and now >= node.retry_at:
            self._meet_again(index)
        objection = self._known_nodes.objection(index, now)
        if objection is not None:
            return objection
        if self._threads:
            # Another thread met it already: this one needs a connection of its own.
            link = self._take_idle(index)
        if link is None or link.dead:
            return _NOT_YET
        # Only its own handshake says which life of the node it leads to.
        objection = self._life[link].objection(self.now())
        if objection is not None:
            if self._threads:
                self._idle_by_node[index].append(self._held.pop(key))
            return objection
        return link

    def _take_idle(self, index: int) -> Link | None:
        while self._idle_by_node[index]:
            link = self._idle_by_node[index].pop()
            if not link.dead:
                self._held[self._me(), index] = link
                return link
        return None

    def new_threads(self) -> None:
        """See ``SimRuntime``: some of the connections of those that ended are kept for others."""
        if self._threads:
            for (owner, index), link in list(self._held.items()):
                if owner is not None and not link.pending:
                    del self._held[owner, index]
                    if len(self._idle_by_node[index]) < _MOST_IDLE and self.random() < 0.5:
                        self._idle_by_node[index].append(link)
                    else:
                        link.close(Fault(FaultKind.CLOSED, "its thread ended"))

    def _meet_again(self, index: int) -> None:
        node = self._known_nodes.nodes[index]
        if not node.meeting and not self.ending:
            node.meeting = True
            Task(self._process, "connect", self._run_meet(index), _ended)

    async def _run_meet(self, index: int) -> None:
        try:
            link = await self._meet(index, None, max(self.node_timeout, _HANDSHAKE_TIMEOUT))
            if link is not None and self._threads:
                del self._held[None, index]
                self._idle_by_node[index].append(link)
        finally:
            self._known_nodes.nodes[index].meeting = False

    async def _meet(self, index: int, owner: Task | None, timeout: float) -> Link | None:
        """Connect to a node and learn what it is; None, and noted, if that fails."""
        self._channels += 1
        channel = f"wake:{self._process.name}:{self._process.life}:{self._channels}"
        node = self.servers[index]
        kind = _ThreadLink if self._threads else _NodeLink
        link = kind(self._network, self._process, node, channel, self._woken, partial(self._node_gone, index))
        task = self._me()
        step = task.step
        link.handshake(lambda fault: task.wake(step, fault or link))
        task.over_in(timeout)
        outcome = await suspend()
        asked_at = self.now()
        if outcome is link:
            self._post(link, self._probe, timeout, task.wake, task.step)
            outcome = await suspend()
        if isinstance(outcome, ServerFacts):
            outcome = self._known_nodes.met(index, outcome.info, self.now())
            if isinstance(outcome, Incarnation) and not self.ending:
                self._incarnations.took(index, self.now() - asked_at)
                self._life[link] = outcome
                self._held[owner, index] = link
                node.scripts.update(script.sha for script in SCRIPTS)
                return link
        fault = outcome if isinstance(outcome, Fault) else Fault(FaultKind.UNREACHABLE, "no connection")
        self._failed(index, fault)
        link.close(fault)
        return None

    def _failed(self, index: int, fault: Fault) -> None:
        self._known_nodes.nodes[index].failed(fault, self.now(), self.random())

    def _node_gone(self, index: int, link: Link) -> None:
        self._drops += 1
        life = self._life.pop(link, None)
        if life is not None:
            self._incarnations.heard(index, life, self.now() - (self._world.now - max(0.0, link.heard_at)))
        for key, held in list(self._held.items()):
            if held is link:
                del self._held[key]
                if not self.ending and not (self._threads and key[0] is None):
                    self._failed(index, Fault(FaultKind.UNREACHABLE, "the connection ended"))

    def _overdue(self, link: Link, request: Request) -> bool:
        """Give up a request, or listen on; one that stays silent condemns its connection."""
        asked = request.answered
        if isinstance(asked, _Asked) and not asked.done:
            clock = self._process.clock
            end = clock.monotonic() - (clock.boot() - asked.sent_at) + asked.ballot.patience()
            if end > request.deadline + 1e-9:
                request.deadline = end
                return True
        if link.node in self.servers and self._life.get(link) is not None:
            self._incarnations.took(self.servers.index(link.node), (self._world.now - request.sent_at) / 2)
        request.end(Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True))
        if link.heard_at < request.sent_at:
            link.silent += 1
            if link.silent >= 2:
                link.close(Fault(FaultKind.UNANSWERED, "the server is silent", maybe_applied=True))
                return False
        return True

    async def _meet_all(self, timeout: float) -> None:
        for index in range(len(self.nodes)):
            self._meet_again(index)
        end = self.now() + timeout
        needed = len(self.nodes) // 2 + 1
        while self.now() < end and any(node.meeting for node in self._known_nodes.nodes):
            await Sleep(self._process).park(_POLL)
            if sum(node.fault is None for node in self._known_nodes.nodes) >= needed:
                end = min(end, self.now() + _GRACE)
        self._met_all = True

    # The end ----------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """See ``SimRuntime``."""
        super().shut_down()
        idle = [link for left in self._idle_by_node for link in left]
        for link in [*self._held.values(), *idle]:
            link.close(Fault(FaultKind.CLOSED, "the client is closed", final=True))


def _ended(task: Task, error: BaseException | None) -> None:
    if error is not None:
        raise AssertionError(f"{task.name} ended") from error
