"""How cost grows: many leases held at once, many waiters on one name, many names.

The asyncio API: a hundred thousand threads are none of a lock's business.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.model import Sample, ViolationError
from benchmarks.peers import AsyncSession, Handle, Session

monotonic = time.monotonic
AT_ONCE = 1000


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Leases:
    """Takes many names, one lease each, and keeps them."""

    def __init__(self, session: AsyncSession, name: str, handles: list[Handle]) -> None:
        self._session = session
        self._name = name
        self._handles = handles
        self._grants: list[Any] = []

    @classmethod
    async def open(cls, session: AsyncSession, name: str) -> Leases:
        """Take and give back one lock first: connections and scripts are not the cost of a lease."""
        handle = await session.handle(f"{name}-first")
        await handle.release(await handle.acquire())
        return cls(session, name, [handle])

    async def run(self, command: dict[str, float]) -> Sample:
        """Do one step: `take` so many, `watch` for so many seconds, or `drop` all."""
        if "take" in command:
            over = command.get("over", 0.0)
            # All at once is about memory: while a million objects are made, Python looks through all of them again and
            # again, which is no part of what a lock costs.
            (gc.enable if over else gc.disable)()
            return await self._take(int(command["take"]), over)
        if "watch" in command:
            cpu, begin = time.process_time(), monotonic()
            await asyncio.sleep(command["watch"])
            return {"cpu": time.process_time() - cpu, "wall": monotonic() - begin}
        return await self._drop()

    async def _take(self, number: int, over: float) -> Sample:
        """Take `number` names, spread over `over` seconds: leases of real programs fall due at all times."""
        gc.collect()
        before, cpu, begin = resident(), time.process_time(), monotonic()
        names = iter(range(number))

        async def one_after_another() -> None:
            for index in names:
                due = begin + over * index / number - monotonic()
                if due > 0:
                    await asyncio.sleep(due)
                handle = await self._session.handle(f"{self._name}-{index}")
                self._grants.append(await handle.acquire())

        # Few beside what they take, which is what the memory is counted of.
        await asyncio.gather(*(one_after_another() for _ in range(max(1, min(AT_ONCE, number // 20)))))
        wall, cpu = monotonic() - begin, time.process_time() - cpu
        gc.collect()
        return {"bytes": float(resident() - before), "wall": wall, "cpu": cpu}

    async def _drop(self) -> Sample:
        """Give all back; a lease that was lost meanwhile was not renewed as promised."""
        release = self._handles[0].release
        lost = sum(1 for grant in self._grants if not _held(grant))
        for first in range(0, len(self._grants), AT_ONCE):
            await asyncio.gather(*(release(grant) for grant in self._grants[first : first + AT_ONCE]))
        self._grants = []
        if lost:
            raise ViolationError(f"{lost} leases were lost while nobody else wanted them")
        return {"lost": 0.0}


def _held(grant: object) -> bool:
    valid: bool = getattr(grant, "held", True)
    return valid


class Waiters:
    """Many tasks wait for one name; they get it one after another and give it back at once."""

    def __init__(self, session: AsyncSession, name: str) -> None:
        self._session = session
        self._name = name
        self._order: list[int] = []
        self._fences: list[int] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._first: Any = None
        self._last: Any = None
        self._handle: Handle | None = None
        self._most = 0
        self._before = 0
        self._all_served = asyncio.Event()

    @classmethod
    async def open(cls, session: AsyncSession, name: str) -> Waiters:
        """Nothing to prepare."""
        return cls(session, name)

    async def run(self, command: dict[str, float]) -> Sample:
        """`queue` so many behind a holder, `settle`, or `serve`: let so many of them have it."""
        if "queue" in command:
            return await self._queue(int(command["queue"]), int(command["turn"]))
        if "settle" in command:
            return await self._settle(command["settle"])
        return await self._serve(int(command["serve"]))

    async def _queue(self, number: int, turn: int) -> Sample:
        await self._clear()
        name = f"{self._name}-{turn}"
        self._handle = await self._session.handle(name)
        self._first = await self._handle.acquire()
        gc.collect()
        self._before, begin = resident(), monotonic()
        handles = [await self._session.handle(name) for _ in range(number)]
        for first in range(0, number, AT_ONCE):
            fresh = list(enumerate(handles))[first : first + AT_ONCE]
            self._tasks += [asyncio.create_task(self._wait(*one)) for one in fresh]
            await asyncio.sleep(0.01)
        return {"wall": monotonic() - begin}

    async def _clear(self) -> None:
        """Have the last owner of the turn before give the name back."""
        if self._handle is not None:
            await self._handle.release(self._last)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._order, self._fences, self._tasks = [], [], []
        self._all_served = asyncio.Event()

    async def _wait(self, worker: int, handle: Handle) -> None:
        grant = await handle.acquire()
        self._order.append(worker)
        if handle.fence is not None:
            self._fences.append(handle.fence(grant))
        if len(self._order) >= self._most:
            # It keeps the name: what is counted now is exactly so many releases.
            self._last = grant
            self._all_served.set()
            await asyncio.Event().wait()
        await handle.release(grant)

    async def _settle(self, seconds: float) -> Sample:
        """Collect, which stops the loop, and let it do what fell due meanwhile: no release costs that."""
        gc.collect()
        taken = float(resident() - self._before)
        await asyncio.sleep(seconds)
        return {"bytes": taken}

    async def _serve(self, number: int) -> Sample:
        assert self._handle is not None
        cpu, begin = time.process_time(), monotonic()
        self._most = number
        await self._handle.release(self._first)
        await self._all_served.wait()
        wall, cpu = monotonic() - begin, time.process_time() - cpu
        served = len(self._order)
        if self._fences != sorted(set(self._fences)):
            raise ViolationError("a fence did not rise from one waiter to the next")
        return {"served": float(served), "wall": wall, "cpu": cpu}


class LeaseThreads:
    """The same `take` and `watch` for libraries without an asyncio API."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._grants: list[tuple[Handle, Any]] = []

    def run(self, command: dict[str, float]) -> Sample:
        """Do one step: see `Leases.run`."""
        if "take" in command:
            gc.collect()
            before, cpu, begin = resident(), time.process_time(), monotonic()
            number, over = int(command["take"]), command.get("over", 0.0)
            for index in range(number):
                time.sleep(max(0.0, begin + over * index / number - monotonic()))
                handle = self._session.handle(f"{self._name}-{index}")
                self._grants.append((handle, handle.acquire()))
            wall, cpu = monotonic() - begin, time.process_time() - cpu
            gc.collect()
            return {"bytes": float(resident() - before), "wall": wall, "cpu": cpu}
        if "watch" in command:
            cpu, begin = time.process_time(), monotonic()
            time.sleep(command["watch"])
            return {"cpu": time.process_time() - cpu, "wall": monotonic() - begin}
        for handle, grant in self._grants:
            handle.release(grant)
        self._grants = []
        return {"lost": 0.0}
