"""Whose lease a block ends, wherever it is left; and where asking for a lock again is certain to be a deadlock."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import eventually, free, local_waiters, started_threads
from tests.support.servers import Server

NAMES = ("n", "other")


def elsewhere(step: Callable[[], Any]) -> Any:
    """Run a step in a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(step).result(20)


async def in_task(step: Awaitable[Any]) -> Any:
    """Run a step in a task of its own."""

    async def run() -> Any:
        return await step

    return await asyncio.create_task(run())


def dependency(shared: Any) -> Generator[Any, None, None]:
    """As a web framework takes one from a generator: each half runs in some thread of its pool."""
    with shared as held:
        yield held


async def async_dependency(shared: Any) -> AsyncGenerator[Any, None]:
    """The same for tasks."""
    async with shared as held:
        yield held


def permits(client: Any, kind: str) -> Any:
    return client.semaphore("n", permits=3) if kind == "semaphore" else client.rwlock("n").read


# Whose lease a block ends


@pytest.mark.parametrize("kind", ["semaphore", "read"])
def test_a_generator_ends_its_own_lease_in_any_thread(client: pawlock.Client, kind: str) -> None:
    shared = permits(client, kind)
    first, second = dependency(shared), dependency(shared)
    one, two = (elsewhere(partial(next, entered)) for entered in (first, second))
    elsewhere(second.close)
    one.check()
    assert two.state == "released"
    elsewhere(first.close)
    assert one.state == "released"


def test_one_thread_leaves_the_blocks_of_two_callers_in_any_order(client: pawlock.Client) -> None:
    shared = client.semaphore("n", permits=3)
    first, second = dependency(shared), dependency(shared)
    one, two = next(first), next(second)
    first.close()
    two.check()
    assert one.state == "released"
    second.close()
    assert two.state == "released"


@pytest.mark.parametrize("kind", ["semaphore", "read"])
async def test_an_async_generator_ends_its_own_lease_in_any_task(
    aclient: pawlock.AsyncClient, kind: str
) -> None:
    shared = permits(aclient, kind)
    first, second = async_dependency(shared), async_dependency(shared)
    one, two = [await in_task(anext(entered)) for entered in (first, second)]
    await in_task(second.aclose())
    one.check()
    assert two.state == "released"
    await in_task(first.aclose())
    assert one.state == "released"
    third, fourth = (contextlib.asynccontextmanager(async_dependency)(shared) for _ in range(2))
    one, two = [await in_task(entered.__aenter__()) for entered in (third, fourth)]
    await in_task(third.__aexit__(None, None, None))
    two.check()
    assert one.state == "released"
    await in_task(fourth.__aexit__(None, None, None))
    assert two.state == "released"


def test_who_is_told_that_it_runs_does_not_end_it(client: pawlock.Client, other: pawlock.Client) -> None:
    job = client.once("n")
    first, second = dependency(job), dependency(job)
    started, running = (elsewhere(partial(next, entered)) for entered in (first, second))
    assert isinstance(running, pawlock.Running)
    elsewhere(second.close)
    started.lease.check()
    assert isinstance(other.once("n").begin(), pawlock.Running)
    with pytest.raises(KeyError):
        elsewhere(lambda: first.throw(KeyError()))
    with other.once("n") as state:
        assert isinstance(state, pawlock.Started), "the work failed, and is to be done"


async def test_a_generator_that_is_dropped_ends_nothing_of_others(
    aclient: pawlock.AsyncClient, aother: pawlock.AsyncClient
) -> None:
    job = aclient.once("n")
    async with job as state:
        assert isinstance(state, pawlock.AsyncStarted)

        async def look() -> None:
            async for found in async_dependency(job):
                assert isinstance(found, pawlock.Running)
                break

        await in_task(look())
        gc.collect()
        await asyncio.sleep(0.05)
        state.lease.check()
        assert isinstance(await aother.once("n").begin(), pawlock.Running)
    assert isinstance(await aother.once("n").begin(), pawlock.Done)


def test_a_stack_that_is_left_elsewhere_ends_the_only_lease_or_none(client: pawlock.Client) -> None:
    """An ``ExitStack`` has no block of the object: threads tell whose lease is whose, or nothing is released."""
    shared = client.semaphore("n", permits=3)
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    one = elsewhere(lambda: first.enter_context(shared))
    two = second.enter_context(shared)
    third = contextlib.ExitStack()
    last = third.enter_context(shared)
    with pytest.raises(
        pawlock.NotHeld, match="'n': not entered in this thread or task, and 3 times in others"
    ):
        elsewhere(first.close)
    for lease in (one, two, last):
        lease.check()
    third.close()
    assert (two.state, last.state) == ("held", "released")
    second.close()
    shared.__exit__(None, None, None)
    assert [lease.state for lease in (one, two)] == ["released"] * 2
    with pytest.raises(pawlock.NotHeld, match="0 times"):
        shared.__exit__(None, None, None)


