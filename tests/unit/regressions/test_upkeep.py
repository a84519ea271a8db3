"""Defects of the background service and of the end of a client."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import pawlock
from pawlock.core.acquire import _begin
from pawlock.core.lease import HeldLease
from pawlock.core.records import Attempt, OutboxEntry
from pawlock.core.runtime import Call, Fault, Reply
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.servers import Server
from tests.unit.regressions.rig import until


@pytest.mark.maintenance_fails
def test_an_error_in_the_upkeep_drops_no_lease_from_renewal(client: pawlock.Client) -> None:
    runtime = client._engine.runtime
    answer, calls = runtime.call_many, []

    async def break_once(these: Sequence[Call], timeout: float) -> list[Reply | Fault]:
        calls.append(these)
        if len(calls) == 1:
            raise ValueError("no reply that anybody knows")
        return await answer(these, timeout)

    runtime.call_many = break_once  # type: ignore[method-assign, assignment]
    lease = client.lock("n", ttl=1.5).acquire()
    first = lease.valid_until
    until(lambda: lease.valid_until > first)
    assert lease.state == "held"
    lease.release()


def test_a_stream_that_breaks_is_a_fault_of_the_server_not_of_the_parser(client: pawlock.Client) -> None:
    class Garbled:
        def __init__(self, sock: Any) -> None:
            self._sock = sock

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sock, name)

        def recv(self, size: int) -> bytes:
            self._sock.recv(size)
            return b"@ is no type of reply\r\n"

    client.inspect("n")
    link = client._runtime._local.link
    assert link is not None
    link._sock = Garbled(link._sock)  # type: ignore[assignment]
    client.lock("n").acquire(1).release()


def test_departures_may_be_added_while_the_upkeep_looks_at_them(
    client: pawlock.Client, caplog: pytest.LogCaptureFixture
) -> None:
    engine = client._engine
    call = client.lock("q")._plan.primitive.leave("t@h", 0, 0)
    end = time.monotonic() + 1.0
    before = sys.getswitchinterval()

    def flood() -> None:
        while time.monotonic() < end:
            departure = OutboxEntry(call, engine.runtime.now() + 60)
            departure.due = engine.runtime.now() + 0.01
            engine.outbox[departure] = None
            engine.background.nudge()

    engine.start_maintenance()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=flood) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    engine.outbox.clear()
    assert "background maintenance failed" not in caplog.text


async def test_a_task_that_outlived_its_cancellation_has_its_lease_renewed(valkey: Server) -> None:
    """Somebody cancels all tasks, and one of them goes on: what it acquires is renewed as ever."""
    async with pawlock.connect_async(valkey.url) as client:
        await (await client.lock("first").acquire()).release()

        async def go_on() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            lease = await client.lock("n", ttl=0.6).acquire()
            first = lease.valid_until
            await asyncio.sleep(0.4)
            assert lease.valid_until > first
            await lease.release()

        going = asyncio.create_task(go_on())
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await going


async def test_a_close_beside_a_close_leaves_every_lease(valkey: Server) -> None:
    with Proxy(valkey) as proxy:
        client = pawlock.connect_async(proxy.url)
        leases = [await client.lock(name).acquire() for name in ("a", "b", "c")]
        proxy.delay(requests=0.05)
        await asyncio.gather(client.close(), client.close())
        assert [valkey.command("EXISTS", f"pawlock:{name}") for name in ("a", "b", "c")] == [0, 0, 0]
        assert [lease.state for lease in leases] == ["lost"] * 3


async def test_an_interrupted_batch_leaves_no_error_unseen(valkey: Server) -> None:
    seen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["message"]))
    with Proxy(valkey) as proxy:
        client = pawlock.connect_async(proxy.url)
        leases = [await client.lock(name, ttl=1).acquire() for name in ("a", "b", "c")]
        proxy.blackhole()
        await asyncio.sleep(0.4)
        await client.close(0.05)
        assert [lease.state for lease in leases] == ["lost"] * 3
        gc.collect()
        await asyncio.sleep(0.05)
        proxy.blackhole(on=False)
    valkey.command("FLUSHALL")
    assert not seen


def test_a_close_in_a_signal_handler_does_not_wait_for_what_it_stands_on(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    took: list[float] = []
    with pawlock.connect(valkey.url) as client, pawlock.connect(valkey.url) as rival, rival.lock("a"):

        def handle(*_: object) -> None:
            began = time.monotonic()
            client.close(5.0)
            took.append(time.monotonic() - began)

        before = signal.signal(signal.SIGUSR1, handle)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        try:
            with pytest.raises(pawlock.ClientClosed):
                client.lock("a").acquire(timeout=10)
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)
    assert took
    assert took[0] < 3.0


def test_a_place_whose_keeper_is_gone_does_not_refuse_every_try(client: pawlock.Client) -> None:
    lock = client.lock("n")
    gone = Attempt("gone", 0.0, None, None, wait=True)
    assert _begin(client._engine, lock._plan, gone)
    del gone
    lease = lock.try_acquire()
    assert lease is not None
    lease.release()


async def test_blocks_inside_a_reentered_lease_leave_no_watcher_behind(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url) as client:
        lock = client.rlock("n")
        async with lock as outer:
            for _ in range(10):
                async with lock:
                    pass
            assert len(outer._record.hold.watchers or ()) == 1


async def test_an_inner_block_that_was_interrupted_before_it_began_cancels_nothing(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cancel the task at a loss, beside the outer block, and nobody would take that back."""
    valkey.command("FLUSHALL")
    watch = HeldLease.watch

    def strike(self: HeldLease, watcher: Callable[[], object]) -> None:
        watch(self, watcher)
        raise ZeroDivisionError

    async def begin(lock: pawlock.AsyncLock) -> None:
        async with lock:
            pass

    async def hold(lock: pawlock.AsyncLock) -> None:
        async with lock as lease:
            with monkeypatch.context() as patched:
                patched.setattr(HeldLease, "watch", strike)
                with pytest.raises(ZeroDivisionError):
                    await begin(lock)
            record = lease._record
            record.engine.lose(record.hold, pawlock.LossReason.TAKEN)
            await asyncio.sleep(5)

    task = asyncio.current_task()
    assert task is not None
    async with pawlock.connect_async(valkey.url) as client:
        with pytest.raises(pawlock.LeaseLost):
            await hold(client.rlock("n"))
        assert task.cancelling() == 0


