"""One lock object for many threads or tasks, blocks left elsewhere, re-entry, and waiting for oneself."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import eventually, free, outcome, script_calls, started_threads
from tests.faults.steps import Paused
from tests.support.servers import Server


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_thread(work: Callable[[], object]) -> object:
    """Run something in a thread of its own and return its result."""
    with started_threads(work) as results:
        pass
    return results[0]


# One object, many users


def test_threads_share_one_lock_object(client: pawlock.Client, valkey: Server) -> None:
    lock = client.lock("shared")
    inside, fences = [0], []

    def work() -> None:
        for _ in range(60):
            with lock as lease:
                inside[0] += 1
                assert inside[0] == 1
                fences.append(lease.fence)
                inside[0] -= 1

    with started_threads(*[work] * 8):
        pass
    assert fences == sorted(set(fences))
    assert len(fences) == 480
    assert not lock._entered
    assert free(valkey, "shared")


@pytest.mark.parametrize("kind", ["semaphore", "read"])
def test_threads_leave_the_blocks_of_one_object_at_once(
    kind: str, client: pawlock.Client, valkey: Server
) -> None:
    """Others leave theirs while one looks for its own: at whatever step, it finds it and releases it."""
    lock: Any = client.semaphore("shared", permits=3) if kind == "semaphore" else client.rwlock("shared").read
    entered, leave = threading.Barrier(3), threading.Event()

    def other() -> None:
        with lock:
            entered.wait(10)
            leave.wait(10)

    at, where = 0, "?"
    while where:
        at += 1
        entered.reset()
        leave.clear()
        with lock:
            others = [threading.Thread(target=other) for _ in range(2)]

            def others_leave(patience: float = 0.2, others: list[threading.Thread] = others) -> None:
                # At most steps they can; where this thread has the guard of the client, they wait for it.
                leave.set()
                for thread in others:
                    thread.join(patience)

            for thread in others:
                thread.start()
            entered.wait(10)
            paused = Paused(at, others_leave)
            paused.__enter__()
        paused.__exit__()
        where = paused.where
        others_leave(10)
        assert not lock._entered
        assert free(valkey, "shared"), f"the others left at {where}"
    assert at > 10


async def test_tasks_share_one_lock_object(aclient: pawlock.AsyncClient, valkey: Server) -> None:
    lock = aclient.lock("shared")
    inside, fences = [0], []

    async def work() -> None:
        for _ in range(30):
            async with lock as lease:
                inside[0] += 1
                await asyncio.sleep(0)
                assert inside[0] == 1
                fences.append(lease.fence)
                inside[0] -= 1

    await asyncio.gather(*[work() for _ in range(16)])
    assert fences == sorted(set(fences))
    assert len(fences) == 480
    assert not lock._entered
    assert free(valkey, "shared")


def test_two_threads_release_one_lease(client: pawlock.Client, valkey: Server, quick_switches: None) -> None:
    """Exactly one of them does, and exactly one waiter gets the turn."""
    lock = client.lock("twice", timeout=15)
    inside: list[int] = []
    stop: list[bool] = []

    def wait() -> None:
        while not stop:
            with lock:
                inside.append(1)
                assert len(inside) == 1, "two owners"
                inside.pop()

    with started_threads(wait, wait, wait):
        try:
            for _ in range(150):
                lease = lock.acquire()
                barrier = threading.Barrier(2)

                def end(lease: pawlock.Lease = lease, barrier: threading.Barrier = barrier) -> str:
                    barrier.wait()
                    return outcome(lease.release)

                with started_threads(end, end) as results:
                    pass
                assert sorted(map(str, results)) == ["NotHeld", "done"]
        finally:
            stop.append(True)
    assert free(valkey, "twice")


# Entered here, left there


def test_a_block_is_left_in_another_thread(client: pawlock.Client, valkey: Server) -> None:
    for kind in (client.lock, client.rlock):
        stack = contextlib.ExitStack()
        lease = stack.enter_context(kind("exit stack"))
        in_thread(stack.close)
        assert lease.state == "released"
        assert free(valkey, "exit stack")
        # The thread that took it has done with it: no deadlock with itself, no count left.
        with kind("exit stack") as again:
            assert again.count == 1


def test_a_lease_is_released_in_another_thread(client: pawlock.Client, valkey: Server) -> None:
    lock = client.lock("elsewhere")
    lease = lock.acquire()
    in_thread(lease.check)
    in_thread(lambda: lease.extend(40))
    in_thread(lease.release)
    assert free(valkey, "elsewhere")
    with lock:
        pass


def test_leaving_elsewhere_takes_no_lease_of_another_block(client: pawlock.Client, valkey: Server) -> None:
    """A's block is lost and B is inside by now: A's block, left in a third thread, must not end B's lease."""
    lock = client.lock("whose", ttl=0.6, on_exit="warn")
    stack = contextlib.ExitStack()
    lost = stack.enter_context(lock)
    valkey.command("DEL", "pawlock:whose")
    assert lost.lost.wait(10)
    inside, leave = threading.Event(), threading.Event()
    seen: list[str] = []

    def hold() -> None:
        with lock as lease:
            inside.set()
            leave.wait(10)
            seen.append(outcome(lease.check))

    with started_threads(hold):
        assert inside.wait(10)
        in_thread(stack.close)
        leave.set()
    assert seen == ["done"]