async def test_an_async_stack_that_is_left_elsewhere_ends_the_only_lease_or_none(
    aclient: pawlock.AsyncClient,
) -> None:
    shared = aclient.semaphore("n", permits=3)
    first, second = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
    one, two = [await in_task(stack.enter_async_context(shared)) for stack in (first, second)]
    with pytest.raises(pawlock.NotHeld, match="2 times in others"):
        await in_task(first.aclose())
    one.check()
    await two.release()
    one.check()
    async with contextlib.AsyncExitStack() as mine:
        three = await mine.enter_async_context(shared)
    assert (one.state, three.state) == ("held", "released")
    await one.release()


# Waiting for oneself


def refused(lock: Any) -> None:
    with pytest.raises(pawlock.DeadlockDetected, match="'n'") as caught:
        lock.acquire(timeout=60)
    assert caught.value.cycle == ("n", "n")
    assert lock.try_acquire() is None


def waits(lock: Any) -> None:
    with pytest.raises(pawlock.AcquireTimeout, match="waits until another one releases it"):
        lock.acquire(timeout=0.05)
    assert lock.try_acquire() is None


async def async_refused(lock: Any) -> None:
    await asyncio.sleep(0)
    with pytest.raises(pawlock.DeadlockDetected, match="'n'"):
        await lock.acquire(timeout=60)
    with pytest.raises(pawlock.DeadlockDetected, match="'n'"):
        async with lock.acquire(timeout=60):
            pass
    assert await lock.try_acquire() is None


async def async_waits(lock: Any) -> None:
    with pytest.raises(pawlock.AcquireTimeout, match="waits until another one releases it"):
        await lock.acquire(timeout=0.05)
    assert await lock.try_acquire() is None


def test_a_lock_in_a_block_of_its_own_is_refused_at_once(client: pawlock.Client, valkey: Server) -> None:
    lock, several = client.lock("n"), client.multi_lock(NAMES)
    again: Any
    for again in (lock, client.lock("n", ttl=5), client.rlock("n"), client.fair_lock("n")):
        for entered in (lock, client.fair_lock("n"), several):
            with entered:
                refused(again)
            with entered.acquire():
                refused(again)
            lease: Any = entered.acquire()
            with lease:
                refused(again)
    with lock, pytest.raises(pawlock.DeadlockDetected):
        several.acquire(timeout=60)
    lock(lambda: refused(lock))()

    def steps() -> Generator[None, None, None]:
        with lock:
            yield
            refused(lock)

    for _ in steps():
        waits(lock)
    with client.rwlock("n").read as outer:
        with client.rwlock("n").read as inner:
            assert inner is outer
        refused(client.rwlock("n").write)
    assert free(valkey, "n")


async def test_a_lock_in_an_async_block_of_its_own_is_refused_at_once(
    aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    lock, several = aclient.lock("n"), aclient.multi_lock(NAMES)
    again: Any
    for again in (lock, aclient.lock("n", ttl=5), aclient.rlock("n"), aclient.fair_lock("n")):
        for entered in (lock, aclient.fair_lock("n"), several):
            async with entered:
                await async_refused(again)
            async with entered.acquire():
                await async_refused(again)
            lease: Any = await entered.acquire()
            async with lease:
                await async_refused(again)
    async with lock:
        with pytest.raises(pawlock.DeadlockDetected):
            await several.acquire(timeout=60)

    @lock
    async def work() -> None:
        await async_refused(lock)

    await work()

    async def steps() -> AsyncGenerator[None, None]:
        async with lock:
            yield
            await async_refused(lock)

    async for _ in steps():
        await async_waits(lock)
    assert free(valkey, "n")


def test_a_block_under_the_loop_of_its_thread_is_on_the_stack(client: pawlock.Client) -> None:
    async def main() -> None:
        refused(client.lock("n"))

    with client.lock("n"), pytest.warns(RuntimeWarning, match="blocks this event loop"):
        asyncio.run(main())


@pytest.mark.filterwarnings("ignore:a sync pawlock client blocks this event loop")
async def test_a_lock_of_threads_is_refused_in_the_loop_whose_task_is_in_its_block(
    client: pawlock.Client, valkey: Server
) -> None:
    """Nobody else can leave that block. Two tasks are not one owner: an ``rlock`` is refused as well."""
    lock, shared, both = client.lock("n"), client.rwlock("n"), asyncio.Barrier(2)

    @contextlib.contextmanager
    def entered(lock: Any) -> Generator[None, None, None]:
        with lock:
            yield

    async def write(begin: Callable[[], Any]) -> None:
        with begin():
            await asyncio.sleep(0.05)

    async def read() -> None:
        with shared.read:
            await both.wait()

    kinds = (lock, client.rlock("n"), client.fair_lock("n"), client.multi_lock(NAMES), shared.write)
    for kind in kinds:
        begins: tuple[Callable[[], Any], ...] = (
            partial(lambda kind: kind, kind),
            partial(entered, kind),
            kind.acquire,
        )
        for begin in begins:
            first, second = await asyncio.gather(write(begin), write(begin), return_exceptions=True)
            assert first is None
            assert isinstance(second, pawlock.DeadlockDetected)
            assert "blocks the event loop" in str(second)
    await asyncio.gather(read(), read())
    with client.rlock("n"), entered(client.rlock("n")), client.rlock("n"):
        pass
    with entered(lock):
        refused(lock)
    assert free(valkey, "n")


@pytest.mark.filterwarnings("ignore:a sync pawlock client blocks this event loop")
async def test_a_lock_of_threads_waits_in_a_loop_for_what_other_threads_release(
    client: pawlock.Client,
) -> None:
    lock = client.lock("n", timeout=10)
    lease = lock.acquire()

    def release() -> None:
        time.sleep(0.1)
        lease.release()

    def wait() -> None:
        with lock:
            pass

    with started_threads(release), lock:
        waiting = asyncio.create_task(asyncio.to_thread(wait))
        await asyncio.sleep(0.1)
    await waiting


class ByHand:
    """Enters a lock for its own block, as wrappers do: by a frame that is gone by then."""

    def __init__(self, lock: pawlock.Lock) -> None:
        self.lock = lock

    def __enter__(self) -> None:
        self.lock.acquire(timeout=0.05).__enter__() if self.lock.locked() else self.lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self.lock.__exit__(None, None, None)


def test_what_others_may_release_is_waited_for(client: pawlock.Client, valkey: Server) -> None:
    lock = client.lock("n")
    lease = lock.acquire()
    waits(lock)
    lease.release()
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock)
        for _ in range(3):
            with contextlib.ExitStack() as inner, pytest.raises(pawlock.AcquireTimeout):
                inner.enter_context(client.lock("n", timeout=0.05))
    with ByHand(lock):
        for _ in range(3):
            with pytest.raises(pawlock.AcquireTimeout), ByHand(lock):
                pass
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock.acquire())
        for _ in range(3):
            with contextlib.ExitStack() as inner, pytest.raises(pawlock.AcquireTimeout):
                inner.enter_context(lock.acquire(timeout=0.05))
    assert free(valkey, "n")


