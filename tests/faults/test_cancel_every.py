"""A cancel at each await of every other operation: permits, readers and writers, several names, elections, tickets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import pawlock
from tests.faults.rig import remains, teach
from tests.faults.test_cancel_sweep import struck
from tests.support.servers import Server

pytestmark = pytest.mark.fault

TTL = 5.0
SHORT = 0.4
LATE = 0.01
Pair = tuple[pawlock.AsyncClient, pawlock.AsyncClient]
Step = Callable[[], Awaitable[Any]]


@pytest.fixture
async def pair(server: Server) -> AsyncIterator[Pair]:
    teach(server)
    async with pawlock.connect_async(server.url) as client, pawlock.connect_async(server.url) as rival:
        await client.inspect("n")
        await rival.inspect("n")
        yield client, rival


class Scene:
    """What stands around one operation: leases of others, which go in the end."""

    def __init__(self, pair: Pair) -> None:
        self.client, self.rival = pair
        self.stack = contextlib.AsyncExitStack()

    async def held_by_rival(self, lock: Any) -> None:
        """The other client holds something, and lets go soon."""
        lease = await lock.acquire()

        async def leave() -> None:
            await asyncio.sleep(LATE)
            await lease.release()

        leaving = asyncio.create_task(leave())
        self.stack.push_async_callback(lambda: leaving)

    def let_go(self, lease: Any) -> None:
        """Release what may or may not be held any more."""

        async def release() -> None:
            with contextlib.suppress(pawlock.NotHeld):
                await lease.release()

        self.stack.push_async_callback(release)


Begin = Callable[[Scene], Awaitable[Step]]
BEGIN: dict[str, Begin] = {}


def begins(begin: Begin) -> Begin:
    """Note how an operation begins; what it returns is the operation."""
    BEGIN[begin.__name__] = begin
    return begin


@begins
async def try_acquire(scene: Scene) -> Step:
    return scene.client.lock("n", ttl=TTL).try_acquire


@begins
async def extend(scene: Scene) -> Step:
    lease = await scene.client.lock("n", ttl=TTL).acquire()
    scene.let_go(lease)
    return lambda: lease.extend(TTL * 2)


@begins
async def adopt(scene: Scene) -> Step:
    ticket = (await scene.rival.lock("n", ttl=SHORT).acquire()).detach()
    return lambda: scene.client.adopt(ticket)


@begins
async def semaphore(scene: Scene) -> Step:
    return lambda: scene.client.semaphore("n", permits=3, ttl=TTL).acquire(2)


@begins
async def semaphore_that_is_full(scene: Scene) -> Step:
    await scene.held_by_rival(scene.rival.semaphore("n", permits=1, ttl=TTL))
    return scene.client.semaphore("n", permits=1, ttl=TTL).acquire


@begins
async def release_of_permits(scene: Scene) -> Step:
    lease = await scene.client.semaphore("n", permits=3, ttl=TTL).acquire(2)
    scene.let_go(lease)
    return lease.release


@begins
async def read_behind_a_writer(scene: Scene) -> Step:
    await scene.held_by_rival(scene.rival.rwlock("n", ttl=TTL).write)
    return scene.client.rwlock("n", ttl=TTL).read.acquire


@begins
async def write_behind_a_reader(scene: Scene) -> Step:
    await scene.held_by_rival(scene.rival.rwlock("n", ttl=TTL).read)
    return scene.client.rwlock("n", ttl=TTL).write.acquire


@begins
async def downgrade(scene: Scene) -> Step:
    lease = await scene.client.rwlock("n", ttl=TTL).write.acquire()
    scene.let_go(lease)
    return lease.downgrade


@begins
async def multi_lock(scene: Scene) -> Step:
    await scene.held_by_rival(scene.rival.lock("b", ttl=TTL))
    return scene.client.multi_lock(["a", "b", "c"], ttl=TTL).acquire


@begins
async def multi_lock_that_is_free(scene: Scene) -> Step:
    return scene.client.multi_lock(["a", "b", "c"], ttl=TTL).acquire


@begins
async def multi_lock_release(scene: Scene) -> Step:
    lease = await scene.client.multi_lock(["a", "b", "c"], ttl=TTL).acquire()
    scene.let_go(lease)
    return lease.release


@begins
async def campaign(scene: Scene) -> Step:
    leader = await scene.rival.election("n", ttl=TTL).campaign()

    async def leave() -> None:
        await asyncio.sleep(LATE)
        await leader.release()

    leaving = asyncio.create_task(leave())
    scene.stack.push_async_callback(lambda: leaving)
    return scene.client.election("n", ttl=TTL).campaign


@begins
async def barrier(scene: Scene) -> Step:
    # Alone: it can only end by its time.
    async def wait() -> None:
        with contextlib.suppress(pawlock.PawlockError):
            await scene.client.barrier("n", 2, timeout=0.05).wait()

    return wait


@begins
async def service(scene: Scene) -> Step:
    services = scene.client.service()

    async def use() -> None:
        held = await services.acquire("n", {"ttl": TTL})
        await services.release("n", held)

    return use


async def clean(server: Server, at: int) -> None:
    """Nothing is left, at the latest when a short ttl has ended."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SHORT + 1.0
    # A barrier remembers its number of parties; that nobody stands at it any more is asked below.
    while left := [name for name in remains(server) if not name.endswith(":1:barrier")]:
        assert loop.time() < end, f"cancelled at await {at}: {left} is left"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "instant", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["asleep", "same instant"]
)
@pytest.mark.parametrize("what", BEGIN)
async def test_row_10_cancel_at_every_await_of_every_operation(
    *, what: str, instant: bool, pair: Pair, server: Server
) -> None:
    n = 0
    while True:
        n += 1
        scene = Scene(pair)
        operation = await BEGIN[what](scene)
        cancelled, result = await struck(operation, n, instant=instant)
        if hasattr(result, "release"):
            scene.let_go(result)
        await scene.stack.aclose()
        await clean(server, n)
        if not cancelled:
            break
        # The client and the names are as good as new.
        async with asyncio.timeout(5), scene.client.multi_lock(["a", "n"], ttl=TTL):
            assert await scene.client.barrier("n", 2).arrived() == 0
    print(f"{what}: {n - 1} awaits")
    assert n > 1
