"""A server in this process, its address, and what a test can do to it and to those who use it."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Any, Self

from pawlock.aio import AsyncClient
from pawlock.core.coordinate.multi_lease import BaseMultiLease, members_of
from pawlock.core.lease.base import BaseLease
from pawlock.core.protocol.engine import ServerEngine
from pawlock.core.protocol.runtime import Call, Fault
from pawlock.sync import Client
from pawlock.testing._clock import Clock
from pawlock.testing.in_process.door import Door
from pawlock.testing.in_process.node import Entrance, Node
from pawlock.testing.in_process.runtimes import InProcessTasks, InProcessThreads
from pawlock.testing.outages import Holds, Outage, lease_of
from pawlock.topology.endpoint import Place
from pawlock.topology.places import PLACES

__all__ = ["InProcess"]

_numbers = count(1)


class InProcess(Holds):
    """What is open at an address of this process: its node, its outages. A context manager.

    Attributes:
        url: Its address, as long as it is open.
    """

    _engine: ServerEngine | None = None
    """What makes the requests that its node answers; None: those of Redis."""

    @abstractmethod
    def _make_node(self, clock: Clock, url: str) -> Node:
        """The server itself."""

    def _open(self, clock: Clock, folder: str = "") -> None:
        self.url: str = f"memory://{folder}{next(_numbers)}"
        self._clock: Clock = clock
        self._outages: list[Outage] = []
        self._outage: Outage | None = None
        self._node = self._make_node(clock, self.url)
        self._ways: list[Door] = []
        PLACES[self.url] = self._place_of(self._node, self.url)

    def _place_of(self, entrance: Entrance, url: str) -> Place:
        def threads(wake_prefix: str) -> InProcessThreads:
            return InProcessThreads(entrance, self._clock, wake_prefix)

        def tasks(loop: asyncio.AbstractEventLoop, wake_prefix: str) -> InProcessTasks:
            self._enter(loop)
            return InProcessTasks(loop, entrance, self._clock, wake_prefix)

        return Place(url, threads, tasks, self._engine)

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """A client uses it in this loop."""

    def faulty(self) -> Door:
        """Open a second address of it, on which requests, answers and wake-ups can be lost, late or doubled.

        Returns:
            It, with the methods of ``pawlock.testing.Proxy``; ``stop`` ends it, and so does the end of this.
        """
        url = f"{self.url}/faulty/{len(self._ways) + 1}"
        door = Door(self._node, self._node.words, url, lambda: PLACES.pop(url, None))
        PLACES[url] = self._place_of(door, url)
        self._ways.append(door)
        return door

    def close(self) -> None:
        """End all outages and forget everything; clients that are still open cannot reach it any more."""
        self.mend()
        PLACES.pop(self.url, None)
        for way in self._ways:
            way.stop()
        self._node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Faults -----------------------------------------------------------------------------------------------------

    def down(self, seconds: float | None = None, *, keep_data: bool = True) -> Outage:
        """Crash the server: connections break, and new ones are refused until it comes back.

        Args:
            seconds: When it comes back by itself. None (default): at the end of the ``with`` block or of the test.
            keep_data: True (default): with what it knew, less what has expired meanwhile. False: empty.

        Returns:
            The outage, which has begun.

        Raises:
            RuntimeError: The server is down or frozen already.
        """
        return self._break(self._node.crash, lambda: self._node.start(keep_data=keep_data), seconds)

    def frozen(self, seconds: float | None = None) -> Outage:
        """Freeze the server: connections stay, nothing is answered; what was sent is served when it goes on.

        Args:
            seconds: When it goes on by itself. None (default): at the end of the ``with`` block or of the test.

        Returns:
            The outage, which has begun.

        Raises:
            RuntimeError: The server is down or frozen already.
        """
        return self._break(self._node.freeze, self._node.thaw, seconds)

    def paused(
        self, holder: Client | AsyncClient | BaseLease | BaseMultiLease | str, seconds: float | None = None
    ) -> Outage:
        """Stop a client, as the machine of a holder that swaps: it renews nothing and notices nothing.

        Only what pawlock does for it is paused. Where the program itself would be paused too, the test does other
        things meanwhile, or lets time pass.

        Args:
            holder: The client, or a lease of it, or the name that one of its leases holds.
            seconds: When it goes on by itself. None (default): at the end of the ``with`` block or of the test.

        Returns:
            The outage, which has begun.

        Raises:
            ValueError: It is no client of this server, or the name is held by nobody in this process.
        """
        runtimes = [one for one in _runtimes(holder) if isinstance(one, (InProcessThreads, InProcessTasks))]
        if not runtimes:
            raise ValueError(f"{holder!r} uses no server in memory, or has not used it yet")

        def stop() -> None:
            for runtime in runtimes:
                runtime.stop()

        def go_on() -> None:
            for runtime in runtimes:
                runtime.go_on()

        return self._began(Outage(stop, go_on, seconds, self._clock))

    def flush(self) -> None:
        """Delete every key, as FLUSHALL does."""
        self._node.flush()

    def mend(self) -> None:
        """End every outage, the latest first."""
        while self._outages:
            self._outages.pop().end()

    def _break(self, begin: Callable[[], object], end: Callable[[], object], seconds: float | None) -> Outage:
        if self._outage is not None and not self._outage.over:
            raise RuntimeError("the server is down or frozen already")
        self._outage = Outage(begin, end, seconds, self._clock)
        return self._began(self._outage)

    def _began(self, outage: Outage) -> Outage:
        self._outages.append(outage)
        return outage

    def _run(self, call: Call) -> Any:
        reply = self._node.run(call)
        if isinstance(reply, Fault):
            raise reply
        return reply


def _runtimes(holder: Client | AsyncClient | BaseLease | BaseMultiLease | str) -> list[object]:
    if isinstance(holder, (Client, AsyncClient)):
        return [engine.runtime for engine in holder._known_engines()]
    leases = (lease_of(holder),) if isinstance(holder, str) else members_of(holder)
    return list({id(lease.engine): lease.engine.runtime for lease in leases}.values())
