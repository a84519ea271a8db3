"""The third runtime for several independent masters: ``tasks`` share a connection to each, ``threads`` take one each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.primitives.probe import probe
from pawlock.redlock.link import HANDSHAKE_TIMEOUT, NOT_CONNECTED, MastersRuntime, Question
from pawlock.redlock.nodes import Incarnation, Incarnations, KnownNodes
from tests.simulator.network import Link, Network, Request
from tests.simulator.runtime import SimRuntime
from tests.simulator.waits import Sleep
from tests.simulator.world import Process, Task, suspend

if TYPE_CHECKING:
    from pawlock.redlock.options import RedlockOptions
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


class QuorumSimRuntime(MastersRuntime, SimRuntime):  # type: ignore[misc]  # ``SimRuntime.call`` is a step of the simulation
    """See ``pawlock.core.protocol.runtime.Runtime``.

    Args:
        process: Where it runs.
        network: What its connections run through.
        fleet: The masters.
        api: ``"threads"`` or ``"tasks"``.
        options: How they are treated.
        incarnations: What the client knows of them, in all its loops.
    """

    def __init__(
        self,
        process: Process,
        network: Network,
        fleet: Fleet,
        api: str,
        options: RedlockOptions,
        incarnations: Incarnations,
    ) -> None:
        SimRuntime.__init__(self, process, network, fleet, api)
        self._treat(options, KnownNodes(incarnations), probe("sim"))
        self._life: dict[Link, Incarnation] = {}
        # Of tasks the connections; of threads those that nobody uses now.
        self._shared: dict[int, Link] = {}
        self._idle: list[list[Link]] = [[] for _ in self.nodes]
        self._all: set[Link] = set()

    # Questions --------------------------------------------------------------------------------------------------

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``MastersRuntime``."""
        if self.ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        links = {} if self._threads else self._shared
        try:
            await self._connect_all(lambda: self._missing(links), timeout)
            await self._ask_all(dict(links), questions)
        except BaseException:
            if self._threads:
                # Interrupted in the middle of it: the connections are not to be trusted.
                for link in links.values():
                    link.close(Fault(FaultKind.UNANSWERED, "interrupted", maybe_applied=True))
            raise
        if self._threads:
            for index, link in links.items():
                self._idle[index].append(link)

    async def _ask_all(self, links: dict[int, Link], questions: Sequence[Question]) -> None:
        sleep, left = Sleep(self._process), len(questions)

        def told() -> None:
            nonlocal left
            left -= 1
            if not left:
                sleep.unpark()

        now = self.now()
        for question in questions:
            question.begin(now, told)
        patience = max(question.patience for question in questions)
        for index in range(len(self.nodes)):
            life = self._life.get(links[index]) if index in links else None
            objection = self._objection(index, life, now)
            for question in questions:
                if objection is not None or life is None:
                    self._take(index, question, objection or NOT_CONNECTED)
                else:
                    self._post(
                        links[index], question.call, patience, partial(self._answered, question), index
                    )
        while waiting := [question for question in questions if not question.overdue(self.now())]:
            await sleep.park(max(0.0, min(question.until for question in waiting) - self.now()))

    def _answered(self, question: Question, index: int, outcome: Outcome | Fault) -> None:
        self._take(index, question, outcome)

    # Nodes ------------------------------------------------------------------------------------------------------

    def _missing(self, links: dict[int, Link]) -> list[int]:
        """The nodes to which there is no connection, now that a thread took what there is."""
        for index, idle in enumerate(self._idle):
            while self._threads and idle and links.get(index) not in self._life:
                links[index] = idle.pop()
        return [index for index in range(len(self.nodes)) if links.get(index) not in self._life]

    def _begin_meeting(self, index: int) -> None:
        """See ``MastersRuntime``."""
        self._known.nodes[index].meetings.add(Task(self._process, "connect", self._meet(index), _ended))

    async def _meet(self, index: int) -> None:
        """Connect to a node and learn what it is."""
        task, timeout = self._me(), max(self._incarnations.timeout, HANDSHAKE_TIMEOUT)
        link = self._new_link(index)
        try:
            step = task.step
            link.handshake(lambda fault: task.wake(step, fault or link))
            task.over_in(timeout)
            outcome = await suspend()
            if outcome is link:
                self._post(link, self._probe, timeout, task.wake, task.step)
                outcome = await suspend()
            if outcome is None or isinstance(outcome, Fault):
                raise outcome or Fault(FaultKind.UNREACHABLE, "no connection")
            self._life[link], owed = self._met(index, outcome)
            for call in owed:
                self._post(link, call, timeout, _dropped)
            if self.ending:
                raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
            if self._threads:
                self._idle[index].append(link)
            else:
                self._shared[index] = link
        except Fault as fault:
            self._life.pop(link, None)
            self._lost(index, fault)
            link.close(fault)
        finally:
            self._known.nodes[index].meetings.discard(task)

    def _new_link(self, index: int) -> Link:
        self._channels += 1
        channel = f"wake:{self._process.name}:{self._process.life}:{self._channels}"
        kind = _ThreadLink if self._threads else Link
        gone = partial(self._node_gone, index)
        link = kind(self._network, self._process, self.servers[index], channel, self._woken, gone)
        self._all.add(link)
        return link

    def _node_gone(self, index: int, link: Link) -> None:
        self._all.discard(link)
        life = self._life.pop(link, None)
        if self._shared.get(index) is link:
            del self._shared[index]
        if life is not None:
            heard_at = self.now() - (self._world.now - max(0.0, link.heard_at))
            self._incarnations.heard(index, life, heard_at)
            if not self.ending:
                self._lost(index, Fault(FaultKind.UNREACHABLE, "the connection ended"))

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
            for link in idle[_MOST_IDLE:]:
                link.close(Fault(FaultKind.CLOSED, "it was idle"))
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