async def test_a_lease_is_released_in_another_task(aclient: pawlock.AsyncClient, valkey: Server) -> None:
    lock = aclient.lock("elsewhere")
    lease = await lock.acquire()
    await asyncio.create_task(lease.release())
    assert free(valkey, "elsewhere")
    async with lock:
        pass
    stack = contextlib.AsyncExitStack()
    await stack.enter_async_context(lock)
    await asyncio.create_task(stack.aclose())
    assert free(valkey, "elsewhere")
    async with lock:
        pass


async def test_who_enters_by_hand_while_a_block_begins_or_ends_keeps_its_own(
    aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    # A full collection stops every thread of a process with many objects for most of a second.
    lock = aclient.lock("both ways", ttl=3)
    turns: list[str] = []

    async def in_a_block() -> None:
        async with lock:
            turns.append("block")

    async def by_hand() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(lock)
            gc.collect()
            await asyncio.sleep(3.6)
            assert not free(valkey, "both ways")
            turns.append("stack")

    holder = await lock.acquire()
    # Both wait for it at once, and then one while the other leaves.
    tasks = [asyncio.create_task(step()) for step in (in_a_block, by_hand)]
    await asyncio.sleep(0.1)
    await holder.release()
    await asyncio.gather(*tasks)
    assert turns == ["block", "stack"]
    assert free(valkey, "both ways")


# Re-entry


def test_an_rlock_counts_for_its_thread_without_the_server(client: pawlock.Client, valkey: Server) -> None:
    lock = client.rlock("re-entered")
    with lock as outer:
        calls = script_calls(valkey)
        with lock as inner, client.rlock("re-entered") as third:
            assert inner is outer
            assert third is outer
            assert (outer.count, inner.fence) == (3, outer.fence)
            again = lock.try_acquire()
            assert again is outer
            assert outer.count == 4
            again.release()
        assert outer.count == 1
        outer.check()
        assert script_calls(valkey) == calls, "a re-entry went to the server"
        assert in_thread(lock.try_acquire) is None
        assert in_thread(lambda: outcome(lambda: lock.acquire(timeout=0.05))) == "AcquireTimeout"
    assert outer.count == 0
    assert free(valkey, "re-entered")
    with pytest.raises(pawlock.NotHeld):
        outer.release()


async def test_an_rlock_counts_for_its_task_without_the_server(
    aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    lock = aclient.rlock("re-entered")

    async def child() -> bool:
        return await lock.try_acquire() is None

    async with lock as outer:
        calls = script_calls(valkey)
        async with lock as inner, lock.acquire(timeout=1) as third:
            assert inner is outer
            assert third is outer
            assert outer.count == 3
        assert script_calls(valkey) == calls, "a re-entry went to the server"
        assert await asyncio.create_task(child()), "a child task is another owner"
    assert free(valkey, "re-entered")


def test_a_lost_rlock_is_not_entered_again(client: pawlock.Client, valkey: Server) -> None:
    lock = client.rlock("lost", ttl=0.6)

    def nest() -> None:
        with lock as lease:
            valkey.command("DEL", "pawlock:lost")
            assert lease.lost.wait(10)
            with lock:
                pytest.fail("entered")

    with pytest.raises(pawlock.LeaseLost):
        nest()
    # The loss is told; a new acquisition is a new lease.
    with lock as lease:
        lease.check()


# Waiting for oneself


def test_a_plain_lock_taken_again_is_a_deadlock_at_once(client: pawlock.Client, valkey: Server) -> None:
    lock = client.lock("myself")
    with lock as lease:
        calls = script_calls(valkey)
        for again in (lock, client.lock("myself", ttl=5), client.rlock("myself")):
            with pytest.raises(pawlock.DeadlockDetected, match="'myself'") as caught:
                again.acquire(timeout=60)
            assert caught.value.cycle == ("myself", "myself")
            assert lease.token.split("@")[0] not in str(caught.value)
            assert again.try_acquire() is None
        assert script_calls(valkey) == calls
        assert in_thread(lambda: outcome(lambda: lock.acquire(timeout=0.05))) == "AcquireTimeout"
    with lock:
        pass


def test_a_plain_lock_inside_an_rlock_of_the_same_name_is_a_deadlock(client: pawlock.Client) -> None:
    with client.rlock("both"), pytest.raises(pawlock.DeadlockDetected):
        client.lock("both").acquire()


async def test_a_task_that_takes_its_lock_again(aclient: pawlock.AsyncClient) -> None:
    lock = aclient.lock("myself")

    async def child() -> None:
        await lock.acquire(timeout=0.05)

    async with lock:
        with pytest.raises(pawlock.DeadlockDetected):
            await lock.acquire(timeout=60)
        assert await lock.try_acquire() is None
        with pytest.raises(pawlock.AcquireTimeout):
            await asyncio.create_task(child())
    async with lock:
        pass


def test_a_thread_that_comes_after_an_ended_one_is_not_taken_for_it(client: pawlock.Client) -> None:
    """The system gives the numbers of ended threads to new ones."""
    lock, plain = client.rlock("number"), client.lock("plain number")
    kept = [in_thread(lock.acquire), in_thread(plain.acquire)]
    for _ in range(20):
        assert in_thread(lock.try_acquire) is None
        assert in_thread(lambda: outcome(lambda: plain.acquire(timeout=0.001))) == "AcquireTimeout"
    for lease in kept:
        assert isinstance(lease, pawlock.Lease)
        lease.release()


# A turn that an interrupted caller gave to nobody


@pytest.mark.parametrize("api", ["threads", "asyncio"])
def test_who_sleeps_goes_on_where_the_turn_is_nobodys(api: str, valkey: Server) -> None:
    """As a signal handler leaves it that raises in the middle of giving the turn back: the background notices."""

    def struck(engine: Any) -> bool:
        for queue in tuple(engine.local_queues.values()):
            if queue.sleepers:
                queue.turns.clear()
                return True
        return False

    async def tasks() -> None:
        async with pawlock.connect_async(valkey.url) as client:
            lock, engine = client.lock("struck"), client._engine()
            asking, asleep = (asyncio.create_task(lock.acquire()) for _ in range(2))
            await asyncio.to_thread(eventually, lambda: struck(engine), "a sleeper")
            await asyncio.to_thread(eventually, lambda: len(rival.inspect("struck").waiters) == 2, "both ask")
            held.release()
            async with asyncio.timeout(10):
                await (await asking).release()
                await (await asleep).release()

    def threads() -> None:
        with pawlock.connect(valkey.url) as client:
            lock, engine = client.lock("struck"), client._engine
            both = [threading.Thread(target=lambda: lock.acquire(timeout=20).release()) for _ in range(2)]
            for thread in both:
                thread.start()
            eventually(lambda: struck(engine), "a sleeper")
            eventually(lambda: len(rival.inspect("struck").waiters) == 2, "both ask")
            held.release()
            for thread in both:
                thread.join(10)
                assert not thread.is_alive()

    with pawlock.connect(valkey.url) as rival:
        held = rival.lock("struck").acquire()
        threads() if api == "threads" else asyncio.run(tasks())
