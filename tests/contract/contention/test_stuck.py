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

import pawlock
from tests.contract.contention.rig import (
    PATIENCE,
    aeventually,
    all_at_rest,
    at_rest,
    eventually,
    left_over,
    queue_length,
    run_threads,
)
from tests.support.resp import ReplyError
from tests.support.servers import Server

MIXED: list[dict[str, Any]] = [{}, {}, {"handover": 2}, {"handover": 0}, {"ttl": 5.0}, {"renew": False}]


# Everything at random ------------------------------------------------------------------------------------------------


def test_threads_at_random(valkey: Server, clients: list[pawlock.Client]) -> None:
    inside: list[int] = []
    granted: list[int] = []

    def serve(seed: int) -> None:
        dice = random.Random(seed)
        client = clients[seed % len(clients)]
        lock = client.lock("x", **MIXED[seed % len(MIXED)])
        for _ in range(60):
            lease: pawlock.Lease | None = None
            step = dice.random()
            if step < 0.2:
                lease = lock.try_acquire()
            elif step < 0.6:
                # On a busy machine no answer comes within milliseconds: then nobody knows whether the name is free.
                with contextlib.suppress(pawlock.AcquireTimeout, pawlock.BackendUnavailable):
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


async def test_tasks_at_random(valkey: Server, aclients: list[pawlock.AsyncClient]) -> None:
    inside: list[int] = []
    granted: list[int] = []

    async def one(dice: random.Random, lock: pawlock.AsyncLock, seed: int) -> None:
        lease: pawlock.AsyncLease | None = None
        step = dice.random()
        if step < 0.2:
            lease = await lock.try_acquire()
        elif step < 0.6:
            # On a busy machine no answer comes within milliseconds: then nobody knows whether the name is free.
            with contextlib.suppress(pawlock.AcquireTimeout, pawlock.BackendUnavailable):
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
    ("DEL", "pawlock:x"),
    ("SET", "pawlock:x", "somebody-else", "PX", "30"),
    ("DEL", "{pawlock:x}:1:queue"),
    ("DEL", "{pawlock:x}:1:tickets"),
    ("DEL", "{pawlock:x}:fence"),
    ("FLUSHALL",),
    ("SCRIPT", "FLUSH"),
    ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
    ("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"),
    ("CLIENT", "PAUSE", "20", "ALL"),
]
TOLD = (pawlock.AcquireTimeout, pawlock.LeaseLost, pawlock.NotHeld, pawlock.BackendUnavailable)


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
@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)]])
def test_threads_under_an_amok_administrator(
    valkey: Server, clients: list[pawlock.Client], seed: int
) -> None:
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
@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)]])
async def test_tasks_under_an_amok_administrator(
    valkey: Server, aclients: list[pawlock.AsyncClient], seed: int
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


# The moments in which a turn could get lost --------------------------------------------------------------------------


def test_threads_granted_in_the_instant_of_their_timeout(
    valkey: Server, clients: list[pawlock.Client]
) -> None:
    """Released just when a waiter gives up, by another client or the same: granted or timed out, never both."""
    dice = random.Random(3)
    outcomes: set[bool] = set()

    def wait(client: pawlock.Client) -> None:
        try:
            client.lock("x").acquire(timeout=0.01).release()
        except (pawlock.AcquireTimeout, pawlock.BackendUnavailable):  # the second on a busy machine
            outcomes.add(False)
        else:
            outcomes.add(True)

    def hold(lease: list[pawlock.Lease]) -> None:
        lease.append(clients[0].lock("x").acquire())

    for number in range(60):
        held: list[pawlock.Lease] = []
        run_threads([partial(hold, held)])

        def give_back(lease: pawlock.Lease = held[0]) -> None:
            time.sleep(0.008 + dice.random() * 0.005)
            lease.release()

        waiter = partial(wait, clients[number % 2])
        run_threads([waiter, waiter, give_back])
        assert left_over(valkey, "x") == [], "nobody keeps it"
    assert outcomes == {True, False}
    all_at_rest(valkey, [client._engine for client in clients], "x")


async def test_tasks_granted_in_the_instant_of_their_timeout(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    dice = random.Random(3)
    outcomes: set[str] = set()

    async def wait(client: pawlock.AsyncClient) -> None:
        try:
            await (await client.lock("x").acquire(timeout=0.01)).release()
        except (pawlock.AcquireTimeout, pawlock.BackendUnavailable):  # the second on a busy machine
            outcomes.add("timeout")
        except asyncio.CancelledError:
            outcomes.add("cancelled")
        else:
            outcomes.add("granted")

    for number in range(120):
        lease = await aclients[0].lock("x").acquire()
        client = aclients[number % 2]
        waiters = [asyncio.create_task(wait(client)) for _ in range(3)]
        await asyncio.sleep(0.008 + dice.random() * 0.004)
        await lease.release()
        if number % 3 == 0:
            # In the same tick as the hand-over, or one or two later.
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            waiters[0].cancel()
        async with asyncio.timeout(5.0):
            await asyncio.gather(*waiters)
        if "cancelled" not in outcomes or number % 3:
            assert left_over(valkey, "x") == [], "nobody keeps it"
        else:
            await aeventually(lambda: left_over(valkey, "x") == [], "nobody keeps it")
    assert outcomes == {"timeout", "cancelled", "granted"}
    engines = [client._engine() for client in aclients]
    await aeventually(lambda: all(map(at_rest, engines)), "the clients are at rest")


async def test_the_speaker_goes_and_the_others_go_on(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    """The task that speaks to the server for all times out, is cancelled, or is stopped, and keeps its place."""
    holder, client = aclients
    engine = client._engine()
    third = pawlock.connect_async(valkey.url)
    for number in range(20):
        lease = await holder.lock("x").acquire()
        speaker = asyncio.create_task(_take(client, 0.02 if number % 2 else None))
        await aeventually(lambda: queue_length(valkey, "x") == 1, "the speaker is queued")
        # Whoever is stopped before it knows of its ticket cannot pass it on: the next one has its own.
        await aeventually(
            lambda: any(one.waiter and one.waiter.rank == 0 for one in engine.waits), "it knows"
        )
        others = [asyncio.create_task(_take(client, None)) for _ in range(3)]
        await asyncio.sleep(0)
        if number % 2:
            with pytest.raises(pawlock.AcquireTimeout):
                await speaker
        else:
            speaker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await speaker
        assert queue_length(valkey, "x") == 1, "the ticket is kept"
        rival = asyncio.create_task(_take(third, None))
        await aeventually(lambda: queue_length(valkey, "x") == 2, "the rival stands behind it")
        await lease.release()
        async with asyncio.timeout(5.0):
            fences = [await other for other in others]
            assert await rival > fences[0], "the others kept the place of the one who left"
        assert fences == sorted(fences)
        await aeventually(lambda: at_rest(engine), "the client is at rest")
        assert left_over(valkey, "x") == []
    await third.close()


async def _take(client: pawlock.AsyncClient, timeout: float | None) -> int:
    async with client.lock("x").acquire(timeout=timeout) as lease:
        return lease.fence


def test_the_speaking_thread_times_out_and_the_others_go_on(
    valkey: Server, clients: list[pawlock.Client]
) -> None:
    holder, client = clients
    for _ in range(20):
        lease = holder.lock("x").acquire()
        fences: list[int] = []
        gave_up = threading.Event()

        def give_up(gave_up: threading.Event = gave_up) -> None:
            with pytest.raises(pawlock.AcquireTimeout):
                client.lock("x").acquire(timeout=0.03)
            gave_up.set()

        def wait(fences: list[int] = fences, gave_up: threading.Event = gave_up) -> None:
            eventually(lambda: len(client._engine.local_queues) or gave_up.is_set(), "somebody speaks")
            with client.lock("x").acquire() as mine:
                fences.append(mine.fence)

        def give_back(lease: pawlock.Lease = lease, gave_up: threading.Event = gave_up) -> None:
            assert gave_up.wait(PATIENCE)
            eventually(lambda: len(client._engine.local_queues), "the others wait")
            queue = next(iter(client._engine.local_queues.values()))
            eventually(
                lambda: all(turn() is not None for turn in queue.turns), "who asks does not count as gone"
            )
            eventually(lambda: queue_length(valkey, "x") == 1, "the ticket is kept")
            lease.release()

        run_threads([give_up, wait, wait, wait, give_back])
        assert len(fences) == 3
        all_at_rest(valkey, [holder._engine, client._engine], "x")


@pytest.mark.fault
def test_threads_whose_server_stops_are_all_told_and_can_go_on(own_server: Server) -> None:
    """The speaker gets the error; the others get theirs, none sleeps forever, and the client works again."""
    options: dict[str, Any] = {"unavailable_after": 0.5, "ttl": 3.0}
    with pawlock.connect(own_server.url) as client, pawlock.connect(own_server.url) as holder:
        lease = holder.lock("x", **options).acquire()
        told: list[str] = []

        def wait() -> None:
            try:
                client.lock("x", **options).acquire()
            except pawlock.BackendUnavailable:
                told.append("unavailable")

        def stop() -> None:
            eventually(lambda: len(client._engine.local_queues), "somebody speaks")
            time.sleep(0.05)
            own_server.kill()

        run_threads([wait, wait, wait, wait, stop])
        assert told == ["unavailable"] * 4
        own_server.start()
        eventually(lambda: lease.lost, "the holder learns of it", timeout=10.0)
        with client.lock("x", **options).acquire(timeout=5.0) as mine:
            mine.check()


@pytest.mark.fault
async def test_tasks_whose_server_stops_are_all_told_and_can_go_on(own_server: Server) -> None:
    options: dict[str, Any] = {"unavailable_after": 0.5, "ttl": 3.0}
    async with (
        pawlock.connect_async(own_server.url) as client,
        pawlock.connect_async(own_server.url) as holder,
    ):
        lease = await holder.lock("x", **options).acquire()

        async def wait() -> str:
            try:
                await client.lock("x", **options).acquire()
            except pawlock.BackendUnavailable:
                return "unavailable"
            return "granted"

        waiters = [asyncio.create_task(wait()) for _ in range(4)]
        await aeventually(lambda: queue_length(own_server, "x") == 1, "somebody speaks")
        await asyncio.to_thread(own_server.kill)
        async with asyncio.timeout(10.0):
            assert await asyncio.gather(*waiters) == ["unavailable"] * 4
        await asyncio.to_thread(own_server.start)
        await aeventually(lambda: bool(lease.lost), "the holder learns of it")
        async with client.lock("x", **options).acquire(timeout=5.0) as mine:
            mine.check()


async def test_the_owners_lease_is_lost_and_the_local_waiters_go_on(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    """Taken by an administrator, out of max_hold, detached, or extended: its waiters speak for themselves."""
    client = aclients[0]
    for number in range(8):
        lock = client.lock("x", ttl=0.4, max_hold=0.15 if number % 4 == 1 else None)
        lease = await lock.acquire()
        waiters = [asyncio.create_task(_taken_fence(lock)) for _ in range(3)]
        await asyncio.sleep(0)
        kind = number % 4
        if kind == 0:
            valkey.command("DEL", "pawlock:x")
        elif kind == 2:
            lease.detach()
        elif kind == 3:
            await lease.extend(0.3)
            await lease.release()
        async with asyncio.timeout(5.0):
            fences = [await waiter for waiter in waiters]
        assert fences == sorted(set(fences))
        assert fences[0] > lease.fence
        if kind < 2:
            await aeventually(partial(_is_lost, lease), "the owner learns of it")
            with contextlib.suppress(pawlock.NotHeld):
                await lease.release()
        await aeventually(lambda: at_rest(client._engine()), "the client is at rest")


def _is_lost(lease: pawlock.AsyncLease) -> bool:
    return bool(lease.lost)


async def _taken_fence(lock: pawlock.AsyncLock) -> int:
    async with lock as lease:
        return lease.fence


def test_the_owners_lease_is_dropped_and_the_local_waiters_go_on(
    valkey: Server, clients: list[pawlock.Client]
) -> None:
    """A lease that is garbage-collected is not released: its waiters come when its ttl is over."""
    client = clients[0]
    lock = client.lock("x", ttl=0.5)
    fences: list[int] = []

    def drop() -> None:
        lease = lock.acquire()
        fences.append(lease.fence)
        eventually(lambda: next(iter(client._engine.local_queues.values())).sleepers, "somebody waits")
        with pytest.warns(ResourceWarning, match="never released"):
            del lease

    def wait() -> None:
        eventually(lambda: fences, "it is held")
        with lock.acquire(timeout=5.0) as lease:
            fences.append(lease.fence)

    run_threads([drop, wait, wait])
    assert len(fences) == 3
    assert fences == sorted(set(fences))
    all_at_rest(valkey, [client._engine], "x")
