"""A cancel at each await of acquire and release, one after the other: nothing may be left on the server.

Two kinds of cancel: one that is there when the task goes to sleep (what it waits for never comes), and one that comes
in the same turn of the loop as what it waits for: the reply is there, and nobody will read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

import pytest

import pawlock
from tests.faults.rig import remains, teach
from tests.support.proxy import Proxy
from tests.support.servers import Server

pytestmark = pytest.mark.fault

T = TypeVar("T")

TTL = 60.0
"""So long that nothing is gone by itself within the second that a clean-up may take."""

LATE = 0.02

Operation = Callable[[], Awaitable[Any]]


class Cancelled(Exception):
    """The operation ended with the cancel that was sent."""


@types.coroutine
def _counted(
    awaitable: Awaitable[T], strike_at: int, reached: list[int], *, instant: bool
) -> Generator[Any, Any, T]:
    """Run an awaitable, counting where it sleeps; cancel the present task at one of these places."""
    task = asyncio.current_task()
    assert task is not None
    steps = awaitable.__await__()
    send: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731 - the next step, also replaced below
    while True:
        try:
            slept_on = send()
        except StopIteration as stop:
            result: T = stop.value
            return result
        reached[0] += 1
        if reached[0] == strike_at:
            if instant and hasattr(slept_on, "add_done_callback"):
                # Before the task's own callback: the cancel finds the future done and the task still asleep.
                slept_on.add_done_callback(lambda _: task.cancel())
            else:
                task.cancel()
        try:
            yield slept_on
        except BaseException as error:  # noqa: BLE001 - thrown on into the operation
            thrown = error
            send = lambda: steps.throw(thrown)  # noqa: E731
        else:
            send = lambda: steps.send(None)  # noqa: E731


async def struck(operation: Operation, strike_at: int, *, instant: bool) -> tuple[bool, Any]:
    """Run an operation in a task of its own and cancel it at one await; whether it got that far, and its result."""
    reached = [0]

    async def body() -> Any:
        return await _counted(operation(), strike_at, reached, instant=instant)

    task = asyncio.create_task(body())
    try:
        result = await asyncio.wait_for(task, 10)
    except asyncio.CancelledError:
        return True, None
    assert reached[0] < strike_at, f"the cancel at await {strike_at} was swallowed"
    return False, result


async def clean(server: Server, at: int) -> None:
    end = time.monotonic() + 1.0
    while left := remains(server):
        assert time.monotonic() < end, f"cancelled at await {at}: {left} is left"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def nothing(_: pawlock.AsyncClient, __: pawlock.AsyncClient) -> AsyncIterator[None]:
    """Nobody else."""
    yield


@contextlib.asynccontextmanager
async def held_by_rival(_: pawlock.AsyncClient, rival: pawlock.AsyncClient) -> AsyncIterator[None]:
    """Another client holds, and releases soon."""
    held = await rival.lock("n", ttl=TTL).acquire(5)
    leaving = asyncio.create_task(_release_late(held))
    yield
    await leaving


@contextlib.asynccontextmanager
async def held_by_other_task(client: pawlock.AsyncClient, _: pawlock.AsyncClient) -> AsyncIterator[None]:
    """Another task of the same client holds, and releases soon."""
    held = await client.lock("n", ttl=TTL).acquire(5)
    leaving = asyncio.create_task(_release_late(held))
    yield
    await leaving


@contextlib.asynccontextmanager
async def others_queue_as_well(
    client: pawlock.AsyncClient, rival: pawlock.AsyncClient
) -> AsyncIterator[None]:
    """Another client holds, and two more tasks of this client wait before and behind."""

    async def take() -> None:
        async with client.lock("n", ttl=TTL).acquire(10):
            await asyncio.sleep(0)

    held = await rival.lock("n", ttl=TTL).acquire(5)
    before = asyncio.create_task(take())
    await asyncio.sleep(0)
    behind = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(LATE / 2, lambda: behind.set_result(asyncio.create_task(take())))
    leaving = asyncio.create_task(_release_late(held))
    yield
    await asyncio.wait_for(asyncio.gather(leaving, before, await behind), 10)


async def _release_late(lease: pawlock.AsyncLease) -> None:
    await asyncio.sleep(LATE)
    await lease.release()


SITUATIONS = {
    "free": nothing,
    "held by another client": held_by_rival,
    "held by another task": held_by_other_task,
    "others wait as well": others_queue_as_well,
}

situations = pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
kinds = pytest.mark.parametrize("instant", [False, True], ids=["asleep", "same instant"])


async def sweep(
    server: Server,
    client: pawlock.AsyncClient,
    make: Callable[[], Coroutine[Any, Any, tuple[Operation, Callable[[], Awaitable[object]]]]],
    *,
    instant: bool,
    label: str,
) -> int:
    """Cancel at the first, the second, … await until an operation runs through; how many awaits it has."""
    n = 0
    while True:
        n += 1
        operation, tidy = await make()
        cancelled, result = await struck(operation, n, instant=instant)
        if isinstance(result, pawlock.AsyncLease):
            await result.release()
        await tidy()
        await clean(server, n)
        # The client and the name are as good as new.
        async with asyncio.timeout(5):
            await (await client.lock("n", ttl=TTL).acquire(2)).release()
        if not cancelled:
            print(f"{label}: {n - 1} awaits")
            return n - 1


@pytest.fixture
async def pair(server: Server) -> AsyncIterator[tuple[pawlock.AsyncClient, pawlock.AsyncClient]]:
    teach(server)
    async with pawlock.connect_async(server.url) as client, pawlock.connect_async(server.url) as rival:
        await client.inspect("n")
        await rival.inspect("n")
        yield client, rival


@kinds
@situations
@pytest.mark.parametrize(
    "way",
    [
        "async with lock",
        *[
            pytest.param(way, marks=pytest.mark.slow)
            for way in ("acquire", "acquire with a timeout", "async with acquire", "rlock")
        ],
    ],
)
async def test_row_10_cancel_at_every_await_of_acquire(
    *,
    way: str,
    situation: Callable[..., contextlib.AbstractAsyncContextManager[None]],
    instant: bool,
    pair: tuple[pawlock.AsyncClient, pawlock.AsyncClient],
    server: Server,
    request: pytest.FixtureRequest,
) -> None:
    client, rival = pair

    async def enter() -> None:
        async with client.lock("n", ttl=TTL):
            await asyncio.sleep(0)

    async def enter_acquisition() -> None:
        async with client.lock("n", ttl=TTL).acquire(5) as lease:
            await asyncio.sleep(0)
            lease.check()

    operations: dict[str, Operation] = {
        "acquire": lambda: client.lock("n", ttl=TTL).acquire(),
        "acquire with a timeout": lambda: client.lock("n", ttl=TTL).acquire(5),
        "async with lock": enter,
        "async with acquire": enter_acquisition,
        "rlock": lambda: client.rlock("n", ttl=TTL).acquire(5),
    }

    async def make() -> tuple[Operation, Callable[[], Awaitable[object]]]:
        stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(situation(client, rival))
        return operations[way], stack.aclose

    most = await sweep(server, client, make, instant=instant, label=request.node.name)
    assert most >= 1


@kinds
@pytest.mark.parametrize("waiter", ["nobody waits", "another client waits", "another task waits"])
async def test_row_11_cancel_at_every_await_of_release(
    *,
    waiter: str,
    instant: bool,
    pair: tuple[pawlock.AsyncClient, pawlock.AsyncClient],
    server: Server,
    request: pytest.FixtureRequest,
) -> None:
    client, rival = pair

    async def make() -> tuple[Operation, Callable[[], Awaitable[object]]]:
        lease = await client.lock("n", ttl=TTL).acquire(5)
        if waiter == "nobody waits":
            return lease.release, _nothing
        who = rival if waiter == "another client waits" else client

        async def take() -> None:
            # The release went on without its caller.
            async with who.lock("n", ttl=TTL).acquire(2):
                pass

        waiting = asyncio.create_task(take())
        await asyncio.sleep(LATE)
        return lease.release, lambda: waiting

    most = await sweep(server, client, make, instant=instant, label=request.node.name)
    assert most >= (0 if waiter == "another task waits" else 1)


async def _nothing() -> None:
    pass


@kinds
@pytest.mark.parametrize("contended", [False, True], ids=["free", "contended"])
async def test_row_10_cancel_during_connect(
    *,
    contended: bool,
    instant: bool,
    pair: tuple[pawlock.AsyncClient, pawlock.AsyncClient],
    server: Server,
    request: pytest.FixtureRequest,
) -> None:
    client, rival = pair

    async def make() -> tuple[Operation, Callable[[], Awaitable[object]]]:
        stack = contextlib.AsyncExitStack()
        # Closed after the check, so that the clean-up is not the closing's.
        fresh = pawlock.connect_async(server.url)
        closing.append(fresh)
        if contended:
            await stack.enter_async_context(held_by_rival(client, rival))
        return lambda: fresh.lock("n", ttl=TTL).acquire(5), stack.aclose

    closing: list[pawlock.AsyncClient] = []
    try:
        most = await sweep(server, client, make, instant=instant, label=request.node.name)
    finally:
        for fresh in closing:
            await fresh.close()
    assert most >= 1


@pytest.mark.parametrize(
    "delay", [0.002, *[pytest.param(delay, marks=pytest.mark.slow) for delay in (0.0, 0.01)]]
)
async def test_row_10_cancel_during_connect_by_time(delay: float, server: Server) -> None:
    """The connecting is shared: one task's cancel ends neither the others' nor the next one's."""
    with Proxy(server) as proxy:
        proxy.delay(replies=0.01)
        for _ in range(10):
            async with pawlock.connect_async(proxy.url) as client:
                first = asyncio.create_task(_take(client))
                second = asyncio.create_task(_take(client))
                await asyncio.sleep(delay)
                first.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await first
                await asyncio.wait_for(second, 5)
                await clean(server, 0)


