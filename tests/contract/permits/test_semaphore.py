"""The semaphore in both APIs: limit, weights, order, leases that end."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import pawlock
from tests.support.pace import pace
from tests.support.servers import Server


def keys(server: Server) -> set[bytes]:
    """The keys that are left, but for the record of fences and limit, which lives a day."""
    found = server.command("KEYS", "{pawlock:*")
    assert isinstance(found, list)
    return {bytes(key) for key in found if isinstance(key, bytes) and not key.endswith(b":fence")}


def test_no_more_than_the_permits(client: pawlock.Client, valkey: Server) -> None:
    pool = client.semaphore("pool", permits=3, ttl=5)
    inside = most = 0
    guard = threading.Lock()

    def work(_: int) -> int:
        nonlocal inside, most
        with pool as lease:
            with guard:
                inside += 1
                most = max(most, inside)
            time.sleep(0.005)
            with guard:
                inside -= 1
            return lease.fence

    with ThreadPoolExecutor(12) as threads:
        fences = list(threads.map(work, range(60)))
    assert most == 3
    assert len(set(fences)) == 60
    assert pool.available() == 3
    # A ticket that somebody in this process did not need any more may have left its tombstone.
    assert not [key for key in keys(valkey) if b":dead:" not in key]


def test_tasks_too(client: pawlock.Client, valkey: Server) -> None:
    async def main() -> int:
        inside = most = 0
        async with pawlock.connect_async(valkey.url) as other:
            pool = other.semaphore("pool", permits=3, ttl=5)

            async def work() -> None:
                nonlocal inside, most
                async with pool:
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0.005)
                    inside -= 1

            await asyncio.gather(*[work() for _ in range(60)])
            async with pool.acquire(2):
                assert await pool.available() == 1
                assert await pool.try_acquire(2) is None
                assert client.semaphore("pool", permits=3).available() == 1
            await pool.set_limit(4)
            assert (await pool.inspect()).limit == 4
        return most

    assert asyncio.run(main()) == 3
    assert keys(valkey) == set()


def test_a_thread_may_take_several(client: pawlock.Client) -> None:
    pool = client.semaphore("pool", permits=3)
    with pool as first, pool as second:
        assert first is not second
        assert second.fence > first.fence
        assert pool.available() == 1
        first.release()
        assert pool.available() == 2


def test_weights_count_and_wait_in_order(client: pawlock.Client, valkey: Server) -> None:
    pool = client.semaphore("pool", permits=5, ttl=5)
    held = pool.acquire(3)
    assert held.count == 1
    order: list[int] = []

    def take(n: int) -> None:
        with pool.acquire(n, timeout=5):
            order.append(n)

    with pawlock.connect(valkey.url) as other, ThreadPoolExecutor(2) as threads:
        big = threads.submit(take, 4)
        while not pool.inspect().queue_length:
            time.sleep(0.005)
        small = threads.submit(take, 2)
        while pool.inspect().queue_length < 2:
            time.sleep(0.005)
        # Two permits are free, but somebody was there before.
        assert other.semaphore("pool", permits=5).try_acquire(2) is None
        info = pool.inspect()
        assert (info.limit, info.used, info.count, info.queue_length) == (5, 3, 1, 2)
        assert [(one.mode, one.permits) for one in info.holders] == [("permits", 3)]
        held.release()
        big.result()
        small.result()
    assert order == [4, 2]
    assert pool.available() == 5


def test_a_lease_that_runs_out_gives_its_permits_back(client: pawlock.Client) -> None:
    pool = client.semaphore("pool", permits=2, ttl=1.0)
    kept = pool.acquire()
    dead = client.semaphore("pool", permits=2, ttl=0.3, renew=False).acquire()
    began = time.monotonic()
    with pool.acquire(timeout=5):
        assert 0.1 < time.monotonic() - began < pace() * 0.6
        time.sleep(0.4)
        kept.check()
    assert dead.state is pawlock.LeaseState.LOST
    with pytest.raises(pawlock.NotHeld):
        dead.release()
    assert pool.available() == 1
    kept.release()


def test_a_second_release_frees_nothing(client: pawlock.Client) -> None:
    pool = client.semaphore("pool", permits=2)
    first, second = pool.acquire(), pool.acquire()
    first.release()
    with pytest.raises(pawlock.NotHeld):
        first.release()
    assert pool.available() == 1
    second.release()


def test_the_limit_is_the_servers(client: pawlock.Client) -> None:
    pool = client.semaphore("pool", permits=3)
    pool.acquire().release()
    with pytest.raises(pawlock.LimitMismatch, match=r"permits=4.*limit of 3") as caught:
        client.semaphore("pool", permits=4).acquire()
    assert (caught.value.limit, caught.value.permits, caught.value.name) == (3, 4, "pool")
    assert isinstance(caught.value, pawlock.ConfigurationError)
    assert pickle.loads(pickle.dumps(caught.value)).limit == 3
    with pytest.raises(pawlock.LimitMismatch):
        client.semaphore("pool", permits=2).try_acquire()


def test_lowering_takes_nothing_and_blocks(client: pawlock.Client) -> None:
    pool = client.semaphore("pool", permits=3)
    held = [pool.acquire() for _ in range(3)]
    pool.set_limit(1)
    for lease in held:
        lease.check()
        lease.extend(30)
    assert pool.available() == 0
    held.pop().release()
    held.pop().release()
    assert pool.try_acquire() is None
    held.pop().release()
    # Who declares the old number and who declares the new one agree with the server.
    with pool, pytest.raises(pawlock.AcquireTimeout):
        client.semaphore("pool", permits=1).acquire(timeout=0.05)
    with pytest.raises(pawlock.LimitMismatch, match="2 permits were requested, and the limit is 1"):
        pool.acquire(2)


def test_raising_serves_waiters(client: pawlock.Client) -> None:
    pool = client.semaphore("pool", permits=1, ttl=5)
    with pool, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(pool.acquire, timeout=5) for _ in range(2)]
        while pool.inspect().queue_length < 2:
            time.sleep(0.005)
        pool.set_limit(3)
        leases = [one.result(timeout=1) for one in waiting]
        assert pool.inspect().used == 3
        for lease in leases:
            lease.release()


def test_a_waiter_that_can_never_be_served_is_told(client: pawlock.Client) -> None:
    pool = client.semaphore("pool", permits=4, ttl=30)
    with pool.acquire(3), ThreadPoolExecutor(2) as threads:
        big = threads.submit(pool.acquire, 4, timeout=20)
        while pool.inspect().queue_length < 1:
            time.sleep(0.005)
        small = threads.submit(pool.acquire, 1, timeout=20)
        while pool.inspect().queue_length < 2:
            time.sleep(0.005)
        began = time.monotonic()
        pool.set_limit(2)
        with pytest.raises(pawlock.LimitMismatch):
            big.result(timeout=5)
        assert time.monotonic() - began < pace() * 0.5, "told by message, not found out at the next look"
        pool.set_limit(4)
        small.result(timeout=1).release()


def test_a_permit_stays_closed_for_min_hold(client: pawlock.Client) -> None:
    pool = client.semaphore("pool", permits=2, min_hold=0.3)
    with pool, pool:
        pass
    assert pool.available() == 0
    began = time.monotonic()
    pool.acquire(timeout=5).release()
    assert 0.15 < time.monotonic() - began < pace() * 0.6


def test_it_has_nothing_in_common_with_a_lock_of_its_name(client: pawlock.Client) -> None:
    with client.lock("one"), client.semaphore("one", permits=1), client.lock("two"):
        assert client.lock("one").try_acquire() is None
        assert client.semaphore("one", permits=1).try_acquire() is None


def test_it_travels(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        pool = client.semaphore("pool", permits=3, ttl=7)
        copy = pickle.loads(pickle.dumps(pool))
        with pool.acquire(2):
            assert copy.available() == 1
        assert (copy.permits, copy.name, repr(copy)) == (3, "pool", repr(pool))
        copy._client.close()


def test_as_a_decorator(client: pawlock.Client) -> None:
    @client.semaphore("calls:{host}", permits=2)
    def call(host: str) -> int:
        assert pawlock.current_lease().name == f"calls:{host}"
        return client.semaphore(f"calls:{host}", permits=2).available()

    assert call("a") == 1


def test_its_lease_stays_in_its_process(client: pawlock.Client) -> None:
    with client.semaphore("pool", permits=1) as lease, pytest.raises(pawlock.NotSupported):
        lease.detach()
