"""The wall clock of a server jumps: what happens to leases, waiters and fences, and what it must not do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pawlock
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import APIS, connect, done, nap, play
from tests.faults.clock.shifted import ShiftedServer, why_not
from tests.support.pace import pace

each_api = pytest.mark.parametrize("api", APIS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ShiftedServer]:
    """A server whose clock can be moved."""
    if reason := why_not():
        pytest.skip(reason)
    with ShiftedServer(tmp_path) as made:
        yield made


def test_the_shim_moves_the_wall_clock_alone(server: ShiftedServer) -> None:
    def off() -> float:
        told = server.command("TIME")
        assert isinstance(told, list)
        return int(bytes(told[0])) + int(bytes(told[1])) / 1e6 - time.time()  # type: ignore[arg-type]

    for jump in (0, 3600, -3600, 0):
        server.jump(jump)
        eventually(lambda jump=jump: abs(off() - jump) < 1, f"its clock is {jump} s off")  # type: ignore[misc]


@each_api
def test_row_26_a_jump_forward_ends_the_lease_early_and_the_fence_still_rises(
    server: ShiftedServer, api: str
) -> None:
    async def scenario() -> None:
        first, second = (connect(api, server.url) for _ in range(2))
        held = await done(first.lock("a", ttl=3).acquire())
        server.jump(60)
        # The server has forgotten it: this is what no client can prevent.
        newer = await done(second.lock("a", ttl=3).acquire(timeout=2))
        assert newer.fence > held.fence
        # The first holder learns of it with its next renewal, at a third of its ttl.
        began = time.monotonic()
        while held.state != "lost" and time.monotonic() - began < 3:
            await nap(api, 0.02)
        assert time.monotonic() - began < pace() * 2
        with pytest.raises(pawlock.LeaseLost):
            held.check()
        newer.check()
        await done(newer.release())
        await done(first.close())
        await done(second.close())

    play(api, scenario)


@each_api
def test_row_27_a_jump_back_keeps_the_holder_safe_and_fences_rising(server: ShiftedServer, api: str) -> None:
    async def scenario() -> None:
        first, second = (connect(api, server.url) for _ in range(2))
        held = await done(first.lock("a", ttl=2).acquire())
        server.jump(-60)
        # Nobody else gets in while it is held and renewed, however far the clock is.
        with pytest.raises(pawlock.AcquireTimeout):
            await done(second.lock("a", ttl=2).acquire(timeout=1.5))
        held.check()
        await done(held.release())
        fences = [held.fence]
        for _ in range(3):
            lease = await done(second.lock("a", ttl=2).acquire(timeout=2))
            fences.append(lease.fence)
            await done(lease.release())
        assert fences == sorted(set(fences))
        await done(first.close())
        await done(second.close())

    play(api, scenario)


def test_row_27_a_waiter_is_served_after_a_jump_back(server: ShiftedServer) -> None:
    with pawlock.connect(server.url) as client, pawlock.connect(server.url) as other:
        held = client.lock("b", ttl=5).acquire()
        waiting = other.lock("b", ttl=5, ticket_ttl=1)
        got: list[pawlock.Lease] = []

        waiter = threading.Thread(target=lambda: got.append(waiting.acquire(timeout=10)))
        waiter.start()
        eventually(lambda: client.inspect("b").queue_length == 1, "it waits")
        server.jump(-30)
        time.sleep(0.5)
        held.release()
        waiter.join(5)
        assert got
        assert got[0].fence > held.fence
        got[0].release()


def test_a_fence_lost_with_the_memory_rises_on_a_clock_that_is_not_behind(server: ShiftedServer) -> None:
    with pawlock.connect(server.url) as client:
        with client.lock("c") as lease:
            before = lease.fence
        server.command("FLUSHALL")
        with client.lock("c") as lease:
            assert lease.fence > before


@each_api
def test_a_masters_clock_that_jumps_does_no_harm_to_a_majority(tmp_path: Path, api: str) -> None:
    if reason := why_not():
        pytest.skip(reason)
    servers = [ShiftedServer(tmp_path, unix=False).start() for _ in range(3)]

    async def scenario() -> None:
        # What is tried is a clock; on a busy machine an answer may well take longer than 0.05 s.
        options = pawlock.RedlockOptions(fresh=True, node_timeout=1.0)
        urls = [server.url for server in servers]
        first, second = (connect(api, urls, redlock=options, ttl=5) for _ in range(2))
        fences = []
        for jump in (3600, -3600, 30, -30, 0):
            held = await done(first.lock("m").acquire(timeout=5))
            # A grant does not wait for the last of three votes, and the clock of a voter is about to jump.
            eventually(
                lambda: all(server.command("EXISTS", "pawlock:m") for server in servers), "all three hold it"
            )
            servers[0].jump(jump)
            assert await done(second.lock("m").try_acquire()) is None
            held.check()
            fences.append(held.fence)
            await done(held.release())
            lease = await done(second.lock("m").acquire(timeout=5))
            fences.append(lease.fence)
            await done(lease.release())
        assert fences == sorted(set(fences))
        await done(first.close())
        await done(second.close())

    try:
        play(api, scenario)
    finally:
        for server in servers:
            server.stop()
