"""The runtime of asyncio for several independent masters: one multiplexed connection for each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial

from pawl.core.quorum import NOT_ASKED, Ballot, MergedVotes, Question
from pawl.core.roster import Roster
from pawl.core.runtime import DEAF, Call, Fault, FaultKind, Reply
from pawl.runtimes.aio import AsyncioRuntime
from pawl.topology.endpoint import Endpoint
from pawl.transport.answer import Answer
from pawl.transport.mux import Mux, open_mux
from pawl.transport.wire import Greeting

__all__ = ["QuorumAsyncioRuntime"]

_GREETING = 0.25
_GRACE = 0.05


class _Asked:
    """A question under way: counts the answers, and wakes its asker once."""

    __slots__ = ("ballot", "done", "missing", "tell")

    def __init__(self, ballot: Ballot, tell: _Tell) -> None:
        self.ballot = ballot
        self.missing = 0
        self.done = False
        self.tell = tell

    def take(self, index: int, outcome: Reply | Fault) -> None:
        """Count an answer."""
        self.missing -= 1
        if self.done:
            self.ballot.late(index, outcome)
        elif self.ballot.add(index, outcome) or not self.missing:
            self.done = True
            self.tell.one_done()

    def answered(self, index: int, answer: Answer[Reply]) -> None:
        """Count what a connection brought."""
        if answer.cancelled():
            self.take(index, Fault(FaultKind.UNANSWERED, "cancelled", maybe_applied=True))
            return
        error = answer.exception()
        if error is None:
            self.take(index, answer.result())
        elif isinstance(error, Fault):
            self.take(index, error)
        else:
            self.take(index, Fault(FaultKind.UNANSWERED, str(error), maybe_applied=True))


class _Tell:
    """Wakes the asker when all its questions are decided."""

    __slots__ = ("future", "open")

    def __init__(self, future: asyncio.Future[None], questions: int) -> None:
        self.future = future
        self.open = questions

    def one_done(self) -> None:
        """One question less."""
        self.open -= 1
        if self.open == 0 and not self.future.done():
            self.future.set_result(None)


class QuorumAsyncioRuntime(AsyncioRuntime):
    """See ``pawl.core.runtime.Runtime`` and ``pawl.core.quorum.QuorumRuntime``.

    Args:
        loop: The event loop.
        endpoints: Where the nodes are.
        prefix: What the channels of this client begin with.
        roster: What is known of the nodes.
        probe: What to ask a node before its votes count.
        node_timeout: Seconds that one node may take.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoints: Sequence[Endpoint],
        prefix: str,
        roster: Roster,
        probe: Call,
        node_timeout: float,
    ) -> None:
        super().__init__(loop, lambda: endpoints[0], prefix)
        self.nodes: tuple[str, ...] = tuple(node.shown for node in roster.nodes)
        self.ahead_us: float = 0.0
        self._endpoints = endpoints
        self._roster = roster
        self._probe = probe
        self._node_timeout = node_timeout
        self._muxes: list[Mux | None] = [None] * len(endpoints)
        self._looks: dict[int, asyncio.Task[None]] = {}
        self._looked: asyncio.Task[None] | None = None

    def remembers(self) -> bool:
        """See ``QuorumRuntime``."""
        return self._roster.remembers()

    def channel(self) -> str:
        """See ``Runtime``: nobody is woken here, since nobody queues."""
        return DEAF

    def line(self) -> None:
        """See ``Runtime``: there is not one."""

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``: the first call of a loop meets the nodes, and its other callers wait with it."""
        if self._looked is None:
            self._looked = self.loop.create_task(
                self._look_around(max(timeout, _GREETING)), name="pawl-meet-all"
            )
        if not self._looked.done():
            await asyncio.shield(self._looked)

    # Questions --------------------------------------------------------------------------------------------------

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``QuorumRuntime``."""
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if self._looked is None or not self._looked.done():
            await self.ready(timeout)
        future: asyncio.Future[None] = self.loop.create_future()
        tell = _Tell(future, len(questions))
        muxes = [self._mux_of(index) for index in range(len(self.nodes))]
        for calls, ballot in questions:
            self._pose(calls, _Asked(ballot, tell), muxes, timeout)
        if tell.open:
            await future

    def _pose(
        self, calls: Sequence[Call | None], question: _Asked, muxes: Sequence[Mux | Fault], timeout: float
    ) -> None:
        question.missing = len(calls)
        for index, (call, mux) in enumerate(zip(calls, muxes, strict=True)):
            if call is None:
                question.take(index, NOT_ASKED)
            elif isinstance(mux, Fault):
                question.take(index, mux)
            else:
                mux.ask(call, timeout).add_done_callback(partial(question.answered, index))

    def send(self, calls: Sequence[Call | None]) -> None:
        """See ``QuorumRuntime``."""
        if threading.get_ident() != self._thread or self.loop.is_closed():
            return
        for call, mux in zip(calls, self._muxes, strict=True):
            if call is not None and mux is not None:
                mux.cast(call)

    def cast(self, call: Call) -> None:
        """See ``Runtime``."""
        self.send([call] * len(self.nodes))

    async def call(self, call: Call, timeout: float) -> Reply:
        """See ``Runtime``: all nodes are asked; the answer is the majority's."""
        votes = MergedVotes(len(self.nodes))
        await self.ask([([call] * len(self.nodes), votes)], timeout)
        result = votes.result()
        if isinstance(result, Fault):
            raise result
        return result

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Reply | Fault]:
        """See ``Runtime``."""
        count = len(self.nodes)
        questions = [([call] * count, MergedVotes(count)) for call in calls]
        try:
            await self.ask(questions, timeout)
        except Fault as fault:
            return [fault] * len(calls)
        return [votes.result() for _, votes in questions]

    # Nodes ------------------------------------------------------------------------------------------------------

    def _mux_of(self, index: int) -> Mux | Fault:
        node = self._roster.nodes[index]
        now = self.now()
        mux = self._muxes[index]
        if (mux is None or mux.dead) and now >= node.retry_at:
            self._look_at(index)
        objection = node.objection(now)
        if objection is not None:
            return objection
        return mux if mux is not None else Fault(FaultKind.UNREACHABLE, "not connected yet")

    def _look_at(self, index: int) -> asyncio.Task[None]:
        task = self._looks.get(index)
        if task is None or task.done():
            task = self._looks[index] = self.loop.create_task(self._visit(index), name="pawl-meet")
        return task

    async def _visit(self, index: int) -> None:
        node = self._roster.nodes[index]
        timeout = max(self._node_timeout, _GREETING)
        mux = Mux(self.loop, self._wake, partial(self._node_ended, index))
        endpoint = self._endpoints[index]
        greeting = Greeting("", endpoint, first=node.run_id is None)
        try:
            async with asyncio.timeout(timeout * 2):
                await open_mux(endpoint, mux, greeting, timeout)
                info = (await mux.ask(self._probe, timeout))[2]
        except TimeoutError:
            mux.close()
            self._failed(index, Fault(FaultKind.UNREACHABLE, f"no connection within {timeout * 2:.3g} s"))
            return
        except Fault as fault:
            mux.close()
            self._failed(index, fault)
            return
        except BaseException:
            mux.close()
            raise
        never = self._roster.met(index, info.decode(errors="replace"), self.now())
        if never is not None or self._ending:
            mux.close()
            self._failed(index, never or Fault(FaultKind.CLOSED, "the client is closed", final=True))
            return
        self._muxes[index] = mux

    def _failed(self, index: int, fault: Fault) -> None:
        self._roster.nodes[index].failed(fault, self.now(), self.random())

    def _node_ended(self, index: int, mux: Mux) -> None:
        if self._muxes[index] is mux:
            self._muxes[index] = None
            self._failed(index, Fault(FaultKind.UNREACHABLE, "the connection ended"))

    async def _look_around(self, timeout: float) -> None:
        looks = {self._look_at(index) for index in range(len(self.nodes))}
        end = self.loop.time() + timeout * 2
        needed = len(self.nodes) // 2 + 1
        while looks and (left := end - self.loop.time()) > 0:
            done, looks = await asyncio.wait(looks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if done and sum(mux is not None for mux in self._muxes) >= needed:
                end = min(end, self.loop.time() + _GRACE)

    # The end ----------------------------------------------------------------------------------------------------

    async def shut_down(self) -> None:
        """See ``AsyncioRuntime``."""
        self._ending = True
        try:
            for task in (self._looked, *self._looks.values()):
                if task is not None and not task.done():
                    task.cancel()
            await super().shut_down()
        finally:
            for mux in self._muxes:
                if mux is not None:
                    mux.close()

    def after_fork(self) -> None:
        """See ``AsyncioRuntime``."""
        super().after_fork()
        self._muxes = [None] * len(self._endpoints)