def test_a_release_after_max_hold_keeps_the_name_closed_for_min_hold(
    client: pawlock.Client, valkey: Server
) -> None:
    lease = client.lock("n", ttl=5, max_hold=0.1, min_hold=30).acquire()
    until(lambda: lease.lost)
    with pytest.raises(pawlock.NotHeld):
        lease.release()
    until(lambda: valkey.command("GET", "pawlock:n") == b"closed@min_hold")


def test_a_late_copy_of_an_interrupted_question_brings_no_lock_back(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with Proxy(valkey) as proxy, pawlock.connect(proxy.url) as client:
        lock = client.lock("n")
        lock.acquire().release()
        late = proxy.hold_request("EVALSHA")
        before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
        ended = threading.Event()

        def wait() -> None:
            lock.acquire().release()
            ended.set()

        waiter = threading.Thread(target=wait)

        def interrupt() -> None:
            late.wait()
            waiter.start()
            until(lambda: any(queue.sleepers for queue in list(client._engine.local_queues.values())))
            os.kill(os.getpid(), signal.SIGUSR1)

        helper = threading.Thread(target=interrupt)
        helper.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                lock.acquire()
            helper.join()
            waiter.join()
            assert ended.is_set()
        finally:
            signal.signal(signal.SIGUSR1, before)
        late.release()
        time.sleep(0.2)
        assert valkey.command("EXISTS", "pawlock:n") == 0


def test_a_short_timeout_is_kept_while_the_server_is_silent(valkey: Server) -> None:
    with Proxy(valkey) as proxy, pawlock.connect(proxy.url) as client:
        client.inspect("n")
        proxy.blackhole()
        began = time.monotonic()
        with pytest.raises(pawlock.BackendUnavailable):
            client.lock("n").acquire(timeout=0.05)
        took = time.monotonic() - began
        proxy.blackhole(on=False)
    assert took < 0.9 * pace()


def test_leases_that_end_all_the_time_do_not_cut_short_the_renewal_of_another(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    ended: list[pawlock.Lease] = []
    with Proxy(valkey) as proxy, pawlock.connect(proxy.url) as client:
        lease = client.lock("n", ttl=10, renew=0.5).acquire()
        proxy.delay(replies=0.02)
        first, stop = lease.valid_until, threading.Event()

        def spend(thread: int) -> None:
            while not stop.is_set():
                ended.append(client.lock(f"{thread}:{len(ended)}", ttl=0.3, renew=False).acquire())

        threads = [threading.Thread(target=spend, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: client._engine.reports.counters["lost_expired"] > 50)
            until(lambda: lease.valid_until > first + 1.0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        proxy.delay()
        lease.release()


async def test_an_upkeep_stopped_before_it_sleeps_tells_of_a_loss_at_once(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    late: list[float] = []
    async with pawlock.connect_async(valkey.url) as client:
        engine: Any = client._engine()
        idle, stops = engine.background.idle, [1.0]

        async def idle_after_a_stop(until: float | None) -> bool:
            if engine.schedule.all() and stops:
                time.sleep(stops.pop())  # noqa: ASYNC251 - a thread, stopped in the middle of a step
            return bool(await idle(until))

        async def body() -> None:
            async with client.lock("n", ttl=0.9, renew=False) as lease:
                try:
                    await asyncio.sleep(10)
                finally:
                    late.append(engine.runtime.now() - lease.valid_until)

        engine.background.idle = idle_after_a_stop
        with pytest.raises(pawlock.LeaseLost):
            await body()
    assert not stops
    assert late[0] < 0.3 * pace()


async def test_a_loss_is_told_in_time_while_the_upkeep_connects_anew(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    late: list[float] = []
    with Proxy(valkey) as proxy:
        client = pawlock.connect_async(proxy.url)

        async def body() -> None:
            async with client.lock("n", ttl=1.0, renew=0.45) as lease:
                try:
                    await asyncio.sleep(10)
                finally:
                    late.append(client._engine().runtime.now() - lease.valid_until)

        holding = asyncio.create_task(body())
        held = await client.lock("m").acquire()
        waiting = asyncio.ensure_future(client.lock("m", ttl=29).acquire())
        await asyncio.sleep(0.3)
        proxy.blackhole()
        proxy.reset_all()
        waiting.cancel()
        with pytest.raises(pawlock.LeaseLost):
            await holding
        proxy.blackhole(on=False)
        await held.release()
        await client.close()
    assert late[0] < 0.4 * pace()
