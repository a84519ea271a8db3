"""What a participant's process does, told by the runner in JSON: the work itself, in either API.

Nothing of a crowd is added up here: several processes, also of other languages, take part, and what they saw is put
together where all of it is known.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.events import jain, percentile
from benchmarks.model import Sample, ViolationError
from benchmarks.peers import Handle, Session

__all__ = ["Leases", "Tasks", "Threads", "Waiters", "turn"]

monotonic = time.monotonic
Command: TypeAlias = dict[str, float]
Row: TypeAlias = tuple[float, float, float, float, int | None]
AT_ONCE = 1000
QUIET = 0.01  # s


def _risen(number: int, last: int) -> int:
    if number <= last:
        raise ViolationError(f"fence {number} after {last}")
    return number


def _pair(handle: Handle, command: Command) -> list[float]:
    """Take and give back a lock of one's own, as fast as it goes; the seconds of each acquire."""
    acquire, release, fence = handle.acquire, handle.release, handle.fence
    waits: list[float] = []
    waited, last = waits.append, 0
    asked = monotonic()
    until = asked + command["seconds"]
    while asked < until:
        grant = acquire()
        waited(monotonic() - asked)
        if fence is not None:
            last = _risen(fence(grant), last)
        release(grant)
        asked = monotonic()
    return waits


async def _pair_async(handle: Handle, command: Command) -> list[float]:
    acquire, release, fence = handle.acquire, handle.release, handle.fence
    waits: list[float] = []
    waited, last = waits.append, 0
    asked = monotonic()
    until = asked + command["seconds"]
    while asked < until:
        grant = await acquire()
        waited(monotonic() - asked)
        if fence is not None:
            last = _risen(fence(grant), last)
        await release(grant)
        asked = monotonic()
    return waits


def _crowd(handle: Handle, command: Command) -> list[Row]:
    """Contend for one name, stay inside for a given time, and write down when."""
    acquire, release, fence, section = handle.acquire, handle.release, handle.fence, command["section"]
    rows: list[Row] = []
    time.sleep(max(0.0, command["start"] - monotonic()))
    until = command["start"] + command["seconds"]
    while monotonic() < until:
        asked = monotonic()
        grant = acquire()
        acquired = monotonic()
        number = None if fence is None else fence(grant)
        if section:
            time.sleep(section)
        releasing = monotonic()
        release(grant)
        rows.append((asked, acquired, releasing, monotonic(), number))
    return rows


async def _crowd_async(handle: Handle, command: Command) -> list[Row]:
    acquire, release, fence, section = handle.acquire, handle.release, handle.fence, command["section"]
    rows: list[Row] = []
    await asyncio.sleep(max(0.0, command["start"] - monotonic()))
    until = command["start"] + command["seconds"]
    while monotonic() < until:
        asked = monotonic()
        grant = await acquire()
        acquired = monotonic()
        number = None if fence is None else fence(grant)
        if section:
            await asyncio.sleep(section)
        releasing = monotonic()
        await release(grant)
        rows.append((asked, acquired, releasing, monotonic(), number))
    return rows


def _told(workload: str, found: list[list[Any]], wall: float, cpu: float) -> dict[str, Any]:
    """What the runner is told of a turn; `found` has a list for each worker."""
    if workload == "crowd":
        return {"events": [(worker, *row) for worker, rows in enumerate(found) for row in rows], "cpu": cpu}
    waits = [wait for mine in found for wait in mine]
    return {
        "grants": len(waits),
        "wall": wall,
        "cpu": cpu,
        "jain": jain([len(mine) for mine in found]),
        "acquire_p50_us": percentile(waits, 0.5) * 1e6,
        "acquire_p99_us": percentile(waits, 0.99) * 1e6,
    }


class Threads:
    """Workers that live as long as the process: a connection held by a thread stays warm.

    A lone worker is the main thread itself, so that nothing else wants the interpreter.
    """

    def __init__(self, workload: str, session: Session, names: list[str]) -> None:
        self._workload = workload
        self._work: Callable[[Handle, Command], list[Any]] = _crowd if workload == "crowd" else _pair
        self._alone = session(names[0]) if len(names) == 1 else None
        self._found: list[list[Any]] = [[] for _ in names]
        self._errors: list[BaseException] = []
        self._command: Command = {}
        self._barrier = threading.Barrier(len(names) + 1)
        for worker, name in enumerate(names) if self._alone is None else ():
            threading.Thread(target=self._live, args=(session, worker, name), daemon=True).start()

    def run(self, command: Command) -> dict[str, Any]:
        """Work as told, and say what came of it."""
        self._command = command
        cpu, begin = time.process_time(), monotonic()
        if self._alone is not None:
            self._found = [self._work(self._alone, command)]
        else:
            self._barrier.wait()
            self._barrier.wait()
        wall, cpu = monotonic() - begin, time.process_time() - cpu
        if self._errors:
            raise self._errors[0]
        return _told(self._workload, self._found, wall, cpu)

    def _live(self, session: Session, worker: int, name: str) -> None:
        handle = session(name)
        while True:
            self._barrier.wait()
            try:
                self._found[worker] = self._work(handle, self._command)
            except BaseException as error:  # noqa: BLE001 - reported by the main thread
                self._errors.append(error)
            self._barrier.wait()


