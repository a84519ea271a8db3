"""Who takes names in one order never waits in a circle, and is never told so: locks, readers, writers and permits."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

import pawlock
from tests.support.servers import Server

AFTER = 0.05
MODES = {"lock": ("lock",), "rwlock": ("read", "write"), "semaphore": (1, 2, 3)}
PERMITS = 3
CLIENTS, NAMES, PARTIES = 4, 6, 8


@dataclass
class Run:
    """One random workload: each party takes some names in order, each of a kind, and holds them for a while."""

    seed: int
    longest_wait: float = 0.0
    wrong: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        kinds = [rng.choice(sorted(MODES)) for _ in range(NAMES)]
        # The last two have one name and want another alone, which the first holds for longer than waiters wait before
        # they look.
        self.plans: list[list[tuple[Any, float, float]]] = []
        for party in range(PARTIES):
            firm = party >= PARTIES - 2
            taken = [party % 2, NAMES - 1] if firm else sorted(rng.sample(range(NAMES), rng.randint(2, 3)))
            modes = [MODES[kinds[name]][-1] if firm else rng.choice(MODES[kinds[name]]) for name in taken]
            holds = [0.0, AFTER * 2.5] if firm else [rng.uniform(0, 0.03) for _ in taken]
            patience = [20.0 if firm else rng.choice([0.06, 0.12, 20.0]) for _ in taken]
            self.plans.append(list(zip(zip(taken, modes, strict=True), holds, patience, strict=True)))
        self.clients = [rng.randrange(CLIENTS) for _ in range(PARTIES)]

    def take(self, client: Any, what: tuple[int, Any], patience: float) -> Any:
        """The lease, or the promise of one, of what a plan names."""
        number, mode = what
        name = f"{self.seed}-{number}"
        if mode == "lock":
            return client.lock(name).acquire(timeout=patience)
        if isinstance(mode, str):
            return getattr(client.rwlock(name), mode).acquire(timeout=patience)
        return client.semaphore(name, permits=PERMITS).acquire(mode, timeout=patience)

    def note(self, began: float, error: pawlock.PawlockError | None = None) -> None:
        self.longest_wait = max(self.longest_wait, time.monotonic() - began)
        # On a busy machine even the answer may take longer than a short patience.
        if error is not None and not isinstance(error, (pawlock.AcquireTimeout, pawlock.BackendUnavailable)):
            self.wrong.append(f"seed {self.seed}: {error!r}")

    def party(self, number: int, clients: list[pawlock.Client]) -> None:
        with contextlib.ExitStack() as stack:
            for what, hold, patience in self.plans[number]:
                began = time.monotonic()
                try:
                    client = clients[self.clients[number]]
                    stack.enter_context(self.take(client, what, patience))
                except pawlock.PawlockError as error:
                    self.note(began, error)
                    return
                self.note(began)
                time.sleep(hold)

    async def aparty(self, number: int, clients: list[pawlock.AsyncClient]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for what, hold, patience in self.plans[number]:
                began = time.monotonic()
                try:
                    client = clients[self.clients[number]]
                    await stack.enter_async_context(await self.take(client, what, patience))
                except pawlock.PawlockError as error:
                    self.note(began, error)
                    return
                self.note(began)
                await asyncio.sleep(hold)

    def in_threads(self, clients: list[pawlock.Client]) -> None:
        threads = [threading.Thread(target=self.party, args=(n, clients)) for n in range(PARTIES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    async def in_tasks(self, clients: list[pawlock.AsyncClient]) -> None:
        await asyncio.gather(*(self.aparty(n, clients) for n in range(PARTIES)))


@pytest.fixture
def clients(valkey: Server) -> Iterator[list[pawlock.Client]]:
    valkey.command("FLUSHALL")
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(pawlock.connect(valkey.url, deadlock_after=AFTER, ttl=10))
            for _ in range(CLIENTS)
        ]


def judge(runs: list[Run]) -> None:
    assert [wrong for run in runs for wrong in run.wrong] == []
    assert min(run.longest_wait for run in runs) > AFTER, "each run has a wait that is looked into"


@pytest.mark.parametrize(
    "count", [12, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(400)])]
)
def test_threads(clients: list[pawlock.Client], count: int) -> None:
    runs = [Run(seed) for seed in range(count)]
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(run.in_threads, clients) for run in runs]:
            done.result()
    judge(runs)
    assert sum(client._engine.reports.counters["cycle_looks"] for client in clients) >= count


@pytest.mark.parametrize(
    "count", [12, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(400)])]
)
async def test_tasks(valkey: Server, count: int) -> None:
    valkey.command("FLUSHALL")
    runs = [Run(seed) for seed in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(pawlock.connect_async(valkey.url, deadlock_after=AFTER, ttl=10))
            for _ in range(CLIENTS)
        ]
        gate = asyncio.Semaphore(20)

        async def run_one(run: Run) -> None:
            async with gate:
                await run.in_tasks(clients)

        await asyncio.gather(*(run_one(run) for run in runs))
        loop = asyncio.get_running_loop()
        assert sum(client._engines[loop].reports.counters["cycle_looks"] for client in clients) >= count
    judge(runs)
