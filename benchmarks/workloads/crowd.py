"""A crowd's share in one process: workers after one name that stay inside for a given time, and write down when.

Nothing is added up here: several processes, also of other languages, take part, and what they saw is put together
where all of it is known.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, TypeAlias

from benchmarks.peers import AsyncSession, Handle, Session

monotonic = time.monotonic
Command: TypeAlias = dict[str, float]
Row: TypeAlias = tuple[int, float, float, float, float, int | None]


class CrowdThreads:
    """Threads of one process; they live as long as it does."""

    def __init__(self, session: Session, name: str, workers: int) -> None:
        self._session = session
        self._name = name
        self._rows: list[Row] = []
        self._errors: list[BaseException] = []
        self._command: Command = {}
        self._barrier = threading.Barrier(workers + 1)
        for worker in range(workers):
            threading.Thread(target=self._live, args=(worker,), daemon=True).start()

    def run(self, command: Command) -> dict[str, Any]:
        """Contend as told; return the events and the CPU time of this process."""
        self._rows = []
        self._command = command
        cpu = time.process_time()
        self._barrier.wait()
        self._barrier.wait()
        if self._errors:
            raise self._errors[0]
        return {"events": self._rows, "cpu": time.process_time() - cpu}

    def _live(self, worker: int) -> None:
        handle = self._session.handle(self._name)
        while True:
            self._barrier.wait()
            try:
                _crowd(handle, worker, self._command, self._rows)
            except BaseException as error:  # noqa: BLE001 - reported by the main thread
                self._errors.append(error)
            self._barrier.wait()


def _crowd(handle: Handle, worker: int, command: Command, rows: list[Row]) -> None:
    acquire, release, fence = handle.acquire, handle.release, handle.fence
    section = command["section"]
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
        rows.append((worker, asked, acquired, releasing, monotonic(), number))


class CrowdTasks:
    """Tasks of one event loop."""

    def __init__(self, handles: list[Handle]) -> None:
        self._handles = handles

    @classmethod
    async def open(cls, session: AsyncSession, name: str, workers: int) -> CrowdTasks:
        """Make a handle for every task."""
        return cls([await session.handle(name) for _ in range(workers)])

    async def run(self, command: Command) -> dict[str, Any]:
        """Contend as told; return the events and the CPU time of this process."""
        rows: list[Row] = []
        cpu = time.process_time()
        async with asyncio.TaskGroup() as group:
            for worker, handle in enumerate(self._handles):
                group.create_task(_crowd_async(handle, worker, command, rows))
        return {"events": rows, "cpu": time.process_time() - cpu}


async def _crowd_async(handle: Handle, worker: int, command: Command, rows: list[Row]) -> None:
    acquire, release, fence = handle.acquire, handle.release, handle.fence
    section = command["section"]
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
        rows.append((worker, asked, acquired, releasing, monotonic(), number))