class Tasks:
    """The same with tasks of one event loop."""

    def __init__(self, workload: str, session: Session, names: list[str]) -> None:
        self._workload = workload
        self._work: Callable[[Handle, Command], Awaitable[list[Any]]] = (
            _crowd_async if workload == "crowd" else _pair_async
        )
        self._handles = [session(name) for name in names]

    async def run(self, command: Command) -> dict[str, Any]:
        """Work as told, and say what came of it."""
        cpu, begin = time.process_time(), monotonic()
        found = await asyncio.gather(*(self._work(handle, command) for handle in self._handles))
        return _told(self._workload, found, monotonic() - begin, time.process_time() - cpu)


def turn(handle: Handle, hold: float, say: Callable[[Sample], None]) -> Sample:
    """Take the lock from another process that holds it, hold it for so many seconds, and release it.

    It stays quiet for a moment after that: on a small machine a line written to a pipe would wake a third process just
    when the waiter's own wake-up is being measured.

    Args:
        handle: The lock.
        hold: Seconds between the grant and the release.
        say: Called once with `acquired` (monotonic seconds, one clock for all processes) and `fence`.

    Returns:
        `releasing`: the moment just before release was called.
    """
    grant = handle.acquire()
    acquired = monotonic()
    say({"acquired": acquired} | ({} if handle.fence is None else {"fence": float(handle.fence(grant))}))
    time.sleep(max(0.0, acquired + hold - monotonic()))
    releasing = monotonic()
    handle.release(grant)
    time.sleep(QUIET)
    return {"releasing": releasing}


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Leases:
    """Takes many names, one lease each, and keeps them; a hundred thousand threads are none of a lock's business."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._held: list[tuple[Handle, Any]] = []

    async def run(self, command: Command) -> dict[str, Any]:
        """`take` so many over some seconds, `watch` for so many seconds, or `drop` all."""
        if "take" in command:
            return await self._take(int(command["take"]), command["over"])
        if "watch" in command:
            cpu, begin = time.process_time(), monotonic()
            await asyncio.sleep(command["watch"])
            return {"cpu": time.process_time() - cpu, "wall": monotonic() - begin}
        lost = sum(not getattr(grant, "held", True) for _, grant in self._held)
        if lost:
            raise ViolationError(f"{lost} leases were lost while nobody else wanted them")
        for first in range(0, len(self._held), AT_ONCE):
            some = self._held[first : first + AT_ONCE]
            await asyncio.gather(*(handle.release(grant) for handle, grant in some))
        return {"lost": 0.0}

    async def _take(self, number: int, over: float) -> Sample:
        """Take `number` names, spread over `over` seconds: leases of real programs fall due at all times."""
        # Connections and scripts are not the cost of a lease.
        first = self._session(f"{self._name}-first")
        await first.release(await first.acquire())
        gc.collect()
        before, begin = resident(), monotonic()
        names = iter(range(number))

        async def one_after_another() -> None:
            for index in names:
                await asyncio.sleep(max(0.0, begin + over * index / number - monotonic()))
                handle = self._session(f"{self._name}-{index}")
                self._held.append((handle, await handle.acquire()))

        # Few beside what they take, which is what the memory is counted of.
        await asyncio.gather(*(one_after_another() for _ in range(max(1, min(AT_ONCE, number // 20)))))
        gc.collect()
        return {"bytes": float(resident() - before)}


class Waiters:
    """Many tasks wait for one name; they get it one after another and give it back at once."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._fences: list[int] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._most = 0
        self._all_served = asyncio.Event()

    async def run(self, command: Command) -> dict[str, Any]:
        """`queue` so many behind a holder, or `serve`: let so many of them have it."""
        if "queue" in command:
            return await self._queue(int(command["queue"]))
        # Collecting stops the loop: what fell due meanwhile is no release's cost.
        gc.collect()
        await asyncio.sleep(0.5)
        cpu, begin, self._most = time.process_time(), monotonic(), int(command["serve"])
        await self._first.release(self._grant)
        await self._all_served.wait()
        wall, cpu = monotonic() - begin, time.process_time() - cpu
        if self._fences != sorted(set(self._fences)):
            raise ViolationError("a fence did not rise from one waiter to the next")
        return {"served": float(len(self._fences)), "wall": wall, "cpu": cpu}

    async def _queue(self, number: int) -> Sample:
        self._first = self._session(self._name)
        self._grant = await self._first.acquire()
        gc.collect()
        before = resident()
        for first in range(0, number, AT_ONCE):
            self._tasks += [
                asyncio.create_task(self._wait()) for _ in range(first, min(first + AT_ONCE, number))
            ]
            await asyncio.sleep(0.01)
        gc.collect()
        return {"bytes": float(resident() - before)}

    async def _wait(self) -> None:
        handle = self._session(self._name)
        grant = await handle.acquire()
        assert handle.fence is not None
        self._fences.append(handle.fence(grant))
        if len(self._fences) >= self._most:
            # It keeps the name: what is counted is exactly so many releases.
            self._all_served.set()
            await asyncio.Event().wait()
        await handle.release(grant)
