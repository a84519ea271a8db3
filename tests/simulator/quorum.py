"""The third runtime for several independent masters: ``tasks`` share a connection to each, ``threads`` take one each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Fault, FaultKind
from pawlock.redlock.link import MastersRuntime
from pawlock.redlock.nodes import Incarnation, KnownMasters, Node
from pawlock.redlock.votes import Question
from tests.simulator.network import Link, Network, Request
from tests.simulator.runtime import SimRuntime
from tests.simulator.world import Process, Task, suspend

if TYPE_CHECKING:
    from tests.simulator.fleet import Fleet

__all__ = ["QuorumSimRuntime"]

_MOST_IDLE = 4


class _ThreadLink(Link):
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


class _NodeLink:
    """See ``pawlock.redlock.link.NodeLink``."""

    def __init__(self, runtime: QuorumSimRuntime, link: Link, node: Node, incarnation: Incarnation) -> None:
        self.incarnation: Incarnation = incarnation
        self.link = link
        self._runtime = runtime
        self._node = node

    def post(self, question: Question) -> None:
        """Send a question."""
        for at, call in enumerate(question.calls):
            self._runtime._post(self.link, call, question.patience, partial(self._answered, question), at)

    def _answered(self, question: Question, at: int, outcome: Outcome | Fault) -> None:
        self._node.take(question, at, outcome)


class QuorumSimRuntime(MastersRuntime[_NodeLink], SimRuntime):  # type: ignore[misc]  # ``SimRuntime.call`` is a step of the simulation
    """See ``pawlock.core.runtime.Runtime``.

    Args:
        process: Where it runs.
        network: What its connections run through.
        fleet: The masters.
        api: ``"threads"`` or ``"tasks"``.
        known: What the client knows of them, in all its loops.
    """

    def __init__(
        self, process: Process, network: Network, fleet: Fleet, api: str, known: KnownMasters
    ) -> None:
        SimRuntime.__init__(self, process, network, fleet, api)
        self._treat(known)
        # Of threads the connections that nobody uses now.
        self._idle: list[list[_NodeLink]] = [[] for _ in self._nodes]
        self._all: set[Link] = set()

    # Questions --------------------------------------------------------------------------------------------------

    async def _ask(self, question: Question, timeout: float) -> None:
        """See ``MastersRuntime``."""
        self._ending = self.ending
        if not self._threads:
            await super()._ask(question, timeout)
            return
        links: dict[int, _NodeLink] = {}
        try:
            await self._put(question, links, timeout)
        except BaseException:
            # Interrupted in the middle of it: the connections are not to be trusted.
            for one in links.values():
                one.link.close(Fault(FaultKind.UNANSWERED, "interrupted", maybe_applied=True))
            raise
        for index, one in links.items():
            self._idle[index].append(one)

    # Nodes ------------------------------------------------------------------------------------------------------

    def _take_idle(self, links: dict[int, _NodeLink]) -> None:
        """See ``MastersRuntime``."""
        for index, idle in enumerate(self._idle):
            while idle and index not in links:
                one = idle.pop()
                if not one.link.dead:
                    links[index] = one

    def _begin_meeting(self, node: Node) -> None:
        """See ``MastersRuntime``."""
        node.meetings.add(Task(self._process, "connect", self._meet_here(node), _ended))

    async def _meet_here(self, node: Node) -> None:
        task = self._me()
        try:
            await self._meet(node)
        finally:
            node.meetings.discard(task)

    async def _join(self, node: Node, timeout: float) -> None:
        """See ``MastersRuntime``."""
        task, link = self._me(), self._new_link(node)
        try:
            step = task.step
            link.handshake(lambda fault: task.wake(step, fault or link))
            task.over_in(timeout)
            outcome = await suspend()
            if outcome is link:
                self._post(link, self._known.probe, timeout, task.wake, task.step)
                outcome = await suspend()
            if outcome is None or isinstance(outcome, Fault):
                raise outcome or Fault(FaultKind.UNREACHABLE, "no connection")
            incarnation = node.met(outcome)
            if self.ending:
                raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        except Fault as fault:
            link.close(fault)
            raise
        for call in node.take_owed():
            self._post(link, call, timeout, _dropped)
        one = _NodeLink(self, link, node, incarnation)
        if self._threads:
            self._idle[node.index].append(one)
        else:
            self._shared[node.index] = one

    def _new_link(self, node: Node) -> Link:
        self._channels += 1
        channel = f"wake:{self._process.name}:{self._process.life}:{self._channels}"
        kind = _ThreadLink if self._threads else Link
        server = self.servers[node.index]
        link = kind(
            self._network, self._process, server, channel, self._woken, partial(self._node_gone, node)
        )
        self._all.add(link)
        return link

    def _node_gone(self, node: Node, link: Link) -> None:
        self._all.discard(link)
        shared = self._shared.get(node.index)
        if shared is not None and shared.link is link:
            del self._shared[node.index]
        if not self.ending:
            node.failed(Fault(FaultKind.UNREACHABLE, "the connection ended"))

    def _overdue(self, link: Link, request: Request) -> bool:
        """Give up a request; one that stays silent condemns its connection."""
        request.end(Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True))
        if link.heard_at < request.sent_at:
            link.silent += 1
            if link.silent >= 2:
                link.close(Fault(FaultKind.UNANSWERED, "the server is silent", maybe_applied=True))
                return False
        return True

    def new_threads(self) -> None:
        """See ``SimRuntime``: some of the connections are gone meanwhile."""
        for idle in self._idle:
            for one in idle[_MOST_IDLE:]:
                one.link.close(Fault(FaultKind.CLOSED, "it was idle"))
            del idle[_MOST_IDLE:]

    # The end ----------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """See ``SimRuntime``."""
        super().shut_down()
        for link in list(self._all):
            link.close(Fault(FaultKind.CLOSED, "the client is closed", final=True))


def _ended(task: Task, error: BaseException | None) -> None:
    if error is not None:
        raise AssertionError(f"{task.name} ended") from error


def _dropped(*_: Any) -> None:
    """Nobody waits for the reply."""