async def test_what_other_tasks_may_release_is_waited_for(
    aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    lock = aclient.lock("n")
    lease = await lock.acquire()
    await async_waits(lock)
    await lease.release()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(lock)
        await async_waits(lock)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(lock.acquire())
        await async_waits(lock)
    assert free(valkey, "n")


@pytest.mark.parametrize("kind", ["lock", "fair_lock"])
def test_a_thread_of_a_pool_waits_for_what_it_took_for_another_caller(
    client: pawlock.Client, valkey: Server, kind: str
) -> None:
    lock = getattr(client, kind)("n")
    first, second = dependency(lock), dependency(lock)
    with ThreadPoolExecutor(1) as pool:
        one = pool.submit(lambda: next(first)).result(20)
        waiting = pool.submit(lambda: next(second))
        eventually(lambda: client.inspect("n").queue_length or local_waiters(client), "the second one waits")
        assert not waiting.done()
        first.close()
        two = waiting.result(20)
        assert two.fence > one.fence
        two.check()
        second.close()
    assert free(valkey, "n")


def test_leases_go_to_workers(client: pawlock.Client, valkey: Server) -> None:
    fences: list[int] = []

    def work(lease: pawlock.Lease) -> None:
        with lease:
            fences.append(lease.fence)

    for _ in range(5):
        lease = client.lock("n").acquire(timeout=20)
        with started_threads(partial(work, lease)):
            pass
        with ThreadPoolExecutor(1) as worker:
            worker.submit(work, client.lock("n").acquire(timeout=20))
    assert fences == sorted(set(fences))
    assert len(fences) == 10
    assert free(valkey, "n")


async def test_leases_go_to_other_tasks_and_threads(aclient: pawlock.AsyncClient, valkey: Server) -> None:
    inside, most = 0, 0

    async def work(lease: pawlock.AsyncLease) -> None:
        await asyncio.sleep(0.01)
        await lease.release()

    workers = [asyncio.create_task(work(await aclient.lock("n").acquire(timeout=20))) for _ in range(5)]
    await asyncio.gather(*workers)

    async def request(client: pawlock.Client) -> None:
        nonlocal inside, most
        lease = await asyncio.to_thread(client.lock("n", timeout=20).acquire)
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.005)
        inside -= 1
        await asyncio.to_thread(lease.release)

    with ThreadPoolExecutor(8) as pool, pawlock.connect(valkey.url) as client:
        asyncio.get_running_loop().set_default_executor(pool)
        await asyncio.gather(*(request(client) for _ in range(6)))
    assert most == 1
    assert free(valkey, "n")


def test_a_long_wait_for_oneself_is_logged_once(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    with pawlock.connect(valkey.url, deadlock_after=0.05) as client:
        lease = client.lock("n").acquire()
        with caplog.at_level(logging.WARNING, "pawlock.deadlocks"):
            with pytest.raises(pawlock.AcquireTimeout):
                client.lock("n").acquire(timeout=0.6)
            (said,) = [record.getMessage() for record in caplog.records]
            assert "'n' waits: this thread or task acquired it itself" in said
            caplog.clear()
            with pytest.raises(pawlock.AcquireTimeout):
                elsewhere(lambda: client.lock("n").acquire(timeout=0.6))
            assert not caplog.records
        lease.release()
