"""A server in memory, its address, and what a test can do to it and to those who use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Self

from pawl.aio import AsyncClient
from pawl.core.coordinate.multi_lease import BaseMultiLease, members_of
from pawl.core.lease.base import BaseLease
from pawl.core.protocol.runtime import Call, Fault
from pawl.sync import Client
from pawl.testing._clock import Clock, RealClock, VirtualClock
from pawl.testing.memory.loops import bend
from pawl.testing.memory.node import MemoryNode
from pawl.testing.memory.runtimes import MemoryTasks, MemoryThreads
from pawl.testing.outages import Holds, Outage, lease_of
from pawl.topology.endpoint import Place
from pawl.topology.places import PLACES

__all__ = ["Memory", "Sim"]

_numbers = count(1)


class Memory(Holds):
    """A server in the memory of this process: no program, no socket, nothing to install but lupa.

    ``pawl.connect(memory.url)`` and ``pawl.connect_async(memory.url)`` give the real clients; locks, permits, latches
    and all else run pawl's own scripts. What needs several servers or processes is for ``Server``: another process
    finds nothing at the address. A context manager.

    Attributes:
        url: Its address, as long as it is open.
    """

    def __init__(self) -> None:
        """Open it.

        Raises:
            ConfigurationError: lupa is not installed; the extra ``pawlock[testing]`` brings it.
        """
        self._open(RealClock())

    def _open(self, clock: Clock) -> None:
        self.url: str = f"memory://{next(_numbers)}"
        self._clock: Clock = clock
        self._outages: list[Outage] = []
        self._outage: Outage | None = None
        self._node = MemoryNode(clock, self.url)
        PLACES[self.url] = Place(self.url, self._threads, self._tasks)

    def _threads(self, wake_prefix: str) -> MemoryThreads:
        return MemoryThreads(self._node, self._clock, wake_prefix)

    def _tasks(self, loop: asyncio.AbstractEventLoop, wake_prefix: str) -> MemoryTasks:
        return MemoryTasks(loop, self._node, self._clock, wake_prefix)

    def close(self) -> None:
        """End all outages and forget everything; clients that are still open cannot reach it any more."""
        self.mend()
        PLACES.pop(self.url, None)
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

        Only what pawl does for it is paused. Where the program itself would be paused too, the test does other
        things meanwhile, or lets time pass.

        Args:
            holder: The client, or a lease of it, or the name that one of its leases holds.
            seconds: When it goes on by itself. None (default): at the end of the ``with`` block or of the test.

        Returns:
            The outage, which has begun.

        Raises:
            ValueError: It is no client of this server, or the name is held by nobody in this process.
        """
        runtimes = [one for one in _runtimes(holder) if isinstance(one, (MemoryThreads, MemoryTasks))]
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


class Sim(Memory):
    """A server in memory with a time of its own: an hour passes in a moment, and only when somebody waits.

    Time does not move while code runs. It jumps to what comes next when somebody waits in it: the test in ``sleep``, a
    thread in a call of pawl, or an event loop of asyncio all of whose tasks sleep. So ``await asyncio.sleep(60)`` takes
    no time, and renewals, expiries and timeouts come as they would, in their order.

    In asyncio it is the loop's own clock that is moved, from the first use of a client in it to ``close``: every sleep
    and timeout in that loop goes by it. In code for threads, only pawl's own waits do: ``time.sleep`` takes its real
    time, unless the test says ``monkeypatch.setattr("time.sleep", pawl_sim.sleep)``.
    """

    def __init__(self, *, patience: float = 0.01) -> None:
        """Open it.

        Args:
            patience: Real seconds that other threads get, and what a loop awaits from outside, before time jumps.
                Default 0.01; a test with one thread and no such loop needs none.

        Raises:
            ConfigurationError: lupa is not installed; the extra ``pawlock[testing]`` brings it.
        """
        self._virtual = VirtualClock(patience)
        self._bent: dict[asyncio.AbstractEventLoop, Callable[[], None]] = {}
        self._open(self._virtual)

    @property
    def now(self) -> float:
        """Seconds on the clock of this simulation."""
        return self._virtual.now()

    def sleep(self, seconds: float) -> None:
        """Let time pass, with all that happens in it. In asyncio, await ``asyncio.sleep``: this blocks the loop.

        Args:
            seconds: How many.
        """
        self._virtual.nap().wait(seconds)

    def _tasks(self, loop: asyncio.AbstractEventLoop, wake_prefix: str) -> MemoryTasks:
        if loop not in self._bent:
            self._bent[loop] = bend(loop, self._virtual)
        return super()._tasks(loop, wake_prefix)

    def close(self) -> None:
        """See ``Memory``; loops get their own time back."""
        super().close()
        while self._bent:
            with suppress(RuntimeError):
                self._bent.popitem()[1]()


def _runtimes(holder: Client | AsyncClient | BaseLease | BaseMultiLease | str) -> list[object]:
    if isinstance(holder, (Client, AsyncClient)):
        return [engine.runtime for engine in holder._known_engines()]
    leases = (lease_of(holder),) if isinstance(holder, str) else members_of(holder)
    return list({id(lease.engine): lease.engine.runtime for lease in leases}.values())
