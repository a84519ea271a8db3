"""The public API as type checkers see it. Never run: `make lint` has mypy and pyright check it, both strict."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import assert_type

import pawlock
from pawlock.aio.block import Acquiring
from pawlock.aio.lock import AsyncLost
from pawlock.sync.lock import Lost


def threads(client: pawlock.Client) -> None:
    assert_type(pawlock.connect(), pawlock.Client)
    assert_type(
        pawlock.connect("redis://h", namespace="n", ttl=timedelta(seconds=3), timeout=None), pawlock.Client
    )
    lock = client.lock("x", ttl=30, renew=True, timeout=0.5, on_lost=print, on_exit="warn")
    assert_type(lock, pawlock.Lock)
    assert_type(client.rlock("x", max_hold=timedelta(minutes=1)), pawlock.Lock)
    assert_type(lock.name, str)
    assert_type(lock.acquire(), pawlock.Lease)
    assert_type(lock.acquire(5, ttl=3.0), pawlock.Lease)
    assert_type(lock.acquire(None), pawlock.Lease)
    assert_type(lock.try_acquire(), pawlock.Lease | None)
    assert_type(lock.locked(), bool)
    with lock as lease:
        assert_type(lease, pawlock.Lease)
        assert_type(lease.name, str)
        assert_type(lease.token, str)
        assert_type(lease.fence, int)
        assert_type(lease.fence_strength, str)
        assert_type(lease.ttl, float)
        assert_type(lease.count, int)
        assert_type(lease.valid_until, float)
        assert_type(lease.remaining(), float)
        assert_type(lease.state, pawlock.LeaseState)
        assert_type(lease.lost, Lost)
        assert_type(lease.lost.is_set(), bool)
        assert_type(lease.lost.wait(1.0), bool)
        assert_type(lease.detach(), str)
        lease.check()
        lease.beat()
        lease.extend(timedelta(seconds=5))
        lease.release()
    with lock.acquire(timeout=timedelta(seconds=1)) as lease:
        assert_type(lease, pawlock.Lease)
    assert_type(client.adopt("ticket", ttl=3), pawlock.Lease)
    client.close(timeout=1)
    with client as same:
        assert_type(same, pawlock.Client)
    assert_type(client.fair_lock("x", ticket_ttl=3, max_waiters=5), pawlock.Lock)
    service = client.service()
    assert_type(service, pawlock.LockService)
    assert_type(service.acquire("x", {"wait": 3}, identifier="me"), str)
    assert_type(service.acquire("x", pawlock.ServiceOptions(ttl=3)), str)
    assert_type(service.metrics("x"), pawlock.ServiceMetrics)
    assert_type(service.stats(), pawlock.ServiceStats)
    service.renew("x", "me", 3)
    service.release("x", "me")
    multi = client.multi_lock(["a", lock], timeout=3)
    assert_type(multi, pawlock.MultiLock)
    assert_type(multi.names, tuple[str, ...])
    assert_type(multi.acquire(1, ttl=3), pawlock.MultiLease)
    assert_type(multi.try_acquire(), pawlock.MultiLease | None)
    with multi as all_of_them:
        assert_type(all_of_them, pawlock.MultiLease)
        assert_type(all_of_them.fences, dict[str, int])
        assert_type(all_of_them.lost, Lost)
        all_of_them.extend(3)

    @client.lock("x:{number}")(on_contended="skip")
    def work(number: int, *, text: str = "") -> float:
        assert_type(pawlock.current_lease().fence, int)
        return number * 1.5

    assert_type(work(3, text="a"), float | None)
    work("3")  # type: ignore[arg-type]

    @client.rlock("x:{number}", ttl=3)(on_contended="raise")
    def always(number: int) -> float:
        return number * 1.5

    assert_type(always(3), float)

    @client.fair_lock("x:{number}", ttl=3)(on_contended="skip")
    def fair(number: int) -> float:
        return number * 1.5

    assert_type(fair(3), float | None)
    records(client.inspect("x", waiters=3))
    assert_type(client.locks(), list[pawlock.LockInfo])
    assert_type(client.check(), list[pawlock.ServerReport])
    assert_type(client.ping(), float)
    forced = client.force_release("x", reason="it hangs")
    assert_type(forced, pawlock.Forced)
    assert_type(forced.fence, int)
    assert_type(client.audit(10), list[pawlock.AuditEntry])
    assert_type(pawlock.connect("redis://h", deadlock_after=None), pawlock.Client)


async def tasks(client: pawlock.AsyncClient) -> None:
    assert_type(pawlock.connect_async(), pawlock.AsyncClient)
    lock = client.lock("x", ttl=30, renew=True, timeout=0.5, on_lost=print, on_exit="warn")
    assert_type(lock, pawlock.AsyncLock)
    assert_type(client.fair_lock("x", ticket_ttl=3, max_waiters=5), pawlock.AsyncLock)
    service = client.service()
    assert_type(await service.acquire("x", {"wait": 3}, identifier="me"), str)
    assert_type(await service.metrics("x"), pawlock.ServiceMetrics)
    assert_type(service.stats(), pawlock.ServiceStats)
    await service.release("x", "me")
    multi = client.multi_lock(["a", lock], timeout=3)
    assert_type(multi, pawlock.AsyncMultiLock)
    assert_type(await multi.acquire(1, ttl=3), pawlock.AsyncMultiLease)
    assert_type(await multi.try_acquire(), pawlock.AsyncMultiLease | None)
    async with multi as all_of_them:
        assert_type(all_of_them.fences, dict[str, int])
        assert_type(all_of_them.lost, AsyncLost)
        await all_of_them.extend(3)

    @client.rlock("x:{number}")(on_contended="raise")
    async def work(number: int, *, text: str = "") -> float:
        return number * 1.5

    assert_type(await work(3, text="a"), float)
    await work("3")  # type: ignore[arg-type]

    @client.lock("x:{number}")(on_contended="skip")
    async def skipped(number: int) -> float:
        return number * 1.5

    assert_type(await skipped(3), float | None)

    @client.lock("x")  # type: ignore[arg-type]
    def plain() -> None: ...

    assert_type(client.rlock("x"), pawlock.AsyncLock)
    assert_type(lock.name, str)
    assert_type(lock.acquire(), Acquiring[pawlock.AsyncLease])
    assert_type(await lock.acquire(), pawlock.AsyncLease)
    assert_type(await lock.acquire(5, ttl=3.0), pawlock.AsyncLease)
    assert_type(await asyncio.wait_for(lock.acquire(), 3), pawlock.AsyncLease)
    assert_type(await lock.try_acquire(), pawlock.AsyncLease | None)
    assert_type(await lock.locked(), bool)
    async with lock as lease:
        assert_type(lease, pawlock.AsyncLease)
        assert_type(lease.fence, int)
        assert_type(lease.remaining(), float)
        assert_type(lease.state, pawlock.LeaseState)
        assert_type(lease.lost, AsyncLost)
        assert_type(await lease.lost.wait(1.0), bool)
        assert_type(lease.detach(), str)
        lease.check()
        lease.beat()
        await lease.extend(timedelta(seconds=5))
        await lease.release()
    async with lock.acquire(timeout=1) as lease:
        assert_type(lease, pawlock.AsyncLease)
    assert_type(await client.locks(), list[pawlock.LockInfo])
    assert_type(await client.force_release("x", reason="it hangs"), pawlock.Forced)
    assert_type(await client.audit(10), list[pawlock.AuditEntry])
    assert_type(await client.adopt("ticket", ttl=3), pawlock.AsyncLease)
    await client.close(timeout=1)
    async with client as same:
        assert_type(same, pawlock.AsyncClient)
    records(await client.inspect("x", waiters=3))


def gates(client: pawlock.Client) -> None:
    latch = client.latch("x", 3, ttl=timedelta(hours=1), ticket_ttl=1, max_waiters=5)
    assert_type(latch, pawlock.Latch)
    assert_type((latch.name, latch.count), tuple[str, int])
    latch.count_down()
    latch.count_down(2, part="a")
    latch.wait()
    latch.wait(timeout=None)
    latch.reset()
    assert_type(latch.remaining(), int)
    barrier = client.barrier("x", 3, timeout=5)
    assert_type(barrier, pawlock.Barrier)
    assert_type(barrier.wait(1), int)
    assert_type((barrier.arrived(), barrier.parties), tuple[int, int])
    election = client.election("x", identity="me", ttl=3)
    assert_type(election, pawlock.Election)
    assert_type(election.leader(), pawlock.Leader | None)
    assert_type(election.leading, bool)
    with election.campaign(5) as lease:
        assert_type(lease, pawlock.Lease)
    election.resign()
    with election.observe() as leaders:
        for leader in leaders:
            assert_type(leader, pawlock.Leader | None)
        leaders.close()


async def agates(client: pawlock.AsyncClient) -> None:
    latch = client.latch("x", 3, ttl=timedelta(hours=1))
    assert_type(latch, pawlock.AsyncLatch)
    await latch.count_down(2, part="a")
    await latch.wait(timeout=None)
    await latch.reset()
    assert_type(await latch.remaining(), int)
    barrier = client.barrier("x", 3, timeout=5)
    assert_type(barrier, pawlock.AsyncBarrier)
    assert_type(await barrier.wait(1), int)
    assert_type(await barrier.arrived(), int)
    election = client.election("x", identity="me", ttl=3)
    assert_type(election, pawlock.AsyncElection)
    assert_type(await election.leader(), pawlock.Leader | None)
    assert_type(await election.campaign(5), pawlock.AsyncLease)
    async with election.campaign(5) as lease:
        assert_type(lease, pawlock.AsyncLease)
    await election.resign()
    async with election.observe() as leaders:
        async for leader in leaders:
            assert_type(leader, pawlock.Leader | None)
        leaders.close()


async def guarded(election: pawlock.Election) -> None:
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


def stops(lock: pawlock.Lock, alock: pawlock.AsyncLock) -> None:
    assert_type(lock.acquire(stop=threading.Event()), pawlock.Lease)
    assert_type(alock.acquire(stop=asyncio.Event()), Acquiring[pawlock.AsyncLease])


def records(info: pawlock.LockInfo) -> None:
    assert_type(info.held, bool)
    assert_type(info.holder, str)
    assert_type(info.fence, int | None)
    assert_type(info.ttl_left, float)
    assert_type(info.queue_length, int)
    assert_type(info.waiters, tuple[pawlock.WaiterInfo, ...])
    assert_type(info.waiters[0].position, int)


def errors(lock: pawlock.Lock) -> None:
    try:
        lock.acquire()
    except pawlock.AcquireTimeout as error:
        assert_type(error.waited, float)
        assert_type(error.position, int | None)
        assert_type(error.holder, str | None)
        assert_type(error.code, str)
    except pawlock.LeaseLost as error:
        assert_type(error.reason, str)
        assert_type(error.name, str | None)
    except pawlock.DeadlockDetected as error:
        assert_type(error.cycle, tuple[str, ...])
    except pawlock.StaleFence as error:
        assert_type(error.fence, int | None)


def wrong(client: pawlock.Client, aclient: pawlock.AsyncClient) -> None:
    """Each line is refused by the checker: an ignore that is not needed fails the check."""
    client.lock(b"x")  # type: ignore[arg-type]
    client.lock("x", ttl="30s")  # type: ignore[arg-type]
    client.lock("x", tll=30)  # type: ignore[call-arg]
    client.lock("x").acquire("5")  # type: ignore[arg-type]
    client.lock("x", on_exit=None)  # type: ignore[arg-type]
    client.lock("x", on_unavailable="ignore")  # type: ignore[arg-type]
    client.lock("x")(on_contended="ignore")  # type: ignore[call-overload]
    aclient.lock("x").acquire("5")  # type: ignore[arg-type]
    client.latch("x")  # type: ignore[call-arg]
    client.latch("x", "3")  # type: ignore[arg-type]
    client.barrier("x", 3, ttl=3)  # type: ignore[call-arg]
    client.election("x", identity=7)  # type: ignore[arg-type]
    client.election("x").leader_only(on_follower="wait")  # type: ignore[call-overload]
    pawlock.connect(ttl="30s")  # type: ignore[arg-type]
