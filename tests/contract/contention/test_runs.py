"""Strict order inside a client: the next in the server's queue is served without the server, and nobody out of turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

import pawlock
from tests.support.pace import pace
from tests.support.servers import Server

QUEUE = "{pawlock:n}:1:queue"


def until(done: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + pace() * seconds
    while not done():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def _waiting(server: Server, count: int) -> Callable[[], bool]:
    return lambda: server.command("ZCARD", QUEUE) == count


def _scripts(server: Server) -> int:
    stats = server.command("INFO", "commandstats")
    assert isinstance(stats, bytes)
    line = next(
        (line for line in stats.decode().splitlines() if line.startswith("cmdstat_evalsha:")), "calls=0,"
    )
    return int(line.partition("calls=")[2].partition(",")[0])


class _Threads:
    """Threads that each take the name once, in the order in which they are started."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.grants: list[tuple[str, int]] = []
        self.failed: dict[str, BaseException] = {}
        self._threads: list[threading.Thread] = []

    def come(self, lock: pawlock.Lock, who: str, hold: float = 0.0, timeout: float | None = 20.0) -> None:
        """Start one, and wait until the server has it in its queue."""
        before = self.server.command("ZCARD", QUEUE)
        assert isinstance(before, int)
        thread = threading.Thread(target=self._take, args=(lock, who, hold, timeout), name=who)
        thread.start()
        self._threads.append(thread)
        until(_waiting(self.server, before + 1))

    def _take(self, lock: pawlock.Lock, who: str, hold: float, timeout: float | None) -> None:
        try:
            lease = lock.acquire(timeout=timeout)
        except pawlock.PawlockError as error:
            self.failed[who] = error
            return
        self.grants.append((who, lease.fence))
        time.sleep(hold)
        try:
            lease.release()
        except pawlock.PawlockError as error:
            self.failed[who] = error

    def end(self) -> list[str]:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert all(a < b for (_, a), (_, b) in pairwise(self.grants)), self.grants
        return [who for who, _ in self.grants]


def test_threads_follow_each_other_without_the_server(valkey: Server, clients: list[pawlock.Client]) -> None:
    crowd = _Threads(valkey)
    holder = clients[1].fair_lock("n").acquire()
    lock = clients[0].fair_lock("n")
    for number in range(12):
        crowd.come(lock, f"a{number}")
    before = _scripts(valkey)
    holder.release()
    assert crowd.end() == [f"a{number}" for number in range(12)]
    # The release of the holder; of the twelve one end of the run, and a straggler whose ticket was raised meanwhile.
    assert _scripts(valkey) - before <= 5
    assert valkey.command("EXISTS", QUEUE, "{pawlock:n}:1:tickets", "pawlock:n") == 0


