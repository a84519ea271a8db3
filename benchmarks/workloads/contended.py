"""Contended work: every worker of one process wants the same name; nothing is done while it is held.

Each grant is written down while the lock is held, so the order of the list is the order of the grants. A
hand-off counts only where the owner really changed; a worker that takes its own lock again has handed
nothing over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchmarks.model import ViolationError
from benchmarks.peers import AsyncSession, Handle, Session
from benchmarks.stats import jain, most_to_least, percentile

monotonic = time.monotonic
SETTLE = 0.15  # s of full load before counting begins
DRAIN = 20.0  # s within which the last waiters must have been served
# An empty section is too short for anybody to come in. One grant in so many yields while it holds, so that a
# second holder would be seen; the rest are as empty as promised.
YIELD_EVERY = 64
NOTED = 1000  # first grants of a turn, with the instants around them, for the history checker


class Board:
    """The protected resource: knows who is inside and refuses a second one, and fences that do not rise."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.order: list[int] = []
        self.events: list[tuple[int, float, float, float, float, int | None]] = []
        self.waits: list[float] = []
        self.stop = False
        self.inside: int | None = None
        self.last_fence = 0

    def enter(self, worker: int, fence: int | None) -> bool:
        """Note that `worker` holds the lock; raise when somebody else does, or when its fence did not rise.

        Returns:
            Whether the worker should let others run before it leaves.
        """
        other, self.inside = self.inside, worker
        if other is not None:
            raise ViolationError(f"worker {worker} entered while {other} was inside")
        if fence is not None:
            if fence <= self.last_fence:
                raise ViolationError(f"fence {fence} after {self.last_fence}")
            self.last_fence = fence
        self.order.append(worker)
        return len(self.order) % YIELD_EVERY == 0

    def leave(self, worker: int) -> None:
        """Note that `worker` is about to release; raise when somebody came in meanwhile."""
        other, self.inside = self.inside, None
        if other != worker:
            raise ViolationError(f"worker {worker} left, but {other} was inside")

    def begin(self) -> None:
        """Start a new turn; the last fence stays."""
        self.order, self.events, self.waits, self.stop = [], [], [], False

    def sample(self, begin: int, end: int, wall: float, cpu: float) -> dict[str, Any]:
        """Return what happened between two lengths of the order list."""
        window = self.order[begin:end]
        counts = _counts(window, self.workers)
        return {
            "events": self.events,
            "grants": len(self.order),
            "acquisitions": len(window),
            "handoffs": sum(before != after for before, after in pairwise(window)),
            "window": wall,
            "cpu": cpu,
            "jain": jain(counts),
            "most_to_least": most_to_least(counts),
            "wait_p50_ms": percentile(self.waits, 0.5) * 1000,
            "wait_p99_ms": percentile(self.waits, 0.99) * 1000,
            "wait_max_ms": max(self.waits, default=0.0) * 1000,
        }


def _counts(window: Sequence[int], workers: int) -> list[int]:
    counted = Counter(window)
    return [counted[worker] for worker in range(workers)]


class ContendedThreads:
    """Threads of one process on one name."""

    def __init__(self, session: Session, name: str, workers: int) -> None:
        self._session = session
        self._name = name
        self._board = Board(workers)
        self._errors: list[BaseException] = []
        self._start = threading.Barrier(workers + 1)
        self._end = threading.Barrier(workers + 1)
        for worker in range(workers):
            threading.Thread(target=self._live, args=(worker,), daemon=True).start()

    def run(self, command: dict[str, float]) -> dict[str, Any]:
        """Contend for some `seconds` (after settling) and return what was counted."""
        seconds = command["seconds"]
        board = self._board
        board.begin()
        cpu = time.process_time()
        self._start.wait()
        time.sleep(min(SETTLE, seconds))
        first, begin = len(board.order), monotonic()
        time.sleep(seconds)
        last, end = len(board.order), monotonic()
        board.stop = True
        try:
            self._end.wait(DRAIN)
        except threading.BrokenBarrierError:
            self._errors.append(TimeoutError("waiters were not served within the time to drain"))
        if self._errors:
            raise self._errors[0]
        return board.sample(first, last, end - begin, time.process_time() - cpu)

    def _live(self, worker: int) -> None:
        handle = self._session.handle(self._name)
        while True:
            self._start.wait()
            try:
                _contend(self._board, worker, handle)
            except BaseException as error:  # noqa: BLE001 - reported by the main thread
                self._errors.append(error)
                self._board.stop = True
            self._end.wait()


def _contend(board: Board, worker: int, handle: Handle) -> None:
    acquire, release, fence = handle.acquire, handle.release, handle.fence
    while not board.stop:
        asked = monotonic()
        grant = acquire()
        acquired = monotonic()
        board.waits.append(acquired - asked)
        number = None if fence is None else fence(grant)
        noted = len(board.order) < NOTED
        if board.enter(worker, number):
            time.sleep(0)
        board.leave(worker)
        if not noted:
            release(grant)
            continue
        releasing = monotonic()
        release(grant)
        board.events.append((worker, asked, acquired, releasing, monotonic(), number))


class ContendedTasks:
    """Tasks of one event loop on one name."""

    def __init__(self, handles: list[Handle]) -> None:
        self._handles = handles
        self._board = Board(len(handles))

    @classmethod
    async def open(cls, session: AsyncSession, name: str, workers: int) -> ContendedTasks:
        """Make a handle for every task."""
        return cls([await session.handle(name) for _ in range(workers)])

    async def run(self, command: dict[str, float]) -> dict[str, Any]:
        """Contend for some `seconds` (after settling) and return what was counted."""
        seconds = command["seconds"]
        board = self._board
        board.begin()
        cpu = time.process_time()
        async with asyncio.timeout(SETTLE + seconds + DRAIN), asyncio.TaskGroup() as group:
            for worker, handle in enumerate(self._handles):
                group.create_task(_contend_async(board, worker, handle))
            await asyncio.sleep(min(SETTLE, seconds))
            first, begin = len(board.order), monotonic()
            await asyncio.sleep(seconds)
            last, end = len(board.order), monotonic()
            board.stop = True
        return board.sample(first, last, end - begin, time.process_time() - cpu)


async def _contend_async(board: Board, worker: int, handle: Handle) -> None:
    acquire, release, fence = handle.acquire, handle.release, handle.fence
    while not board.stop:
        asked = monotonic()
        grant = await acquire()
        acquired = monotonic()
        board.waits.append(acquired - asked)
        number = None if fence is None else fence(grant)
        noted = len(board.order) < NOTED
        if board.enter(worker, number):
            await asyncio.sleep(0)
        board.leave(worker)
        if not noted:
            await release(grant)
            continue
        releasing = monotonic()
        await release(grant)
        board.events.append((worker, asked, acquired, releasing, monotonic(), number))
