"""The runtime of asyncio for several independent masters: one connection of the loop to each, shared by its tasks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from pawlock.core.faults import or_raise
from pawlock.core.runtime import Fault, FaultKind
from pawlock.redlock.link import MastersRuntime
from pawlock.redlock.nodes import Incarnation, KnownMasters, Node
from pawlock.redlock.votes import Question
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.transport.mux import Mux, nobody, open_mux
from pawlock.transport.route import Route

__all__ = ["RedlockTasks"]


class _NodeMux:
    """A connection to one node."""

    def __init__(self, mux: Mux, node: Node, incarnation: Incarnation) -> None:
        self._mux = mux
        self.incarnation: Incarnation = incarnation
        self._node = node

    def post(self, question: Question) -> None:
        """See ``NodeLink``."""
        for at, answer in enumerate(self._mux.start(question.calls, question.patience)):
            answer.add_done_callback(partial(self._answered, question, at))

    def _answered(self, question: Question, at: int, answer: asyncio.Future[Any]) -> None:
        self._node.take(question, at, answer.result())


class RedlockTasks(MastersRuntime[_NodeMux], AsyncioRuntime):
    """See ``pawlock.core.runtime.Runtime``.

    Args:
        loop: The event loop.
        known: What the client knows of its masters.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, known: KnownMasters) -> None:
        AsyncioRuntime.__init__(self, loop, Route(lambda: known.endpoints[0]), "")
        self._treat(known)

    def _begin_meeting(self, node: Node) -> None:
        """See ``MastersRuntime``."""
        task = self.loop.create_task(self._meet(node), name="pawlock-meet")
        node.meetings.add(task)
        task.add_done_callback(node.meetings.discard)
        # There the end of the loop finds it.
        self._opening[("", node.index), False] = task

    async def _join(self, node: Node, timeout: float) -> None:
        """See ``MastersRuntime``."""
        make = partial(Mux, self.loop, nobody, partial(self._left, node))
        mux = await open_mux(node.endpoint, make, "", timeout, first=True)
        try:
            incarnation = node.met(or_raise(await mux.ask(self._known.probe, timeout)))
        except BaseException:
            mux.close()
            raise
        mux.start(node.take_owed(), timeout)
        await self._have((("", node.index), False), mux)
        self._shared[node.index] = _NodeMux(mux, node, incarnation)

    def _left(self, node: Node, mux: Mux) -> None:
        """A connection ended."""
        if self._muxes.get((("", node.index), False)) is mux:
            del self._muxes[("", node.index), False], self._shared[node.index]
            node.failed(Fault(FaultKind.UNANSWERED, "the connection broke", maybe_applied=True))