async def _take(client: pawlock.AsyncClient) -> None:
    async with client.lock("n", ttl=TTL).acquire(5):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def restless() -> AsyncIterator[None]:
    """A loop that never sleeps, so that a timer may strike before the reply: asleep, it rounds timers up to 1 ms."""

    async def turn() -> None:
        while True:  # noqa: ASYNC110 - it is to be busy
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    yield
    turning.cancel()


@pytest.mark.parametrize(
    ("how", "contended"),
    [
        ("timeout", False),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("timeout", True), ("wait_for", False), ("wait_for", True))
        ],
    ],
)
async def test_row_14_a_timeout_around_acquire_is_held_or_clean(
    *, how: str, contended: bool, pair: tuple[pawlock.AsyncClient, pawlock.AsyncClient], server: Server
) -> None:
    client, rival = pair
    outcomes = {"held": 0, "timed out": 0}
    # From 1: asyncio drops an awaitable that is to be awaited for 0 s before it begins.
    for step in range(1, 60):
        delay = LATE - 0.003 + step * 0.0001 if contended else step * 0.00002
        situation = held_by_rival if contended else nothing
        async with situation(client, rival), restless():
            lock = client.lock("n", ttl=TTL)
            if not contended and step % 10 == 0:
                # An answer may be there before any timer; this one surely is not.
                server.command("CLIENT", "PAUSE", "5", "ALL")
            try:
                if how == "timeout":
                    async with asyncio.timeout(delay):
                        lease = await lock.acquire()
                else:
                    lease = await asyncio.wait_for(lock.acquire(), delay)
            except TimeoutError:
                outcomes["timed out"] += 1
            else:
                outcomes["held"] += 1
                lease.check()
                await lease.release()
        await clean(server, step)
    print(outcomes)
    assert outcomes["timed out"] > 0


async def test_a_cancel_while_the_server_is_silent(server: Server) -> None:
    with Proxy(server) as proxy:
        async with pawlock.connect_async(proxy.url) as client:
            await client.inspect("n")
            for match in (proxy.swallow_reply, proxy.hold_request):
                rule = match("EVALSHA")
                task = asyncio.create_task(_take(client))
                await asyncio.to_thread(rule.wait)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                rule.remove()
                await clean(server, 0)
