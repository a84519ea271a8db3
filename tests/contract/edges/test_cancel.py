"""How the cancel of a loss goes together with other cancels: timeouts, groups, shields, blocks inside blocks."""

# ruff: noqa: PT012, SIM117, FBT001 - what stands inside which block, and which of them raises, is the point

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

import pawlock
from tests.support.servers import Server


async def settled() -> None:
    """The code after the block: no stray cancel may hit it, now or later."""
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    for _ in range(5):
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)


def lose(server: Server, *names: str) -> None:
    for name in names:
        server.command("DEL", f"pawlock:{name}")


TTL = 0.6
"""For a loss that is soon noticed: at a renewal, or at the end."""
LASTS = 30.0
"""For what is to be held: a busy machine may not run a program for as long as a short lease lives."""


async def test_inside_a_timeout(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    """The loss comes first: the timeout is not blamed."""
    with pytest.raises(pawlock.LeaseLost):
        async with asyncio.timeout(20) as scope:
            async with aclient.lock("a", ttl=TTL):
                lose(valkey, "a")
                await asyncio.sleep(30)
    assert not scope.expired()
    await settled()


async def test_around_a_timeout(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    with pytest.raises(pawlock.LeaseLost):
        async with aclient.lock("a", ttl=TTL):
            lose(valkey, "a")
            async with asyncio.timeout(20):
                await asyncio.sleep(30)
    await settled()


async def test_an_outer_timeout_is_never_told_as_a_loss(aclient: pawlock.AsyncClient) -> None:
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(None) as scope:
            async with aclient.lock("a", ttl=LASTS) as lease:
                scope.reschedule(asyncio.get_running_loop().time() + 0.1)
                await asyncio.sleep(30)
    assert not isinstance(caught.value, pawlock.PawlockError)
    assert lease.state == "released"
    assert not await aclient.lock("a").locked()
    await settled()


async def test_an_inner_timeout_stays_inside(aclient: pawlock.AsyncClient) -> None:
    async with aclient.lock("a", ttl=LASTS) as lease:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.sleep(30)
        lease.check()
    await settled()


@pytest.mark.parametrize("outer", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_timeout_and_a_loss_in_one_instant(
    valkey: Server, aclient: pawlock.AsyncClient, outer: bool
) -> None:
    """Both cancels are on their way when the task awakes: each block takes back its own, and none is left."""

    async def both() -> None:
        if outer:
            async with asyncio.timeout(0.3):
                async with aclient.lock("a", ttl=0.3, renew=False):
                    time.sleep(0.7)  # noqa: ASYNC251
                    await asyncio.sleep(5)
        else:
            async with aclient.lock("a", ttl=0.3, renew=False):
                async with asyncio.timeout(0.3):
                    time.sleep(0.7)  # noqa: ASYNC251
                    await asyncio.sleep(5)

    for _ in range(3):
        with pytest.raises((TimeoutError, pawlock.LeaseLost)):
            await both()
        await settled()


async def test_in_a_task_group(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    """The loss of one child ends the group: the others are cancelled, their locks released, the loss is told."""
    entered = asyncio.Barrier(4)
    ended: list[str] = []

    async def holder(name: str) -> None:
        try:
            async with aclient.lock(name, ttl=TTL if name == "a" else LASTS):
                await entered.wait()
                await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append(name)
            raise

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c"):
                group.create_task(holder(name))
            await entered.wait()
            lose(valkey, "a")
            await asyncio.sleep(30)
    (error,) = caught.value.exceptions
    assert isinstance(error, pawlock.LeaseLost)
    assert error.name == "a"
    assert sorted(ended) == ["b", "c"]
    assert not await aclient.lock("b").locked()
    await settled()


async def test_a_group_inside_the_block(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    """The cancel of the loss ends the children of the group that the body runs."""
    ended: list[int] = []

    async def child(n: int) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(n)

    with pytest.raises(pawlock.LeaseLost):
        async with aclient.lock("a", ttl=TTL):
            async with asyncio.TaskGroup() as group:
                for n in range(3):
                    group.create_task(child(n))
                await asyncio.sleep(0.05)
                lose(valkey, "a")
    assert sorted(ended) == [0, 1, 2]
    await settled()


async def test_a_shielded_part_runs_on(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    finished = asyncio.Event()

    async def part() -> None:
        await asyncio.sleep(TTL * 2)
        finished.set()

    with pytest.raises(pawlock.LeaseLost):
        async with aclient.lock("a", ttl=TTL):
            lose(valkey, "a")
            await asyncio.shield(part())
    assert not finished.is_set()
    await asyncio.wait_for(finished.wait(), 10)
    await settled()


@pytest.mark.parametrize(
    ("lost", "awaits"),
    [
        ("both", True),
        ("inner", False),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("outer", True), ("inner", True), ("outer", False), ("both", False))
        ],
    ],
)
async def test_two_blocks_one_in_the_other(
    valkey: Server, aclient: pawlock.AsyncClient, lost: str, awaits: bool
) -> None:
    names = {"outer": ("outer",), "inner": ("inner",), "both": ("outer", "inner")}[lost]
    with pytest.raises(pawlock.LeaseLost) as caught:
        life = {name: TTL if name in names or not awaits else LASTS for name in ("outer", "inner")}
        outer_lock, inner_lock = (aclient.lock(name, ttl=ttl) for name, ttl in life.items())
        async with outer_lock as outer, inner_lock as inner:
            lose(valkey, *names)
            if awaits:
                await asyncio.sleep(30)
            else:
                time.sleep(TTL * 1.5)  # noqa: ASYNC251
    if awaits:
        assert caught.value.name in names
    assert {lease.name for lease in (outer, inner) if lease.state == "lost"} >= set(names)
    await settled()
    for _ in range(400):
        if not await aclient.lock("inner").locked() and not await aclient.lock("outer").locked():
            break
        await asyncio.sleep(0.01)
    assert not await aclient.lock("inner").locked()
    assert not await aclient.lock("outer").locked()
    # The task has done with both: no deadlock with itself, no memory of a lost level.
    for name in ("outer", "inner"):
        async with aclient.rlock(name, timeout=5):
            pass
    await settled()


async def test_the_loss_of_the_inner_one_leaves_the_outer_one_alone(
    valkey: Server, aclient: pawlock.AsyncClient
) -> None:
    async with aclient.lock("outer") as outer:
        with pytest.raises(pawlock.LeaseLost):
            async with aclient.lock("inner", ttl=TTL):
                lose(valkey, "inner")
                await asyncio.sleep(30)
        await settled()
        outer.check()
    assert not await aclient.lock("outer").locked()


async def test_a_reentered_block(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    with pytest.raises(pawlock.LeaseLost):
        async with aclient.rlock("a", ttl=TTL), aclient.rlock("a", ttl=TTL):
            lose(valkey, "a")
            await asyncio.sleep(30)
    await settled()
    async with aclient.rlock("a", timeout=5) as lease:
        assert lease.count == 1


async def test_an_outside_cancel_is_passed_on(aclient: pawlock.AsyncClient) -> None:
    states: list[str] = []
    entered = asyncio.Event()

    async def work() -> None:
        async with aclient.lock("a", ttl=LASTS) as lease:
            entered.set()
            try:
                await asyncio.sleep(30)
            finally:
                states.append(lease.state)

    task = asyncio.create_task(work())
    await asyncio.wait_for(entered.wait(), 30)
    task.cancel("from outside")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert states == ["held"]
    assert not await aclient.lock("a").locked()


@pytest.mark.parametrize("first", ["loss", "outside"])
async def test_an_outside_cancel_beside_the_loss_is_passed_on(
    valkey: Server, aclient: pawlock.AsyncClient, first: str
) -> None:
    """Whichever comes first: the outside cancel stays a cancel, and the lease is ended in any case."""
    leases: list[pawlock.AsyncLease] = []
    entered = asyncio.Event()

    async def work() -> None:
        async with aclient.lock("a", ttl=TTL) as lease:
            leases.append(lease)
            entered.set()
            try:
                await asyncio.sleep(30)
            finally:
                # The clean-up of a body that was cancelled once takes time: the second cancel comes into it.
                await asyncio.sleep(5)

    task = asyncio.create_task(work())
    await asyncio.wait_for(entered.wait(), 30)
    if first == "outside":
        task.cancel()
        lose(valkey, "a")
    else:
        lose(valkey, "a")
        await leases[0].lost.wait(10)
        await asyncio.sleep(0.02)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 15)
    assert leases[0].state == "lost"


async def test_an_outside_cancel_and_the_loss_before_one_await(
    valkey: Server, aclient: pawlock.AsyncClient
) -> None:
    """Both requests are made while the body does not await, and the body ends without one."""
    leases: list[pawlock.AsyncLease] = []

    async def work() -> None:
        async with aclient.lock("a", ttl=0.3, renew=False) as lease:
            leases.append(lease)
            task = asyncio.current_task()
            assert task is not None
            time.sleep(0.5)  # noqa: ASYNC251
            assert lease.lost  # the check that finds the loss asks for the cancel
            task.cancel()

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leases[0].state == "lost"
    async with aclient.rlock("a", timeout=5):
        pass


async def test_a_body_that_swallows_the_cancel_is_told_again(
    valkey: Server, aclient: pawlock.AsyncClient
) -> None:
    with pytest.raises(pawlock.LeaseLost):
        async with aclient.lock("a", ttl=TTL) as lease:
            lose(valkey, "a")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(30)
            await asyncio.sleep(0.01)  # it runs on: nobody can stop it ...
            for _ in range(2):
                with pytest.raises(pawlock.LeaseLost):  # ... but every check tells
                    lease.check()
    await settled()


async def test_a_blocked_loop_is_told_at_the_next_await(aclient: pawlock.AsyncClient) -> None:
    reached: list[str] = []
    with pytest.raises(pawlock.LeaseLost):
        async with aclient.lock("a", ttl=0.4, renew=False):
            time.sleep(0.8)  # noqa: ASYNC251
            await asyncio.sleep(10)
            reached.append("beyond")
    assert not reached
    await settled()


async def test_a_blocked_loop_without_another_await_is_told_at_the_exit(aclient: pawlock.AsyncClient) -> None:
    with pytest.raises(pawlock.LeaseLost):
        async with aclient.lock("b", ttl=0.3, renew=False):
            time.sleep(0.6)  # noqa: ASYNC251
    await settled()


async def test_a_cancel_asked_for_but_not_delivered_stays_in_the_block(
    aclient: pawlock.AsyncClient,
) -> None:
    """The loss is found by a check, which asks for the cancel; then the body ends without an await."""
    with pytest.raises(pawlock.LeaseLost):
        async with aclient.lock("a", ttl=0.3, renew=False) as lease:
            time.sleep(0.5)  # noqa: ASYNC251
            assert lease.lost
    await settled()


async def test_an_error_of_the_body_with_a_cancel_on_its_way(aclient: pawlock.AsyncClient) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        async with aclient.lock("a", ttl=0.3, renew=False) as lease:
            time.sleep(0.5)  # noqa: ASYNC251
            assert lease.lost
            _ = 1 // 0
    assert any("lost" in note for note in caught.value.__notes__)
    await settled()


async def test_release_inside_the_block_ends_the_watch(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    async with aclient.lock("a", ttl=0.3) as lease:
        await lease.release()
        await asyncio.sleep(0.6)
        with pytest.raises(pawlock.NotHeld):
            await lease.release()
    await settled()


async def test_a_lease_entered_in_the_task_that_got_it_from_another(
    valkey: Server, aclient: pawlock.AsyncClient
) -> None:
    """The cancel goes to the task that is inside the block, not to the one that acquired."""
    lease = await aclient.lock("a", ttl=TTL).acquire()

    async def work() -> str:
        try:
            async with lease:
                lose(valkey, "a")
                await asyncio.sleep(30)
        except pawlock.LeaseLost:
            return "told"
        return "not told"

    assert await asyncio.wait_for(asyncio.create_task(work()), 15) == "told"
    await settled()


async def test_entering_a_lease_that_is_lost_already(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    lease = await aclient.lock("a", ttl=0.3, renew=False).acquire()
    assert await lease.lost.wait(10)
    reached: list[str] = []
    with pytest.raises(pawlock.LeaseLost):
        async with lease:
            await asyncio.sleep(10)
            reached.append("beyond")
    assert not reached
    await settled()
