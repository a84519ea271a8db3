"""``Memory`` and ``Sim``: a server in memory that runs pawlock's scripts, in real time and in a time of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from pawlock.testing._clock import Clock, RealClock, VirtualClock
from pawlock.testing.in_process.loops import bend
from pawlock.testing.in_process.node import Node
from pawlock.testing.in_process.place import InProcess
from pawlock.testing.memory.node import MemoryNode

__all__ = ["Memory", "Sim"]


class Memory(InProcess):
    """A server in the memory of this process: no program, no socket, nothing to install but lupa.

    ``pawlock.connect(memory.url)`` and ``pawlock.connect_async(memory.url)`` give the real clients; locks, permits, latches
    and all else run pawlock's own scripts. What needs several servers or processes is for ``Server``: another process
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

    def _make_node(self, clock: Clock, url: str) -> Node:
        return MemoryNode(clock, url)


class Sim(Memory):
    """A server in memory with a time of its own: an hour passes in a moment, and only when somebody waits.

    Time does not move while code runs. It jumps to what comes next when somebody waits in it: the test in ``sleep``, a
    thread in a call of pawlock, or an event loop of asyncio all of whose tasks sleep. So ``await asyncio.sleep(60)`` takes
    no time, and renewals, expiries and timeouts come as they would, in their order.

    In asyncio it is the loop's own clock that is moved, from the first use of a client in it to ``close``: every sleep
    and timeout in that loop goes by it. In code for threads, only pawlock's own waits do: ``time.sleep`` takes its real
    time, unless the test says ``monkeypatch.setattr("time.sleep", pawlock_sim.sleep)``.
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

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop not in self._bent:
            self._bent[loop] = bend(loop, self._virtual)

    def close(self) -> None:
        """See ``Memory``; loops get their own time back."""
        super().close()
        while self._bent:
            with suppress(RuntimeError):
                self._bent.popitem()[1]()
