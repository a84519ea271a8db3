"""Nobody is left waiting for a lock that is free: the moments where a turn could get lost, many times over.

Every scenario ends with the same questions: did everybody come to an end, is the name free on the server with
nothing queued, and does no client remember a queue, a lease or a duty.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from functools import partial
from typing import Any

import pytest

import pawl
from pawl.testing._resp import ReplyError
from pawl.testing.servers import Server
from tests.contention.rig import PATIENCE, aeventually, all_at_rest, at_rest, run_threads

MIXED: list[dict[str, Any]] = [{}, {}, {"handover": 2}, {"handover": 0}, {"ttl": 5.0}, {"renew": False}]


# Everything at random ------------------------------------------------------------------------------------------------


def test_threads_at_random(valkey: Server, clients: list[pawl.Client]) -> None:
    inside: list[int] = []
    granted: list[int] = []

    def serve(seed: int) -> None:
        dice = random.Random(seed)
        client = clients[seed % len(clients)]
        lock = client.lock("x", **MIXED[seed % len(MIXED)])
        for _ in range(60):
            lease: pawl.Lease | None = None
            step = dice.random()
            if step < 0.2:
                lease = lock.try_acquire()
            elif step < 0.6:
                with contextlib.suppress(pawl.AcquireTimeout):
                    lease = lock.acquire(timeout=dice.random() * 0.02)
            else:
                lease = lock.acquire()
            if lease is None:
                continue
            inside.append(seed)
            assert len(inside) == 1
            granted.append(lease.fence)
            if dice.random() < 0.5:
                time.sleep(dice.random() * 0.004)
            inside.remove(seed)
            lease.release()

    run_threads([partial(serve, seed) for seed in range(12)])
    assert granted == sorted(set(granted))
    all_at_rest(valkey, [client._engine for client in clients], "x")


async def test_tasks_at_random(valkey: Server, aclients: list[pawl.AsyncClient]) -> None:
    inside: list[int] = []
    granted: list[int] = []

    async def one(dice: random.Random, lock: pawl.AsyncLock, seed: int) -> None:
        lease: pawl.AsyncLease | None = None
        step = dice.random()
        if step < 0.2:
            lease = await lock.try_acquire()
        elif step < 0.6:
            with contextlib.suppress(pawl.AcquireTimeout):
                lease = await lock.acquire(timeout=dice.random() * 0.02)
        else:
            lease = await lock.acquire()
        if lease is not None:
            async with lease:
                inside.append(seed)
                try:
                    assert len(inside) == 1
                    granted.append(lease.fence)
                    if dice.random() < 0.5:
                        await asyncio.sleep(dice.random() * 0.004)
                finally:
                    inside.remove(seed)

    async def serve(seed: int) -> None:
        dice = random.Random(seed)
        lock = aclients[seed % len(aclients)].lock("x", **MIXED[seed % len(MIXED)])
        for _ in range(60):
            task = asyncio.ensure_future(one(dice, lock, seed))
            if dice.random() < 0.4:
                await asyncio.sleep(dice.random() * 0.01)
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(serve(seed) for seed in range(18)))
    assert granted == sorted(set(granted))
    engines = [client._engine() for client in aclients]
    await aeventually(lambda: all(map(at_rest, engines)), "the clients are at rest")
    all_at_rest(valkey, engines, "x")


# The same while an administrator runs amok --------------------------------------------------------------------------

AMOK: list[tuple[str, ...]] = [
    ("DEL", "pawl:x"),
    ("SET", "pawl:x", "somebody-else", "PX", "30"),
    ("DEL", "{pawl:x}:1:queue"),
    ("DEL", "{pawl:x}:1:tickets"),
    ("DEL", "{pawl:x}:fence"),
    ("FLUSHALL",),
    ("SCRIPT", "FLUSH"),
    ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
    ("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"),
    ("CLIENT", "PAUSE", "20", "ALL"),
]
TOLD = (pawl.AcquireTimeout, pawl.LeaseLost, pawl.NotHeld, pawl.BackendUnavailable)


class Amok:
    """Does harm to the server until everybody is done."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._dice = random.Random(seed)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._dice.random() * 0.02):
            with contextlib.suppress(ReplyError):
                self._server.command(*self._dice.choice(AMOK))


@pytest.mark.fault
@pytest.mark.parametrize("seed", range(3))
def test_threads_under_an_amok_administrator(valkey: Server, clients: list[pawl.Client], seed: int) -> None:
    granted: list[list[int]] = [[] for _ in range(10)]

    def serve(number: int) -> None:
        dice = random.Random(seed * 100 + number)
        lock = clients[number % 2].lock("x", **{"ttl": 1.0, **MIXED[number % 4]})
        for _ in range(25):
            with (
                contextlib.suppress(*TOLD),
                lock.acquire(timeout=None if dice.random() < 0.5 else 0.05) as lease,
            ):
                granted[number].append(lease.fence)
                time.sleep(dice.random() * 0.004)

    with Amok(valkey, seed):
        run_threads([partial(serve, number) for number in range(10)])
    for fences in granted:
        assert fences == sorted(set(fences))
    all_at_rest(valkey, [client._engine for client in clients])


@pytest.mark.fault
@pytest.mark.parametrize("seed", range(3))
async def test_tasks_under_an_amok_administrator(
    valkey: Server, aclients: list[pawl.AsyncClient], seed: int
) -> None:
    granted: list[list[int]] = [[] for _ in range(10)]

    async def serve(number: int) -> None:
        dice = random.Random(seed * 100 + number)
        lock = aclients[number % 2].lock("x", **{"ttl": 1.0, **MIXED[number % 4]})
        for _ in range(25):
            with contextlib.suppress(*TOLD):
                async with lock.acquire(timeout=None if dice.random() < 0.5 else 0.05) as lease:
                    granted[number].append(lease.fence)
                    await asyncio.sleep(dice.random() * 0.004)

    with Amok(valkey, seed):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(serve(number) for number in range(10)))
    for fences in granted:
        assert fences == sorted(set(fences))
    engines = [client._engine() for client in aclients]
    await aeventually(lambda: all(map(at_rest, engines)), "the clients are at rest")
