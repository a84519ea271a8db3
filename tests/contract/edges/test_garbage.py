"""A lease that is dropped: said aloud, no longer renewed, given up to the others by its ttl; and nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import (
    eventually,
    free,
    holder_of,
    local_waiters,
    run_script,
    started_threads,
)
from tests.support.servers import Server


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    """Collect only what a test makes: all that is left of earlier ones takes longer than a short lease lives."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def upkeep_threads() -> int:
    return sum(thread.name == "pawlock-maintenance" for thread in threading.enumerate())


def test_a_dropped_lease_warns_and_runs_out(
    valkey: Server, client: pawlock.Client, other: pawlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lock = client.lock("dropped", ttl=1.2)
    lease = lock.acquire()
    token = lease.token
    with pytest.warns(ResourceWarning, match="lease of 'dropped' was never released"):
        del lease
    began = time.monotonic()
    assert holder_of(valkey, "dropped") == token  # its body may still run: never released in its back
    with other.lock("dropped", timeout=10):
        waited = time.monotonic() - began
    assert 0.9 < waited < 4, "renewal went on, or it was released at once"
    assert client._engine.reports.counters["renewed"] == 0
    (record,) = [r for r in caplog.records if "garbage-collected" in r.message]
    assert (record.name, record.levelno) == ("pawlock.lease", logging.WARNING)
    assert token.split("@")[0] not in caplog.text


def test_a_dropped_lease_that_was_released_says_nothing(
    client: pawlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lease = client.lock("clean").acquire()
    lease.release()
    del lease
    gc.collect()
    assert "garbage" not in caplog.text


def test_local_waiters_of_a_dropped_lease_go_on(client: pawlock.Client) -> None:
    lock = client.lock("behind", ttl=1.2, timeout=15)
    lease = lock.acquire()

    def wait() -> None:
        with lock:
            pass

    with started_threads(wait, wait, wait):
        eventually(lambda: local_waiters(client) == 3, "three threads sleep")
        with pytest.warns(ResourceWarning):
            del lease
    assert len(client._engine.local_queues) == 0


def test_a_lease_in_a_cycle(valkey: Server, client: pawlock.Client, other: pawlock.Client) -> None:
    class Job:
        def __init__(self) -> None:
            self.lease = client.lock("cycle", ttl=1.0).acquire()
            self.me = self

    gc.disable()
    try:
        job = Job()
        del job
        with pytest.warns(ResourceWarning, match="'cycle'"):
            gc.collect()
    finally:
        gc.enable()
    with other.lock("cycle", timeout=10):
        pass


def test_the_owner_of_a_dropped_lease_may_take_the_name_again(client: pawlock.Client) -> None:
    """The dropped one is nobody's: taking the name again is waiting for its ttl, not a deadlock with itself."""
    for kind in (client.lock, client.rlock):
        lock = kind("again", ttl=1.0, timeout=10)
        lease = lock.acquire()
        with pytest.warns(ResourceWarning):
            del lease
        with lock as taken:
            taken.check()


async def test_a_dropped_lease_of_a_task(
    aclient: pawlock.AsyncClient, aother: pawlock.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    lock = aclient.lock("dropped", ttl=1.0, timeout=15)
    lease = await lock.acquire()

    async def wait() -> None:
        async with lock:
            pass

    waiters = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0.05)
    with pytest.warns(ResourceWarning, match="never released"):
        del lease
    async with aother.lock("dropped", timeout=15):
        pass
    await asyncio.gather(*waiters)
    assert "garbage-collected" in caplog.text


@pytest.mark.filterwarnings("ignore:.* was never released:ResourceWarning")
@pytest.mark.parametrize("kind", ["lock", "rlock", "semaphore", "read"])
async def test_a_task_that_ended_keeps_no_lease(
    kind: str, aclient: pawlock.AsyncClient, aother: pawlock.AsyncClient
) -> None:
    """A task has its result, or its error and so the variables of its frames: nothing of pawlock may keep the task."""

    def lock(client: pawlock.AsyncClient, name: str) -> Any:
        if kind == "read":
            shared = client.rwlock(name, ttl=1.0)
            return shared.read if client is aclient else shared.write
        options = {"permits": 1} if kind == "semaphore" else {}
        return getattr(client, kind)(name, ttl=1.0, **options)

    async def fails(name: str) -> None:
        lease = await lock(aclient, name).acquire()
        raise ValueError(lease)

    async def leaves(name: str) -> Any:
        return await lock(aclient, name).acquire()

    async def too_late() -> None:
        await asyncio.sleep(0.1)
        raise TimeoutError

    await asyncio.gather(fails("failed"), return_exceptions=True)
    await asyncio.wait_for(leaves("result"), 5)
    with pytest.raises(TimeoutError):
        # One of several came too late: nobody has the lease that another one got.
        await asyncio.gather(leaves("one of two"), too_late())
    gc.collect()
    for name in ("failed", "result", "one of two"):
        async with lock(aother, name).acquire(timeout=10):
            pass


@pytest.mark.filterwarnings("ignore:.* was never released:ResourceWarning")
def test_a_thread_that_ended_keeps_no_lease(client: pawlock.Client, other: pawlock.Client) -> None:
    def fails(name: str) -> None:
        lease = client.lock(name, ttl=1.0).acquire()
        raise ValueError(lease)

    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(fails, "pool").exception(), ValueError)
        with other.lock("pool").acquire(timeout=10):
            pass


def test_a_thread_that_is_gone_still_stands_for_what_its_block_has(
    client: pawlock.Client, other: pawlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Who looks for deadlocks asks what each holds, also of a permit in a block that a thread of a pool has begun."""
    permit = client.semaphore("permit", permits=2).acquire()

    def steps() -> Generator[None, None, None]:
        with permit:
            yield

    began = steps()
    thread = threading.Thread(target=lambda: next(began))
    thread.start()
    thread.join()
    del thread
    gc.collect()
    with other.lock("busy"), client.lock("mine"), pytest.raises(pawlock.AcquireTimeout):
        client.lock("busy").acquire(timeout=1.5)
    began.close()
    assert permit.state == "released"
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_clients_that_are_dropped_leave_no_thread_and_no_connection(valkey: Server) -> None:
    def connections() -> int:
        return len(bytes(valkey.command("CLIENT", "LIST")).splitlines())  # type: ignore[arg-type]

    threads, open_before = upkeep_threads(), connections()
    for _ in range(5):
        with pawlock.connect(valkey.url).lock("block"):
            pass
    for _ in range(5):
        # The client goes first, its lease after it.
        lease = pawlock.connect(valkey.url).lock("lease").acquire()
        gc.collect()
        lease.release()
        del lease
    gc.collect()
    eventually(lambda: upkeep_threads() == threads, "the upkeeps end")
    eventually(lambda: connections() == open_before, "the connections are closed")


def test_clients_of_tasks_that_are_dropped_leave_no_thread(valkey: Server) -> None:
    """In a process of its own: their connections are left to the loop. A lease alone keeps its renewal."""
    text = """
    import asyncio, gc, sys, threading
    import pawlock

    def upkeeps():
        return sum(thread.name == "pawlock-maintenance" for thread in threading.enumerate())

    async def main():
        async with pawlock.connect_async(sys.argv[1]).lock("block"):
            pass
        lease = await pawlock.connect_async(sys.argv[1], ttl=10, renew=0.3).lock("alone").acquire()
        gc.collect()
        granted = lease.valid_until
        while lease.valid_until < granted + 0.5:
            await asyncio.sleep(0.01)
        print(upkeeps())
        await lease.release()
        del lease
        gc.collect()
        while upkeeps():
            await asyncio.sleep(0.01)
        print("none")

    asyncio.run(main())
    """
    assert run_script(text, valkey.url).split() == ["1", "none"]


def test_a_lease_alone_keeps_its_renewal(valkey: Server) -> None:
    lease = pawlock.connect(valkey.url, ttl=10, renew=0.3).lock("alone").acquire()
    gc.collect()
    granted = lease.valid_until
    eventually(lambda: lease.valid_until > granted + 0.5, "it is renewed twice")
    lease.check()
    lease.release()
    assert free(valkey, "alone")


def test_watching_a_lease_leaves_nothing_behind(client: pawlock.Client) -> None:
    with client.lock("watched") as lease:
        for _ in range(200):
            assert not lease.lost.wait(0.0001)
        assert not lease._record.hold.watchers


def test_a_thread_that_ends_gives_its_connection_back(valkey: Server, client: pawlock.Client) -> None:
    def work() -> None:
        with client.lock("short"):
            pass

    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    eventually(lambda: len(client._runtime._links) <= 1, "their connections are closed")
