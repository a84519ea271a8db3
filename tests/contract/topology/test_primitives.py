"""Every primitive behind Sentinels and in a cluster: taken, waited for, passed on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import pawlock
from tests.contract.edges.helpers import started_threads
from tests.support.groups import ClusterGroup, SentinelGroup

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module", params=["sentinel", "cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with SentinelGroup() if request.param == "sentinel" else ClusterGroup() as group:
        yield group.url


NAMES = [f"n{number}" for number in range(9)]
"""In a cluster of three these lie on all nodes."""


def two_take_turns(first: Callable[[], pawlock.Lease], second: Callable[[], pawlock.Lease]) -> None:
    """The second waits until the first lets go."""
    lease = first()
    inside = threading.Event()

    def wait() -> None:
        with second():
            inside.set()

    with started_threads(wait):
        assert not inside.wait(0.1)
        lease.release()
    assert inside.is_set()


def test_what_one_holds_at_a_time(url: str) -> None:
    with pawlock.connect(url) as one, pawlock.connect(url) as two:
        for name in NAMES[:3]:
            for kind in ("lock", "rlock", "fair_lock"):
                two_take_turns(
                    getattr(one, kind)(f"{kind} {name}").acquire, getattr(two, kind)(f"{kind} {name}").acquire
                )


def test_what_several_hold(url: str) -> None:
    with pawlock.connect(url) as one, pawlock.connect(url) as two:
        for name in NAMES[:3]:
            other = one.semaphore(f"s {name}", permits=2).acquire()
            two_take_turns(
                one.semaphore(f"s {name}", permits=2).acquire, two.semaphore(f"s {name}", permits=2).acquire
            )
            other.release()
            reader = one.rwlock(f"rw {name}").read.acquire()
            assert two.rwlock(f"rw {name}").write.try_acquire() is None
            reader.release()
            two_take_turns(one.rwlock(f"rw {name}").write.acquire, two.rwlock(f"rw {name}").read.acquire)


def test_several_names_at_once(url: str) -> None:
    """In a cluster they lie on several nodes."""
    with pawlock.connect(url) as one, pawlock.connect(url) as two:
        with one.multi_lock(NAMES) as lease:
            assert set(lease.fences) == set(NAMES)
            assert two.multi_lock(NAMES[:4]).try_acquire() is None
            assert two.lock(NAMES[5]).try_acquire() is None
        with two.multi_lock(NAMES, replicas=0) as lease:
            assert lease.state == "held"
        for name in NAMES:
            assert not one.inspect(name).held


def test_what_is_waited_for(url: str) -> None:
    with pawlock.connect(url) as one, pawlock.connect(url) as two:
        for name in NAMES[:3]:
            latch = one.latch(f"latch {name}", 2)
            with started_threads(partial(two.latch(f"latch {name}", 2).wait, 10)) as passed:
                latch.count_down()
                assert not passed
                latch.count_down()
            with started_threads(partial(two.barrier(f"barrier {name}", 2).wait, 10)):
                one.barrier(f"barrier {name}", 2).wait(10)


async def test_tasks(url: str) -> None:
    async with pawlock.connect_async(url) as one, pawlock.connect_async(url) as two:
        done: list[int] = []

        async def work(client: pawlock.AsyncClient, name: str) -> None:
            for _ in range(5):
                async with client.lock(name), client.semaphore(f"alone {name}", permits=1):
                    done.append(len(done))

        await asyncio.gather(*(work(client, name) for client in (one, two) for name in NAMES))
        assert len(done) == 2 * 5 * len(NAMES)
        async with one.multi_lock(NAMES), one.rwlock("rw").read, two.rwlock("rw").read:
            assert await two.lock(NAMES[3]).try_acquire() is None
        latch = one.latch("latch", 1)
        waiting = asyncio.create_task(two.latch("latch", 1).wait(10))
        await asyncio.sleep(0.05)
        await latch.count_down()
        await waiting
