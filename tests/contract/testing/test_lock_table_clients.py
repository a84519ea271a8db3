"""Clients of a lock table beyond taking and releasing: what they see of each other, and what an operator does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import pawlock
from pawlock.testing import LockTable
from tests.support.pace import pace


@pytest.fixture
def table() -> Iterator[LockTable]:
    with LockTable() as table:
        yield table


def until(condition: object, seconds: float = 5.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds * pace()
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_one_name_in_every_family_at_once(table: LockTable) -> None:
    with (
        pawlock.connect(table.url) as client,
        client.lock("n"),
        client.semaphore("n", permits=2),
        client.semaphore("n", permits=2),
        client.election("n").campaign(),
    ):
        assert client.inspect("n").held
        assert client.semaphore("n", permits=2).try_acquire() is None


def test_an_operator_lists_takes_away_and_reads_it_up(table: LockTable) -> None:
    with (
        pawlock.connect(table.url, history=5) as client,
        pawlock.connect(table.url) as other,
        client.lock("free"),
        client.lock("short"),
    ):
        lease = client.lock("a", ttl=60).acquire()
        until(lambda: {info.name for info in other.locks()} == {"a", "free", "short"})
        forced = other.force_release("a", reason="a test")
        assert forced.released
        assert (forced.fence or 0) > lease.fence
        assert lease.lost.wait(2 * pace())
        with pytest.raises(pawlock.LeaseLost) as lost:
            lease.check()
        assert lost.value.reason is pawlock.LossReason.TAKEN
        (entry,) = other.audit()
        assert (entry.name, entry.text, entry.outcome) == ("a", "a test", "released")
        client.lock("a").acquire().release()
        until(lambda: [one.how for one in client.history("a")][:1] == ["released"])
        assert [one.how for one in client.history("a")] == ["released", "forced"]


def test_two_clients_that_wait_for_each_other_are_found(table: LockTable) -> None:
    with (
        pawlock.connect(table.url, deadlock_after=0.1) as one,
        pawlock.connect(table.url, deadlock_after=0.1) as two,
    ):
        found: list[BaseException] = []

        def cross(client: pawlock.Client, first: str, second: str, meet: threading.Barrier) -> None:
            with client.lock(first):
                meet.wait(5)
                try:
                    client.lock(second, timeout=10).acquire().release()
                except pawlock.PawlockError as error:
                    found.append(error)

        meet = threading.Barrier(2)
        threads = [
            threading.Thread(target=cross, args=(one, "a", "b", meet)),
            threading.Thread(target=cross, args=(two, "b", "a", meet)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(15)
        assert [type(error) for error in found] == [pawlock.DeadlockDetected]


def test_a_limit_is_changed_for_all(table: LockTable) -> None:
    with pawlock.connect(table.url) as client, pawlock.connect(table.url) as other:
        semaphore = client.semaphore("s", permits=1)
        with semaphore:
            with pytest.raises(pawlock.LimitMismatch, match="limit of 1"):
                other.semaphore("s", permits=2).try_acquire()
            semaphore.set_limit(2)
            other.semaphore("s", permits=2).acquire(timeout=0).release()
            with pytest.raises(pawlock.LimitMismatch):
                other.semaphore("s", permits=3).acquire(3)


def test_observers_hear_of_each_leader(table: LockTable) -> None:
    with pawlock.connect(table.url) as client, pawlock.connect(table.url) as other:
        seen: list[pawlock.Leader | None] = []
        observing = other.election("e").observe()
        watch = threading.Thread(target=lambda: seen.extend(observing))
        watch.start()
        until(lambda: seen == [None])
        fences: list[int] = []
        for _ in range(2):
            with client.election("e").campaign() as lease:
                fences.append(lease.fence)
                until(lambda: seen[-1] is not None and seen[-1].fence == fences[-1])
            until(lambda: seen[-1] is None)
        observing.close()
        watch.join(5)
        assert [leader.fence for leader in seen if leader] == fences


@pytest.mark.parametrize("kind", ["lock", "fair_lock"])
def test_a_crowd_of_two_clients_passes_it_on_in_and_between_them(table: LockTable, kind: str) -> None:
    fences: list[int] = []
    with pawlock.connect(table.url) as one, pawlock.connect(table.url) as two:

        def work(client: pawlock.Client) -> None:
            for _ in range(20):
                with getattr(client, kind)("n", timeout=20) as lease:
                    fences.append(lease.fence)

        crowd = [threading.Thread(target=work, args=(client,)) for client in (one, one, one, two, two, two)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join(30)
    assert len(fences) == 120
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("kind", ["lock", "fair_lock"])
async def test_the_same_of_tasks(table: LockTable, kind: str) -> None:
    fences: list[int] = []
    async with pawlock.connect_async(table.url) as one, pawlock.connect_async(table.url) as two:

        async def work(client: pawlock.AsyncClient) -> None:
            for _ in range(20):
                async with getattr(client, kind)("n", timeout=20) as lease:
                    fences.append(lease.fence)

        await asyncio.gather(*(work(client) for client in (one, one, one, two, two, two)))
    assert len(fences) == 120
    assert fences == sorted(set(fences))
