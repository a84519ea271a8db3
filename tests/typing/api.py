"""The public API as type checkers see it. Never run: checked by mypy and pyright, see ``test_types.py``."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import assert_type

import pawl
from pawl.aio import Acquiring, AsyncLost
from pawl.sync import Lost


def threads(client: pawl.Client) -> None:
    assert_type(pawl.connect(), pawl.Client)
    assert_type(pawl.connect("redis://h", namespace="n", ttl=timedelta(seconds=3), timeout=None), pawl.Client)
    lock = client.lock("x", ttl=30, renew=True, timeout=0.5, on_lost=print, on_exit="warn")
    assert_type(lock, pawl.Lock)
    assert_type(client.rlock("x", owner="me", max_hold=timedelta(minutes=1)), pawl.Lock)
    assert_type(lock.name, str)
    assert_type(lock.acquire(), pawl.Lease)
    assert_type(lock.acquire(5, ttl=3.0), pawl.Lease)
    assert_type(lock.acquire(None), pawl.Lease)
    assert_type(lock.try_acquire(), pawl.Lease | None)
    assert_type(lock.locked(), bool)
    with lock as lease:
        assert_type(lease, pawl.Lease)
        assert_type(lease.name, str)
        assert_type(lease.token, str)
        assert_type(lease.fence, int)
        assert_type(lease.fence_strength, str)
        assert_type(lease.ttl, float)
        assert_type(lease.count, int)
        assert_type(lease.valid_until, float)
        assert_type(lease.remaining(), float)
        assert_type(lease.state, pawl.LeaseState)
        assert_type(lease.lost, Lost)
        assert_type(lease.lost.is_set(), bool)
        assert_type(lease.lost.wait(1.0), bool)
        assert_type(lease.detach(), str)
        lease.check()
        lease.beat()
        lease.extend(timedelta(seconds=5))
        lease.release()
    with lock.acquire(timeout=timedelta(seconds=1)) as lease:
        assert_type(lease, pawl.Lease)
    assert_type(client.adopt("ticket", ttl=3), pawl.Lease)
    client.close(timeout=1)
    with client as same:
        assert_type(same, pawl.Client)
    assert_type(client.fair_lock("x", ticket_ttl=3, max_waiters=5), pawl.Lock)
    service = client.service()
    assert_type(service, pawl.LockService)
    assert_type(service.acquire("x", {"wait": 3}, identifier="me"), str)
    assert_type(service.acquire("x", pawl.ServiceOptions(ttl=3)), str)
    assert_type(service.metrics("x"), pawl.ServiceMetrics)
    assert_type(service.stats(), pawl.ServiceStats)
    service.renew("x", "me", 3)
    service.release("x", "me")
    multi = client.multi_lock(["a", lock], timeout=3)
    assert_type(multi, pawl.MultiLock)
    assert_type(multi.names, tuple[str, ...])
    assert_type(multi.acquire(1, ttl=3), pawl.MultiLease)
    assert_type(multi.try_acquire(), pawl.MultiLease | None)
    with multi as all_of_them:
        assert_type(all_of_them, pawl.MultiLease)
        assert_type(all_of_them.fences, dict[str, int])
        assert_type(all_of_them.lost, Lost)
        all_of_them.extend(3)

    @client.lock("x:{number}", on_contended="skip")
    def work(number: int, *, text: str = "") -> float:
        assert_type(pawl.current_lease().fence, int)
        return number * 1.5

    assert_type(work(3, text="a"), float | None)
    work("3")  # type: ignore[arg-type]

    @client.rlock("x:{number}", ttl=3, on_contended="raise")
    def always(number: int) -> float:
        return number * 1.5

    assert_type(always(3), float)

    @client.fair_lock("x:{number}", ttl=3, on_contended="skip")
    def fair(number: int) -> float:
        return number * 1.5

    assert_type(fair(3), float | None)
    records(client.inspect("x", waiters=3))
    assert_type(client.locks(), list[pawl.LockInfo])
    forced = client.force_release("x", reason="it hangs")
    assert_type(forced, pawl.Forced)
    assert_type(forced.fence, int | None)
    assert_type(client.audit(10), list[pawl.AuditEntry])
    assert_type(client.history("x", limit=10), list[pawl.HistoryEntry])
    assert_type(pawl.connect("redis://h", history=10), pawl.Client)
    assert_type(pawl.connect("redis://h", deadlock_after=None), pawl.Client)


async def tasks(client: pawl.AsyncClient) -> None:
    assert_type(pawl.connect_async(), pawl.AsyncClient)
    lock = client.lock("x", ttl=30, renew=True, timeout=0.5, on_lost=print, on_exit="warn")
    assert_type(lock, pawl.AsyncLock)
    assert_type(client.fair_lock("x", ticket_ttl=3, max_waiters=5), pawl.AsyncLock)
    service = client.service()
    assert_type(await service.acquire("x", {"wait": 3}, identifier="me"), str)
    assert_type(await service.metrics("x"), pawl.ServiceMetrics)
    assert_type(service.stats(), pawl.ServiceStats)
    await service.release("x", "me")
    multi = client.multi_lock(["a", lock], timeout=3)
    assert_type(multi, pawl.AsyncMultiLock)
    assert_type(await multi.acquire(1, ttl=3), pawl.AsyncMultiLease)
    assert_type(await multi.try_acquire(), pawl.AsyncMultiLease | None)
    async with multi as all_of_them:
        assert_type(all_of_them.fences, dict[str, int])
        assert_type(all_of_them.lost, AsyncLost)
        await all_of_them.extend(3)

    @client.rlock("x:{number}", on_contended="raise")
    async def work(number: int, *, text: str = "") -> float:
        return number * 1.5

    assert_type(await work(3, text="a"), float)
    await work("3")  # type: ignore[arg-type]

    @client.lock("x:{number}", on_contended="skip")
    async def skipped(number: int) -> float:
        return number * 1.5

    assert_type(await skipped(3), float | None)

    @client.lock("x")  # type: ignore[arg-type]
    def plain() -> None: ...

    assert_type(client.rlock("x", owner="me"), pawl.AsyncLock)
    assert_type(lock.name, str)
    assert_type(lock.acquire(), Acquiring[pawl.AsyncLease])
    assert_type(await lock.acquire(), pawl.AsyncLease)
    assert_type(await lock.acquire(5, ttl=3.0), pawl.AsyncLease)
    assert_type(await asyncio.wait_for(lock.acquire(), 3), pawl.AsyncLease)
    assert_type(await lock.try_acquire(), pawl.AsyncLease | None)
    assert_type(await lock.locked(), bool)
    async with lock as lease:
        assert_type(lease, pawl.AsyncLease)
        assert_type(lease.fence, int)
        assert_type(lease.remaining(), float)
        assert_type(lease.state, pawl.LeaseState)
        assert_type(lease.lost, AsyncLost)
        assert_type(await lease.lost.wait(1.0), bool)
        assert_type(lease.detach(), str)
        lease.check()
        lease.beat()
        await lease.extend(timedelta(seconds=5))
        await lease.release()
    async with lock.acquire(timeout=1) as lease:
        assert_type(lease, pawl.AsyncLease)
    assert_type(await client.locks(), list[pawl.LockInfo])
    assert_type(await client.force_release("x", reason="it hangs"), pawl.Forced)
    assert_type(await client.audit(10), list[pawl.AuditEntry])
    assert_type(await client.history("x", limit=10), list[pawl.HistoryEntry])
    assert_type(await client.adopt("ticket", ttl=3), pawl.AsyncLease)
    await client.close(timeout=1)
    async with client as same:
        assert_type(same, pawl.AsyncClient)
    records(await client.inspect("x", waiters=3))


def gates(client: pawl.Client) -> None:
    latch = client.latch("x", 3, ttl=timedelta(hours=1), ticket_ttl=1, max_waiters=5)
    assert_type(latch, pawl.Latch)
    assert_type((latch.name, latch.count), tuple[str, int])
    latch.count_down()
    latch.count_down(2, part="a")
    latch.wait()
    latch.wait(timeout=None)
    latch.reset()
    assert_type(latch.remaining(), int)
    barrier = client.barrier("x", 3, timeout=5)
    assert_type(barrier, pawl.Barrier)
    assert_type(barrier.wait(1), int)
    assert_type((barrier.arrived(), barrier.parties), tuple[int, int])
    election = client.election("x", identity="me", ttl=3)
    assert_type(election, pawl.Election)
    assert_type(election.leader(), pawl.Leader | None)
    assert_type(election.leading, bool)
    with election.campaign(5) as lease:
        assert_type(lease, pawl.Lease)
    election.resign()
    with election.observe() as leaders:
        for leader in leaders:
            assert_type(leader, pawl.Leader | None)
        leaders.close()


async def agates(client: pawl.AsyncClient) -> None:
    latch = client.latch("x", 3, ttl=timedelta(hours=1))
    assert_type(latch, pawl.AsyncLatch)
    await latch.count_down(2, part="a")
    await latch.wait(timeout=None)
    await latch.reset()
    assert_type(await latch.remaining(), int)
    barrier = client.barrier("x", 3, timeout=5)
    assert_type(barrier, pawl.AsyncBarrier)
    assert_type(await barrier.wait(1), int)
    assert_type(await barrier.arrived(), int)
    election = client.election("x", identity="me", ttl=3)
    assert_type(election, pawl.AsyncElection)
    assert_type(await election.leader(), pawl.Leader | None)
    assert_type(await election.campaign(5), pawl.AsyncLease)
    async with election.campaign(5) as lease:
        assert_type(lease, pawl.AsyncLease)
    await election.resign()
    async with election.observe() as leaders:
        async for leader in leaders:
            assert_type(leader, pawl.Leader | None)
        leaders.close()


async def guarded(election: pawl.Election) -> None:
    @election.leader_only
    def always(number: int) -> str:
        return str(number)

    @election.leader_only(on_follower="skip")
    def maybe(number: int) -> str:
        return str(number)

    @election.leader_only()
    async def soon(number: int) -> str:
        return str(number)

    @election.leader_only(on_follower="skip")
    async def later(number: int) -> str:
        return str(number)

    assert_type(always(1), str)
    assert_type(maybe(1), str | None)
    assert_type(await soon(1), str)
    assert_type(await later(1), str | None)


def stops(lock: pawl.Lock, alock: pawl.AsyncLock) -> None:
    assert_type(lock.acquire(stop=threading.Event()), pawl.Lease)
    assert_type(alock.acquire(stop=asyncio.Event()), Acquiring[pawl.AsyncLease])


def records(info: pawl.LockInfo) -> None:
    assert_type(info.held, bool)
    assert_type(info.holder, str)
    assert_type(info.fence, int | None)
    assert_type(info.ttl_left, float)
    assert_type(info.queue_length, int)
    assert_type(info.waiters, tuple[pawl.WaiterInfo, ...])
    assert_type(info.waiters[0].position, int)


def errors(lock: pawl.Lock) -> None:
    try:
        lock.acquire()
    except pawl.AcquireTimeout as error:
        assert_type(error.waited, float)
        assert_type(error.position, int | None)
        assert_type(error.holder, str | None)
        assert_type(error.code, str)
    except pawl.LeaseLost as error:
        assert_type(error.reason, str)
        assert_type(error.name, str | None)
    except pawl.DeadlockDetected as error:
        assert_type(error.cycle, tuple[str, ...])
    except pawl.StaleFence as error:
        assert_type(error.fence, int | None)


def wrong(client: pawl.Client, aclient: pawl.AsyncClient) -> None:
    """Each line is refused by the checker: an ignore that is not needed fails the check."""
    client.lock(b"x")  # type: ignore[call-overload]
    client.lock("x", ttl="30s")  # type: ignore[call-overload]
    client.lock("x", tll=30)  # type: ignore[call-overload]
    client.lock("x").acquire("5")  # type: ignore[arg-type]
    client.lock("x", on_exit=None)  # type: ignore[call-overload]
    aclient.lock("x").acquire("5")  # type: ignore[arg-type]
    client.latch("x")  # type: ignore[call-arg]
    client.latch("x", "3")  # type: ignore[arg-type]
    client.barrier("x", 3, ttl=3)  # type: ignore[call-arg]
    client.election("x", identity=7)  # type: ignore[arg-type]
    client.election("x").leader_only(on_follower="wait")  # type: ignore[call-overload]
    pawl.connect(ttl="30s")  # type: ignore[arg-type]
