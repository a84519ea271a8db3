"""The runtime of asyncio for several independent masters: one connection of the loop to each, shared by its tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from pawlock.core.protocol.faults import or_raise
from pawlock.core.protocol.runtime import Call, Fault, FaultKind
from pawlock.redlock.link import HANDSHAKE_TIMEOUT, NOT_CONNECTED, MastersRuntime, Question
from pawlock.redlock.nodes import Incarnation, KnownNodes
from pawlock.redlock.options import RedlockOptions
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.mux import Mux, nobody, open_mux
from pawlock.transport.route import Route

__all__ = ["RedlockTasks"]

_DRAIN_WITHIN = 0.25


class _NodeMux:
    """A connection to one node, and when anything was heard on it last."""

    def __init__(self, mux: Mux, incarnation: Incarnation, heard_at: float) -> None:
        self.mux = mux
        self.incarnation = incarnation
        self.heard_at = heard_at


class RedlockTasks(MastersRuntime, AsyncioRuntime):
    """See ``pawlock.core.protocol.runtime.Runtime``.

    Args:
        loop: The event loop.
        endpoints: Where the nodes are.
        prefix: What the channels of this client would begin with.
        options: How the nodes are treated.
        known: What is known of them.
        probe: What asks a node for its incarnation.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoints: Sequence[Endpoint],
        prefix: str,
        options: RedlockOptions,
        known: KnownNodes,
        probe: Call,
    ) -> None:
        AsyncioRuntime.__init__(self, loop, Route(lambda: endpoints[0]), prefix)
        self._treat(options, known, probe)
        self._endpoints = endpoints
        self._links: list[_NodeMux | None] = [None] * len(endpoints)
        self._meetings: set[asyncio.Task[None]] = set()

    async def ask(self, questions: Sequence[Question], timeout: float) -> None:
        """See ``MastersRuntime``."""
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        await self._connect_all(self._missing, timeout)
        done, left = self.loop.create_future(), len(questions)
        timers: list[asyncio.TimerHandle] = []

        def told() -> None:
            nonlocal left
            left -= 1
            if not left and not done.done():
                done.set_result(None)

        def look() -> None:
            open_ = [question.until for question in questions if not question.overdue(self.now())]
            if open_:
                timers[:] = [self.loop.call_later(max(0.0, min(open_) - self.now()), look)]

        began = self.now()
        for question in questions:
            question.begin(began, told)
        self._send_all(questions, began)
        timers.append(
            self.loop.call_later(max(0.0, min([question.until for question in questions]) - began), look)
        )
        try:
            await done
        finally:
            timers[0].cancel()

    def _send_all(self, questions: Sequence[Question], now: float) -> None:
        patience = max([question.patience for question in questions])
        for index, link in enumerate(self._links):
            objection = self._objection(index, None if link is None else link.incarnation, now)
            if objection is not None or link is None:
                for question in questions:
                    self._take(index, question, objection or NOT_CONNECTED)
                continue
            sent = link.mux.start([question.call for question in questions], patience)
            for question, asked in zip(questions, sent, strict=True):
                asked.add_done_callback(partial(self._answered, index, link, question))

    def _answered(self, index: int, link: _NodeMux, question: Question, asked: asyncio.Future[Any]) -> None:
        if not isinstance(asked.result(), Fault):
            link.heard_at = self.now()
        self._take(index, question, asked.result())

    # Nodes ------------------------------------------------------------------------------------------------------

    def _missing(self) -> list[int]:
        return [index for index, link in enumerate(self._links) if link is None]

    def _begin_meeting(self, index: int) -> None:
        """See ``MastersRuntime``."""
        task = self.loop.create_task(self._meet(index), name="pawlock-meet")
        self._known.nodes[index].meetings.add(task)
        self._meetings.add(task)
        task.add_done_callback(self._meetings.discard)
        task.add_done_callback(self._known.nodes[index].meetings.discard)

    async def _meet(self, index: int) -> None:
        """Connect to a node, and learn what it is."""
        timeout = max(self._incarnations.timeout, HANDSHAKE_TIMEOUT)
        make = partial(Mux, self.loop, nobody, partial(self._mux_ended, index))
        first = self._incarnations.present[index] is None
        try:
            mux = await open_mux(self._endpoints[index], make, "", timeout, first=first)
            try:
                incarnation, owed = self._met(index, or_raise(await mux.ask(self._probe, timeout)))
                await mux.exchange(owed, timeout)
                self._check(self._ending)
                self._links[index] = _NodeMux(mux, incarnation, self.now())
            except BaseException:
                mux.close()
                raise
        except Fault as fault:
            self._lost(index, fault)

    def _mux_ended(self, index: int, mux: Mux) -> None:
        link = self._links[index]
        if link is not None and link.mux is mux:
            self._links[index] = None
            self._incarnations.heard(index, link.incarnation, link.heard_at)
            if not self._ending:
                self._lost(index, Fault(FaultKind.UNANSWERED, "the connection broke", maybe_applied=True))

    # The end ----------------------------------------------------------------------------------------------------

    async def shut_down(self) -> None:
        """See ``AsyncioRuntime``."""
        self._ending = True
        try:
            for task in self._meetings:
                task.cancel()
            await super().shut_down()
            # A socket closed on top of its answer may take the request back as well: a name just given back is to be
            # free.
            for link in self._links:
                if link is not None:
                    await link.mux.drain_replies(_DRAIN_WITHIN)
        finally:
            for link in list(self._links):
                if link is not None:
                    link.mux.close()
        # A loop that ends before they are closed would warn of it.
        await asyncio.sleep(0)

    def after_fork(self) -> None:
        """See ``AsyncioRuntime``."""
        super().after_fork()
        self._incarnations.guard = threading.RLock()
        self._links = [None] * len(self.nodes)
