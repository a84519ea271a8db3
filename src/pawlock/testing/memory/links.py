"""The two kinds of connections to a server in this process, as a client sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pawlock.core.runtime import FIRST_RID, Call, Fault, FaultKind, Reply, Wakeup
from pawlock.testing.clock import VirtualClock
from pawlock.testing.memory.node import MemoryNode, Outcome
from pawlock.transport.conn import ENDS_CONNECTION, Words
from pawlock.transport.link import Link
from pawlock.transport.mux import Asked, Mux

__all__ = ["MemoryLink", "MemoryMux"]


def _silent(timeout: float) -> Fault:
    return Fault(FaultKind.UNANSWERED, f"no answer within {timeout:.3g} s", maybe_applied=True)


class MemoryLink(Link):
    """See ``Link``: of one thread at a time.

    Args:
        node: Where to.
        clock: What its timeouts go by.
        channel: On which it hears hand-offs.

    Raises:
        Fault: It could not be made.
    """

    def __init__(self, node: MemoryNode, clock: VirtualClock, channel: str) -> None:
        self.dead: bool = False
        self.waiting: bool = False
        self.shown: str = node.shown
        self.channel: str = channel
        self._node = node
        self._clock = clock
        self._rid = FIRST_RID
        self.refusal: str = "a server in memory"
        self._heard: dict[str, Wakeup] = {}
        self._nap = clock.nap()
        node.connect(self)

    def ask(self, call: Call, timeout: float) -> Reply:
        """See ``Link``."""
        try:
            outcome = self._ask(call, timeout)
        except Fault:
            raise
        except BaseException:
            self.close()
            raise
        if isinstance(outcome, Fault):
            if outcome.kind in ENDS_CONNECTION or outcome.maybe_applied:
                self.close()
            raise outcome
        reply: Reply = outcome
        return reply

    def _ask(self, call: Call, timeout: float) -> Outcome:
        self._clock.seen()
        self._rid += 1
        nap = self._clock.nap()
        found: list[Outcome] = []

        def deliver(outcome: Outcome) -> None:
            found.append(outcome)
            nap.wake()

        self._node.submit(call, self._rid, deliver)
        if not found:
            nap.wait(timeout)
        return found[0] if found else _silent(timeout)

    async def exchange_now(self, what: Sequence[Call | Words], timeout: float, *, turns: bool) -> list[Any]:
        """See ``Link``."""
        del turns
        outcomes: list[Reply | Fault] = []
        for call in what:
            if not isinstance(call, Call):
                raise TypeError(call)
            if self.dead:
                outcomes.append(Fault(FaultKind.UNANSWERED, "the connection broke", maybe_applied=True))
                continue
            try:
                outcomes.append(self.ask(call, timeout))
            except Fault as fault:
                outcomes.append(fault)
        return outcomes

    def wait(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Link``."""
        end = self._clock.now() + timeout
        self.waiting = True
        try:
            while True:
                found = self._heard.pop(token, None)
                left = end - self._clock.now()
                if found is not None or self.dead or left <= 0:
                    return found
                self._nap.wait(left)
        except BaseException:
            self.close()
            raise
        finally:
            self.waiting = False

    def woken(self, token: str, wakeup: Wakeup) -> None:
        """See ``Subscriber``."""
        self._heard[token] = wakeup
        self._nap.wake()

    def cut(self) -> None:
        """See ``Subscriber``."""
        self.interrupt()

    def is_over(self) -> bool:
        """See ``Link``."""
        return self.dead

    def interrupt(self) -> None:
        """See ``Link``."""
        self.dead = True
        self._nap.wake()

    def close(self) -> None:
        """See ``Link``."""
        self.dead = True
        self._node.disconnect(self)


class MemoryMux(Mux):
    """See ``Mux``: shared by the tasks of one event loop.

    Args:
        node: Where to.
        loop: The loop.
        channel: On which it hears hand-offs.
        on_wakeup: As for ``Mux``.
        on_end: As for ``Mux``.

    Raises:
        Fault: It could not be made.
    """

    def __init__(
        self,
        node: MemoryNode,
        loop: asyncio.AbstractEventLoop,
        channel: str,
        on_wakeup: Callable[[str, Wakeup], object],
        on_end: Callable[[Mux], object],
    ) -> None:
        super().__init__(loop, on_wakeup, on_end)
        self.refusal: str = "a server in memory"
        self.channel: str = channel
        self._node = node
        self._rid = FIRST_RID
        self._asked: dict[Asked, asyncio.TimerHandle] = {}
        node.connect(self)

    def ask(self, call: Call, timeout: float) -> asyncio.Future[Any]:
        """See ``Mux``."""
        self._rid += 1
        request = Asked(self._loop)
        if self.dead:
            request.answer(Fault(FaultKind.UNREACHABLE, "the connection is gone"))
            return request.future
        self._asked[request] = self._loop.call_later(timeout, self._deliver, request, _silent(timeout))
        try:
            self._node.submit(call, self._rid, lambda outcome: self._soon(self._deliver, request, outcome))
        except Fault as fault:
            self._answer(request, fault)
        return request.future

    def start(self, what: Sequence[Call | Words], timeout: float) -> list[asyncio.Future[Any]]:
        """See ``Mux``."""
        return [self.ask(call, timeout) for call in what if isinstance(call, Call)]

    def _soon(self, action: Callable[..., object], *args: object) -> None:
        # A loop that was closed has nobody left to notify.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action, *args)

    def _answer(self, request: Asked, outcome: Outcome) -> None:
        timer = self._asked.pop(request, None)
        if timer is not None:
            timer.cancel()
            request.answer(outcome)

    def _deliver(self, request: Asked, outcome: Outcome) -> None:
        self._answer(request, outcome)
        if isinstance(outcome, Fault) and (outcome.kind in ENDS_CONNECTION or outcome.maybe_applied):
            self.close(Fault(FaultKind.UNANSWERED, outcome.text, maybe_applied=True))

    async def drain_replies(self, timeout: float) -> None:
        """See ``Mux``: a server in this process forgets no request."""
        del timeout

    def woken(self, token: str, wakeup: Wakeup) -> None:
        """See ``Subscriber``."""
        self._soon(self._woken, token, wakeup)

    def _woken(self, token: str, wakeup: Wakeup) -> None:
        if not self.dead:
            self._on_wakeup(token, wakeup)

    def cut(self) -> None:
        """See ``Subscriber``."""
        self._soon(self.connection_lost, None)

    def close(self, fault: Fault | None = None) -> None:
        """See ``Mux``."""
        if self.dead:
            return
        self.dead = True
        self._node.disconnect(self)
        why = fault or Fault(FaultKind.CLOSED, "the client is closed", final=True)
        for request in list(self._asked):
            self._answer(request, why)
        self._on_end(self)
