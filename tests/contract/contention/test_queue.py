"""The queue of the server, from many processes: order, the dead in it, those who leave it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pawlock
from tests.contract.contention.rig import (
    aeventually,
    all_at_rest,
    at_rest,
    eventually,
    left_over,
    queue_length,
    run_threads,
)
from tests.support.servers import Server

SLACK = 1.5
"""What a busy machine may add to a bound in seconds."""


class Process:
    """A process that waits on command; see ``arrivals.py``."""

    def __init__(self, server: Server, api: str, **options: Any) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("arrivals.py")),
                server.url,
                api,
                json.dumps(options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()


def is_queued(server: Server, number: int) -> bool:
    return queue_length(server, "x") == number


@contextlib.contextmanager
def processes(server: Server, apis: list[str], **options: Any) -> Iterator[list[Process]]:
    """Some of them, up and connected to nothing yet."""
    server.command("FLUSHALL")
    started = [Process(server, api, **options) for api in apis]
    try:
        for process in started:
            assert process.line() == "ready"
        yield started
    finally:
        for process in started:
            process.kill()


@pytest.mark.slow
def test_strict_order_across_processes(server: Server) -> None:
    """With handover=0 the order of arrival is the order of the grants, whoever arrives from wherever."""
    dice = random.Random(7)
    apis = ["threads", "tasks", "threads", "tasks"]
    with processes(server, apis, handover=0) as crowd, pawlock.connect(server.url) as client:
        lease = client.lock("x").acquire()
        arrivals: list[tuple[int, str]] = []
        for number in range(40):
            which = dice.randrange(len(crowd))
            crowd[which].say(f"wait {number}")
            arrivals.append((which, str(number)))
            eventually(partial(is_queued, server, number + 1), "the waiter is queued")
        lease.release()
        fences: list[int] = []
        granted: dict[int, list[str]] = {which: [] for which in range(len(crowd))}
        by_fence: list[tuple[int, str]] = []
        for which, _ in arrivals:
            who, fence = crowd[which].line().split()
            granted[which].append(who)
            by_fence.append((int(fence), who))
            fences.append(int(fence))
        assert [who for _, who in sorted(by_fence)] == [who for _, who in arrivals]
        assert len(set(fences)) == 40
        eventually(lambda: left_over(server, "x") == [], "the last one gives it back")


@pytest.mark.fault
@pytest.mark.parametrize("api", ["threads", pytest.param("tasks", marks=pytest.mark.slow)])
def test_dead_waiters_cost_one_ticket_life_in_all(server: Server, api: str) -> None:
    options: dict[str, Any] = {"ttl": 30.0, "ticket_ttl": 0.9, "handover": 0}
    with processes(server, [api], **options) as [doomed], pawlock.connect(server.url) as client:
        lock = client.lock("x", **options)
        lease = lock.acquire()
        for number in range(6):
            doomed.say(f"wait {number}")
            eventually(partial(is_queued, server, number + 1), "the waiter is queued")
        times: list[float] = []

        def wait() -> None:
            with lock.acquire(timeout=20.0):
                times.append(time.monotonic())

        live = threading.Thread(target=wait, daemon=True)
        live.start()
        eventually(lambda: queue_length(server, "x") == 7, "the live one stands behind them")
        doomed.kill()
        killed_at = time.monotonic()
        lease.release()
        live.join(20.0)
        assert times[0] - killed_at <= 0.9 + 0.3 + SLACK
        eventually(lambda: left_over(server, "x") == [], "nothing is left of the dead")


@pytest.mark.fault
@pytest.mark.parametrize("api", [pytest.param("threads", marks=pytest.mark.slow), "tasks"])
def test_a_killed_holder_frees_the_queue_within_its_ttl(server: Server, api: str) -> None:
    ttl, ticket_ttl = 1.5, 0.9
    with (
        processes(server, [api], ttl=ttl, ticket_ttl=ticket_ttl) as [doomed],
        pawlock.connect(server.url) as client,
    ):
        doomed.say("hold")
        assert doomed.line() == "held"
        lock = client.lock("x", ttl=ttl, ticket_ttl=ticket_ttl, handover=0)
        order: list[tuple[float, int]] = []

        def wait() -> None:
            with lock.acquire(timeout=20.0) as lease:
                order.append((time.monotonic(), lease.fence))

        waiters = [threading.Thread(target=wait, daemon=True) for _ in range(4)]
        for number, waiter in enumerate(waiters):
            waiter.start()
            eventually(partial(is_queued, server, number + 1), "the waiter is queued")
        doomed.kill()
        killed_at = time.monotonic()
        for waiter in waiters:
            waiter.join(20.0)
        assert len(order) == 4
        assert order[0][0] - killed_at <= ttl + ticket_ttl / 3 + SLACK
        assert order[3][0] - order[0][0] <= SLACK, "the rest followed at once"
        assert left_over(server, "x") == []


NOTABLE: list[dict[str, Any]] = [{}, {"handover": 0}, {"renew": False}]


def test_a_thread_that_gives_up_leaves_the_queue(server: Server) -> None:
    with pawlock.connect(server.url) as holder, pawlock.connect(server.url) as client:
        lease = holder.lock("x").acquire()
        for options in NOTABLE:
            with pytest.raises(pawlock.AcquireTimeout) as caught:
                client.lock("x", **options).acquire(timeout=0.03)
            assert caught.value.waited >= 0.03
            assert caught.value.position == 0
            assert queue_length(server, "x") == 0, "before the caller goes on"
        lease.release()
        all_at_rest(server, [holder._engine, client._engine], "x")


async def test_a_task_that_gives_up_leaves_the_queue(server: Server) -> None:
    async with pawlock.connect_async(server.url) as holder, pawlock.connect_async(server.url) as client:
        lease = await holder.lock("x").acquire()
        for options in NOTABLE:
            with pytest.raises(pawlock.AcquireTimeout):
                await client.lock("x", **options).acquire(timeout=0.03)
            assert queue_length(server, "x") == 0, "before the caller goes on"
            waiter = asyncio.create_task(_taken(client.lock("x", **options)))
            await aeventually(lambda: queue_length(server, "x") == 1, "it waits")
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            await aeventually(lambda: queue_length(server, "x") == 0, "the cancelled one left")
        await lease.release()
        assert left_over(server, "x") == []


async def _taken(lock: pawlock.AsyncLock) -> pawlock.AsyncLease:
    return await lock.acquire()


OPTIONS: list[dict[str, Any]] = [
    {},
    {"handover": 0},
    {"handover": 3},
    {"ttl": 10.0},
    {"renew": False},
    {"ticket_ttl": 1.0},
    {"max_hold": 20.0},
    {"on_exit": "warn"},
]


def test_locks_with_differing_options_exclude_each_other(
    valkey: Server, clients: list[pawlock.Client]
) -> None:
    value = 0
    fences: list[int] = []

    def serve(number: int) -> None:
        nonlocal value
        client = clients[number // 4 % 2]
        take = client.rlock if number % 3 == 0 else client.lock
        lock = take("x", **OPTIONS[number % len(OPTIONS)])
        for _ in range(40):
            with lock as lease:
                fences.append(lease.fence)
                seen = value
                time.sleep(0)
                value = seen + 1

    run_threads([partial(serve, number) for number in range(16)])
    assert value == 16 * 40
    assert fences == sorted(set(fences))
    all_at_rest(valkey, [client._engine for client in clients], "x")


async def test_async_locks_with_differing_options_exclude_each_other(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    value = 0

    async def serve(number: int) -> None:
        nonlocal value
        client = aclients[number // 4 % 2]
        take = client.rlock if number % 3 == 0 else client.lock
        lock = take("x", **OPTIONS[number % len(OPTIONS)])
        for _ in range(40):
            async with lock:
                seen = value
                await asyncio.sleep(0)
                value = seen + 1

    async with asyncio.timeout(30.0):
        await asyncio.gather(*(serve(number) for number in range(32)))
    assert value == 32 * 40
    engines = [client._engine() for client in aclients]
    await aeventually(lambda: all(map(at_rest, engines)), "the clients are at rest")


def test_a_client_and_an_async_client_exclude_each_other(valkey: Server) -> None:
    """Two APIs in one process, on one counter."""
    valkey.command("FLUSHALL")
    value = 0

    def by_thread() -> None:
        nonlocal value
        for _ in range(100):
            with client.lock("x"):
                seen = value
                time.sleep(0)
                value = seen + 1

    async def by_tasks() -> None:
        nonlocal value

        async def serve() -> None:
            nonlocal value
            for _ in range(100):
                async with aclient.lock("x"):
                    seen = value
                    await asyncio.sleep(0)
                    value = seen + 1

        async with pawlock.connect_async(valkey.url) as aclient:
            await asyncio.gather(*(serve() for _ in range(4)))

    with pawlock.connect(valkey.url) as client:
        run_threads([*[by_thread] * 4, lambda: asyncio.run(by_tasks())])
    assert value == 800


async def test_many_names_do_not_wait_for_each_other(
    valkey: Server, aclients: list[pawlock.AsyncClient]
) -> None:
    held = [await aclients[0].lock(f"n{number}").acquire() for number in range(500)]
    assert len({lease.token for lease in held}) == 500
    assert await aclients[1].lock("n499").try_acquire() is None
    waiters = [asyncio.create_task(_taken(aclients[1].lock(f"n{number}"))) for number in range(500)]
    await aeventually(lambda: sum(queue_length(valkey, f"n{n}") for n in (0, 499)) == 2, "all wait")
    for lease in held:
        await lease.release()
    async with asyncio.timeout(20.0):
        for lease in await asyncio.gather(*waiters):
            await lease.release()
    engines = [client._engine() for client in aclients]
    await aeventually(lambda: all(map(at_rest, engines)), "the clients are at rest")
    assert valkey.command("KEYS", "pawlock:n*") == []


def test_many_names_in_many_threads(valkey: Server, clients: list[pawlock.Client]) -> None:
    counts = [0] * 40

    def serve(number: int) -> None:
        dice = random.Random(number)
        for _ in range(60):
            name = dice.randrange(40)
            with clients[number % 2].lock(f"n{name}"):
                seen = counts[name]
                time.sleep(0)
                counts[name] = seen + 1

    run_threads([partial(serve, number) for number in range(12)])
    assert sum(counts) == 12 * 60
    all_at_rest(valkey, [client._engine for client in clients], *[f"n{name}" for name in range(40)])
