"""``Sim``: a server in the memory of a test, with a time of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Self

from pawlock.aio.client import AsyncClient
from pawlock.core.base_lease import BaseLease
from pawlock.core.runtime import Call, Fault
from pawlock.primitives.multi.lease import BaseMultiLease, members_of
from pawlock.sync.client import Client
from pawlock.testing.clock import VirtualClock
from pawlock.testing.memory.loops import bend
from pawlock.testing.memory.node import MemoryNode
from pawlock.testing.memory.runtimes import MemoryTasks, MemoryThreads
from pawlock.testing.outages import AnyFaults, Outage, lease_of
from pawlock.topology.endpoint import Place
from pawlock.topology.places import PLACES

__all__ = ["Sim"]

_numbers = count(1)


class Sim(AnyFaults):
    """A server in memory with a time of its own: an hour passes in a moment, and only when somebody waits.

    ``pawlock.connect(sim.url)`` and ``pawlock.connect_async(sim.url)`` give the real clients, and pawlock's own scripts run.
    There is no program and no socket, so another process finds nothing at the address. A context manager.

    Time does not move while code runs. It jumps to what comes next when somebody waits in it: the test in ``sleep``, a
    thread in a call of pawlock, or an event loop of asyncio all of whose tasks sleep. So ``await asyncio.sleep(60)`` takes
    no time, and renewals, expiries and timeouts come as they would, in their order.

    In asyncio it is the loop's own clock that is moved, from the first use of a client in it to ``close``: every sleep
    and timeout in that loop goes by it. In code for threads, only pawlock's own waits do: ``time.sleep`` takes its real
    time, unless the test says ``monkeypatch.setattr("time.sleep", pawlock_sim.sleep)``.

    Attributes:
        url: Its address, as long as it is open.
    """

    def __init__(self, *, patience: float = 0.01) -> None:
        """Open it.

        Args:
            patience: Real seconds that other threads get, and what a loop awaits from outside, before time jumps.
                Default 0.01; a test with one thread and no such loop needs none.

        Raises:
            ConfigurationError: lupa is not installed; the extra ``pawlock[testing]`` brings it.
        """
        clock = VirtualClock(patience)
        super().__init__(f"memory://{next(_numbers)}", clock)
        self._virtual = clock
        self._bent: dict[asyncio.AbstractEventLoop, Callable[[], None]] = {}
        self._node = MemoryNode(clock, self.url)
        PLACES[self.url] = Place(self.url, self._threads, self._tasks)

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

    def flush(self) -> None:
        """Delete every key, as FLUSHALL does."""
        self._node.flush()

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
        runtimes = [one for one in _runtimes(holder) if isinstance(one, (MemoryThreads, MemoryTasks))]
        if not runtimes:
            raise ValueError(f"{holder!r} uses no server in memory, or has not used it yet")

        def stop() -> None:
            for runtime in runtimes:
                runtime.stop()

        def go_on() -> None:
            for runtime in runtimes:
                runtime.go_on()

        return self._begin(stop, go_on, seconds)

    def close(self) -> None:
        """End all outages and forget everything; clients cannot reach it any more, and loops get their own time back."""
        self.fix()
        PLACES.pop(self.url, None)
        self._node.close()
        while self._bent:
            with suppress(RuntimeError):
                self._bent.popitem()[1]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _threads(self, wake_prefix: str) -> MemoryThreads:
        return MemoryThreads(self._node, self._virtual, wake_prefix)

    def _tasks(self, loop: asyncio.AbstractEventLoop, wake_prefix: str) -> MemoryTasks:
        if loop not in self._bent:
            self._bent[loop] = bend(loop, self._virtual)
        return MemoryTasks(loop, self._node, self._virtual, wake_prefix)

    def _run(self, call: Call) -> Any:
        reply = self._node.run(call)
        if isinstance(reply, Fault):
            raise reply
        return reply

    def _crash(self, *, keep_data: bool) -> None:
        self._node.crash(keep_data=keep_data)

    def _come_back(self) -> None:
        self._node.start()

    def _freeze(self) -> None:
        self._node.freeze()

    def _thaw(self) -> None:
        self._node.thaw()


def _runtimes(holder: Client | AsyncClient | BaseLease | BaseMultiLease | str) -> list[object]:
    if isinstance(holder, (Client, AsyncClient)):
        engines = holder._known_engines()
    else:
        leases = (lease_of(holder),) if isinstance(holder, str) else members_of(holder)
        engines = [lease.engine for lease in leases]
    runtimes = [one for engine in engines for one in (engine.runtime, engine.background)]
    return list({id(one): one for one in runtimes}.values())
