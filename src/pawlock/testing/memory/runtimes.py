"""The two real runtimes, with connections to a server in this process and a clock that may be a test's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind, Parker, Wakeup
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.runtimes.shared import secret
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.testing.clock import Nap, VirtualClock
from pawlock.testing.memory.links import MemoryLink, MemoryMux
from pawlock.testing.memory.node import MemoryNode
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.mux import Mux
from pawlock.transport.route import Route

__all__ = ["MemoryTasks", "MemoryThreads"]


class _Parker:
    __slots__ = ("_nap",)

    def __init__(self, nap: Nap) -> None:
        self._nap = nap

    async def park(self, timeout: float | None) -> bool:
        return self._nap.wait(timeout)

    def rest(self, timeout: float | None) -> bool:
        return self._nap.wait(timeout)

    def unpark(self) -> None:
        self._nap.wake()


class MemoryThreads(ThreadRuntime):
    """See ``ThreadRuntime``.

    Args:
        node: The server.
        clock: Its time.
        wake_prefix: What the wake-up channels of this client begin with.
    """

    def __init__(self, node: MemoryNode, clock: VirtualClock, wake_prefix: str) -> None:
        super().__init__(Route(lambda: Endpoint("memory", node.shown, {})), wake_prefix)
        self._node = node
        self._clock = clock
        self._bed = clock.nap()
        self._sleepers: set[Nap] = set()
        self._stopped: list[Nap] | None = None
        self.now: Callable[[], float] = clock.now

    def parker(self) -> Parker:
        """See ``Runtime``."""
        return _Parker(self._clock.nap())

    def _connect_to(self, endpoint: Endpoint, timeout: float) -> MemoryLink:
        del endpoint, timeout
        link = MemoryLink(self._node, self._clock, self._wake_prefix + secret())
        self._served = True
        self._links[id(link)] = link
        return link

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``: there is no replica."""
        del replicas
        return [(outcome, 0) for outcome in await self.call_many(calls, timeout)]

    # Waiting ----------------------------------------------------------------------------------------------------

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        woken = await super().wait_wakeup(token, timeout)
        self._stand()
        return woken

    async def sleep(self, seconds: float) -> None:
        """See ``Runtime``."""
        if not self._closed:
            await self.pause(seconds)
        if self._closed:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)

    async def pause(self, seconds: float) -> None:
        """See ``Runtime``."""
        nap = self._clock.nap()
        self._sleepers.add(nap)
        try:
            nap.wait(seconds)
        finally:
            self._sleepers.discard(nap)
        self._stand()

    def interrupt_waiters(self) -> None:
        """See ``ThreadRuntime``."""
        super().interrupt_waiters()
        for nap in list(self._sleepers):
            nap.wake()

    # Upkeep -----------------------------------------------------------------------------------------------------

    def spawn_maintenance(self, maintenance: Callable[[], Awaitable[None]]) -> str:
        """See ``Background``."""
        with self._starting:
            starts = not self._ending and not self.served
            if starts:
                self._clock.expect()
            refused = super().spawn_maintenance(maintenance)
            if starts and refused:
                self._clock.expect(-1)
            return refused

    def _serve(self, maintenance: Callable[[], Any]) -> None:
        self._clock.servant()
        try:
            super()._serve(maintenance)
        finally:
            self._clock.retire()

    async def idle(self, until: float | None) -> bool:
        """See ``Background``."""
        if not self._ending:
            self._bed.wait(None if until is None else max(0.0, until - self.now()))
            self._stand()
        return not self._ending

    def nudge(self) -> None:
        """See ``Background``."""
        self._bed.wake()

    def report(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``."""
        done = self._clock.busy()

        def reported() -> None:
            try:
                callback()
            finally:
                done()

        super().report(reported)

    # A process that is stopped ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let what sleeps here not go on when it wakes."""
        self._stopped = []

    def go_on(self) -> None:
        """Let it go on."""
        stopped, self._stopped = self._stopped or [], None
        for nap in stopped:
            nap.wake()

    def _stand(self) -> None:
        while (stopped := self._stopped) is not None and not self._ending:
            nap = self._clock.nap()
            stopped.append(nap)
            if self._stopped is stopped:
                nap.wait(None)


class MemoryTasks(AsyncioRuntime):
    """See ``AsyncioRuntime``.

    Args:
        loop: The loop.
        node: The server.
        clock: Its time.
        prefix: What the wake-up channels of this client begin with.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, node: MemoryNode, clock: VirtualClock, prefix: str
    ) -> None:
        super().__init__(loop, Route(lambda: Endpoint("memory", node.shown, {})), prefix)
        self._node = node
        self._running = asyncio.Event()
        self._running.set()
        self.now: Callable[[], float] = clock.now

    async def _open_to(
        self, endpoint: Endpoint, ended: Callable[[Mux], object], channel: str, timeout: float
    ) -> Mux:
        del endpoint, timeout
        return MemoryMux(self._node, self.loop, channel, self._wake, ended)

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``: there is no replica."""
        del replicas
        return [(outcome, 0) for outcome in await self.call_many(calls, timeout)]

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        woken = await super().wait_wakeup(token, timeout)
        await self._running.wait()
        return woken

    async def sleep(self, seconds: float) -> None:
        """See ``Runtime``."""
        await super().sleep(seconds)
        await self._running.wait()

    def stop(self) -> None:
        """Let what sleeps here not go on when it wakes."""
        self.run_in_owner(self._running.clear)

    def go_on(self) -> None:
        """Let it go on."""
        self.run_in_owner(self._running.set)

    def interrupt_waiters(self) -> None:
        """See ``AsyncioRuntime``."""
        self._running.set()
        super().interrupt_waiters()