@pytest.mark.asyncio
async def test_tasks_follow_each_other_without_the_server(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    holder = await aclients[1].fair_lock("n").acquire()
    lock = aclients[0].fair_lock("n")
    grants: list[tuple[int, int]] = []

    def comer(number: int) -> Callable[[], Awaitable[None]]:
        async def take() -> None:
            async with lock as lease:
                grants.append((number, lease.fence))

        return take

    tasks = await _queue(valkey, [comer(number) for number in range(12)])
    before = _scripts(valkey)
    await holder.release()
    await asyncio.gather(*tasks)
    assert [number for number, _ in grants] == list(range(12))
    assert all(a < b for (_, a), (_, b) in pairwise(grants))
    assert _scripts(valkey) - before <= 3
    assert valkey.command("EXISTS", QUEUE, "{pawlock:n}:1:tickets", "pawlock:n") == 0


async def _queue(valkey: Server, comers: list[Callable[[], Awaitable[None]]]) -> list[asyncio.Task[None]]:
    tasks: list[asyncio.Task[None]] = []
    for number, comer in enumerate(comers):
        tasks.append(asyncio.create_task(_run(comer)))
        await asyncio.to_thread(until, _waiting(valkey, number + 1))
    return tasks


async def _run(comer: Callable[[], Awaitable[None]]) -> None:
    await comer()


def test_a_thread_that_may_be_told_to_stop_is_served_at_once(
    valkey: Server, clients: list[pawlock.Client]
) -> None:
    """It slept in short pieces, and only in the first of them heard that its turn had come."""
    holder = clients[1].fair_lock("n").acquire()
    lock = clients[0].fair_lock("n", ticket_ttl=20)
    stop, ended = threading.Event(), list[float]()

    def take() -> None:
        lock.acquire(timeout=20, stop=stop).release()
        ended.append(time.monotonic())

    threads: list[threading.Thread] = []
    for number in range(3):
        threads.append(threading.Thread(target=take))
        threads[-1].start()
        until(_waiting(valkey, number + 1))
    time.sleep(0.3)
    released = time.monotonic()
    holder.release()
    for thread in threads:
        thread.join(20)
    assert max(ended) - released < 2


@pytest.mark.asyncio
async def test_a_task_that_may_be_told_to_stop_is_served_at_once(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    holder = await aclients[1].fair_lock("n").acquire()
    lock = aclients[0].fair_lock("n", ticket_ttl=20)
    stop = asyncio.Event()

    async def take() -> None:
        lease = await lock.acquire(timeout=20, stop=stop)
        await lease.release()

    tasks = await _queue(valkey, [take] * 3)
    await asyncio.sleep(0.3)
    await holder.release()
    await asyncio.wait_for(asyncio.gather(*tasks), 2)


def test_clients_take_their_turns_between_the_threads_of_another(
    valkey: Server, clients: list[pawlock.Client]
) -> None:
    crowd = _Threads(valkey)
    holder = clients[1].fair_lock("n").acquire()
    order = ["a0", "a1", "b0", "a2", "b1", "b2", "a3", "a4", "b3", "a5"]
    locks = {"a": clients[0].fair_lock("n"), "b": clients[1].fair_lock("n")}
    for who in order:
        crowd.come(locks[who[0]], who)
    holder.release()
    assert crowd.end() == order


def test_a_follower_that_gave_up_is_passed_over(valkey: Server, clients: list[pawlock.Client]) -> None:
    crowd = _Threads(valkey)
    holder = clients[1].fair_lock("n").acquire()
    lock = clients[0].fair_lock("n")
    crowd.come(lock, "a0", hold=0.5)
    crowd.come(lock, "a1", timeout=0.2)
    crowd.come(lock, "a2")
    holder.release()
    assert crowd.end() == ["a0", "a2"]
    assert isinstance(crowd.failed["a1"], pawlock.AcquireTimeout)
    assert valkey.command("EXISTS", QUEUE, "{pawlock:n}:1:tickets", "pawlock:n") == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_follower_cancelled_in_the_instant_of_its_turn_passes_it_on(
    valkey: Server, aclients: list[pawlock.AsyncClient], turns: int
) -> None:
    holder = await aclients[1].fair_lock("n").acquire()
    lock = aclients[0].fair_lock("n")
    grants: list[str] = []
    released = asyncio.Event()

    async def first() -> None:
        lease = await lock.acquire()
        grants.append("first")
        await lease.release()
        released.set()

    async def second() -> None:
        async with lock:
            grants.append("second")

    async def third() -> None:
        async with lock:
            grants.append("third")

    tasks = await _queue(valkey, [first, second, third])
    await holder.release()
    await released.wait()
    for _ in range(turns):
        await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait_for(tasks[2], 2)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert grants[0] == "first"
    assert grants[-1] == "third"
    await asyncio.sleep(0.05)
    assert valkey.command("EXISTS", QUEUE, "{pawlock:n}:1:tickets", "pawlock:n") == 0


def test_a_loss_in_the_middle_of_a_run_ends_it(valkey: Server, clients: list[pawlock.Client]) -> None:
    crowd = _Threads(valkey)
    holder = clients[1].fair_lock("n").acquire()
    lock = clients[0].fair_lock("n", ttl=0.6, ticket_ttl=0.6)
    crowd.come(lock, "a0")
    crowd.come(lock, "a1", hold=1.0)
    crowd.come(lock, "a2")
    holder.release()
    until(lambda: len(crowd.grants) == 2)
    # Somebody deletes the key: the owner, the second of the run, is told; its ticket goes, and the third is served.
    valkey.command("DEL", "pawlock:n")
    until(lambda: len(crowd.grants) == 3)
    assert crowd.end() == ["a0", "a1", "a2"]
    assert isinstance(crowd.failed["a1"], pawlock.NotHeld)
    assert valkey.command("EXISTS", QUEUE, "{pawlock:n}:1:tickets", "pawlock:n") == 0


def test_locks_with_other_options_are_no_followers(valkey: Server, clients: list[pawlock.Client]) -> None:
    crowd = _Threads(valkey)
    holder = clients[1].fair_lock("n").acquire()
    crowd.come(clients[0].fair_lock("n", ttl=20.0), "a0")
    crowd.come(clients[0].fair_lock("n", ttl=10.0), "a1")
    crowd.come(clients[0].fair_lock("n", ttl=20.0), "a2")
    holder.release()
    assert crowd.end() == ["a0", "a1", "a2"]


def test_a_follower_holds_as_long_as_it_wants(valkey: Server, clients: list[pawlock.Client]) -> None:
    crowd = _Threads(valkey)
    holder = clients[1].fair_lock("n").acquire()
    # Longer on a busy machine, where a ticket of 0.3 s may lapse with its waiter alive, and lose its place.
    slow = pace()
    lock = clients[0].fair_lock("n", ttl=0.5 * slow, ticket_ttl=0.3 * slow)
    for number in range(3):
        crowd.come(lock, f"a{number}", hold=0.9 * slow, timeout=60)
    holder.release()
    assert crowd.end() == ["a0", "a1", "a2"]
    assert not crowd.failed


def test_a_detached_run_frees_the_tickets_it_served(valkey: Server, clients: list[pawlock.Client]) -> None:
    holder = clients[1].fair_lock("n").acquire()
    lock = clients[0].fair_lock("n")
    tickets: list[str] = []
    crowd = _Threads(valkey)
    crowd.come(lock, "a0")

    def detach() -> None:
        tickets.append(lock.acquire().detach())

    thread = threading.Thread(target=detach)
    thread.start()
    until(_waiting(valkey, 2))
    holder.release()
    thread.join(10)
    crowd.end()
    until(_waiting(valkey, 0))
    other = threading.Thread(target=lambda: clients[1].lock("n").acquire(timeout=10).release())
    other.start()
    clients[1].adopt(tickets[0]).release()
    other.join(10)
    assert not other.is_alive()
