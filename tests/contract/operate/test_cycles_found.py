"""Who takes names in any order may wait in a deadlock; then one is told after the other, until nobody is stuck."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

import pawlock
from tests.contract.operate.rig import AFTER
from tests.support.pace import pace
from tests.support.servers import Server

CLIENTS, NAMES, PARTIES = 3, 5, 6
TOO_LONG = 15.0


@dataclass
class Tangle:
    """Parties that take names, each held by one at a time, in any order, one inside the other, and wait for long."""

    seed: int
    told: list[pawlock.DeadlockDetected] = field(default_factory=list[pawlock.DeadlockDetected])
    stuck: list[str] = field(default_factory=list[str])
    done: int = 0
    longest: float = 0.0

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        kinds = [rng.choice(["lock", "rwlock", "semaphore"]) for _ in range(NAMES)]
        self.plans = [
            [(name, kinds[name]) for name in names]
            for names in (rng.sample(range(NAMES), rng.randint(2, 3)) for _ in range(PARTIES))
        ]
        self.pauses = [rng.uniform(0, 0.02) for _ in range(PARTIES)]

    def take(self, client: Any, what: tuple[int, str]) -> Any:
        number, kind = what
        name = f"{self.seed}-{number}"
        if kind == "lock":
            return client.lock(name).acquire(timeout=TOO_LONG * pace())
        if kind == "rwlock":
            return client.rwlock(name).write.acquire(timeout=TOO_LONG * pace())
        return client.semaphore(name, permits=1).acquire(timeout=TOO_LONG * pace())

    async def party(self, number: int, client: pawlock.AsyncClient) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for what in self.plans[number]:
                began = time.monotonic()
                try:
                    await stack.enter_async_context(await self.take(client, what))
                except pawlock.DeadlockDetected as error:
                    self.told.append(error)
                    return
                except pawlock.AcquireTimeout as error:
                    self.stuck.append(f"seed {self.seed}: {error}")
                    return
                finally:
                    self.longest = max(self.longest, time.monotonic() - began)
                await asyncio.sleep(self.pauses[number])
            self.done += 1

    async def run(self, clients: list[pawlock.AsyncClient]) -> None:
        parties = (self.party(number, clients[number % CLIENTS]) for number in range(PARTIES))
        await asyncio.gather(*parties)


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
async def test_nobody_hangs(valkey: Server, count: int) -> None:
    """A deadlock that were not told would end by its time-out only; one that is none would tell everybody."""
    valkey.command("FLUSHALL")
    tangles = [Tangle(seed) for seed in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(pawlock.connect_async(valkey.url, deadlock_after=AFTER))
            for _ in range(CLIENTS)
        ]
        gate = asyncio.Semaphore(20)

        async def run_one(tangle: Tangle) -> None:
            async with gate:
                await tangle.run(clients)

        await asyncio.gather(*(run_one(tangle) for tangle in tangles))
    assert [stuck for tangle in tangles for stuck in tangle.stuck] == []
    assert all(tangle.done for tangle in tangles), "of those who wait for each other, one goes on"
    assert sum(bool(tangle.told) for tangle in tangles) > count / 10, "many of them are deadlocks"
