"""Uncontended work: every worker takes and gives back a lock of its own, as fast as it can."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field

from benchmarks.model import Sample, ViolationError
from benchmarks.peers import AsyncSession, Handle, Session
from benchmarks.stats import jain, percentile

monotonic = time.monotonic


@dataclass(slots=True)
class Tally:
    """What one worker did in one turn."""

    waits: list[float] = field(default_factory=list[float])
    """Seconds of each acquire: as many as pairs."""
    last_fence: int = 0


class PairThreads:
    """Workers are threads that live as long as the process: a connection held by a thread stays warm.

    One worker is the main thread itself, so that nothing else wants the interpreter.
    """

    def __init__(self, session: Session, names: list[str]) -> None:
        self._session = session
        self._tallies = [Tally() for _ in names]
        self._until = 0.0
        self._error: BaseException | None = None
        self._barrier = threading.Barrier(len(names) + 1)
        self._alone = session.handle(names[0]) if len(names) == 1 else None
        if self._alone is None:
            for name, tally in zip(names, self._tallies, strict=True):
                threading.Thread(target=self._live, args=(name, tally), daemon=True).start()

    def run(self, command: dict[str, float]) -> Sample:
        """Work for some `seconds` and return pairs, wall and CPU time of this process.

        With `besides`, so many commands were sent for what was held around it.
        """
        alone = self._alone
        if alone is None or alone.around is None:
            return self._turn(command["seconds"])
        outer = alone.around()
        sample = self._turn(command["seconds"])
        alone.release(outer)
        return sample | {"besides": 2.0}

    def _turn(self, seconds: float) -> Sample:
        cpu, thread, begin = time.process_time(), time.thread_time(), monotonic()
        self._until = begin + seconds
        if self._alone is not None:
            _loop(self._alone, self._tallies[0], self._until)
        else:
            self._barrier.wait()
            self._barrier.wait()
        end = monotonic()
        if self._error is not None:
            raise self._error
        return _sample(self._tallies, end - begin, time.process_time() - cpu, time.thread_time() - thread)

    def _live(self, name: str, tally: Tally) -> None:
        handle = self._session.handle(name)
        while True:
            self._barrier.wait()
            try:
                _loop(handle, tally, self._until)
            except BaseException as error:  # noqa: BLE001 - reported by the main thread
                self._error = error
            self._barrier.wait()


def _loop(handle: Handle, tally: Tally, until: float) -> None:
    acquire, release, fence = handle.acquire, handle.release, handle.fence
    last = tally.last_fence
    waits: list[float] = []
    tally.waits = waits
    waited = waits.append
    asked = monotonic()
    while asked < until:
        grant = acquire()
        waited(monotonic() - asked)
        if fence is not None:
            number = fence(grant)
            if number <= last:
                raise ViolationError(f"fence {number} after {last}")
            last = number
        release(grant)
        asked = monotonic()
    tally.last_fence = last


class PairTasks:
    """The same with tasks of one event loop."""

    def __init__(self, handles: list[Handle]) -> None:
        self._handles = handles
        self._tallies = [Tally() for _ in handles]

    @classmethod
    async def open(cls, session: AsyncSession, names: list[str]) -> PairTasks:
        """Make a handle for every name."""
        return cls([await session.handle(name) for name in names])

    async def run(self, command: dict[str, float]) -> Sample:
        """Work for some `seconds` and return pairs, wall and CPU time of this process."""
        seconds = command["seconds"]
        cpu, thread, begin = time.process_time(), time.thread_time(), monotonic()
        until = begin + seconds
        if len(self._handles) == 1:
            await _loop_async(self._handles[0], self._tallies[0], until)
        else:
            async with asyncio.TaskGroup() as group:
                for handle, tally in zip(self._handles, self._tallies, strict=True):
                    group.create_task(_loop_async(handle, tally, until))
        end = monotonic()
        return _sample(self._tallies, end - begin, time.process_time() - cpu, time.thread_time() - thread)


async def _loop_async(handle: Handle, tally: Tally, until: float) -> None:
    acquire, release, fence = handle.acquire, handle.release, handle.fence
    last = tally.last_fence
    waits: list[float] = []
    tally.waits = waits
    waited = waits.append
    asked = monotonic()
    while asked < until:
        grant = await acquire()
        waited(monotonic() - asked)
        if fence is not None:
            number = fence(grant)
            if number <= last:
                raise ViolationError(f"fence {number} after {last}")
            last = number
        await release(grant)
        asked = monotonic()
    tally.last_fence = last


def _sample(tallies: list[Tally], wall: float, cpu: float, thread: float) -> Sample:
    waits = [wait for tally in tallies for wait in tally.waits]
    return {
        "grants": len(waits),
        "wall": wall,
        "cpu": cpu,
        "thread_cpu": thread,
        "jain": jain([len(tally.waits) for tally in tallies]),
        "acquire_p50_us": percentile(waits, 0.5) * 1e6,
        "acquire_p99_us": percentile(waits, 0.99) * 1e6,
        "acquire_max_us": max(waits, default=0.0) * 1e6,
    }
