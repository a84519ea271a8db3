"""Why and how a loss is told: every reason, at every door, in both APIs."""

# ruff: noqa: PT012 - a block that raises at its end is the point; options of a lock are of many types

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import eventually, free, holder_of, local_waiters, outcome, started_threads
from tests.support.proxy import Proxy, Rule
from tests.support.scripts import published
from tests.support.servers import Server

RENEW = published("mutex/renew").sha
REASONS = ["expired", "taken", "unreachable", "data_lost", "max_hold", "closed"]


class Striker:
    """Makes a lease of "lost" be lost for a reason."""

    def __init__(self, reason: str, server: Server, proxy: Proxy) -> None:
        self.reason = reason
        self.server = server
        self.proxy = proxy
        # What the next renewal finds out is found out at a third of that, and not at its end.
        self.options: dict[str, Any] = {"ttl": 0.9 if reason == "unreachable" else 3}
        if reason == "max_hold":
            self.options = {"ttl": 0.9, "max_hold": 0.5}

    def strike(self) -> None:
        if self.reason == "expired":
            self.server.command("DEL", "pawlock:lost")
        elif self.reason == "taken":
            self.server.command("DEL", "pawlock:lost")
            self.server.command("SET", "pawlock:lost", "administrator@desk:1/sh", "PX", "60000")
        elif self.reason == "data_lost":
            self.server.command("FLUSHALL")
        elif self.reason == "unreachable":
            self.proxy.refuse()
            self.proxy.reset_all()


@pytest.fixture
def proxy(valkey: Server) -> Iterator[Proxy]:
    valkey.command("FLUSHALL")
    with Proxy(valkey) as proxy:
        yield proxy


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_at_every_door(valkey: Server, proxy: Proxy, reason: str) -> None:
    striker = Striker(reason, valkey, proxy)
    told: list[tuple[str, str]] = []

    def on_lost(lease: pawlock.Lease) -> None:
        told.append((lease.name, outcome(lease.check)))

    client = pawlock.connect(proxy.url, on_lost=on_lost)
    lease = client.lock("lost", **striker.options).acquire()
    waited: list[object] = []
    with started_threads(lambda: waited.append(lease.lost.wait(20))):
        striker.strike()
        if reason == "closed":
            client.close(1.0)
    assert waited == [True]
    assert (bool(lease.lost), lease.lost.is_set(), lease.state, lease.remaining()) == (
        True,
        True,
        "lost",
        0.0,
    )
    with pytest.raises(pawlock.LeaseLost, match=f"lost.*{reason}.*fencing token {lease.fence}") as caught:
        lease.check()
    assert (caught.value.reason, caught.value.name) == (reason, "lost")
    assert outcome(lambda: lease.extend(5)) == "NotHeld"
    assert outcome(lease.beat) == f"LeaseLost:{reason}"
    eventually(lambda: told == [("lost", f"LeaseLost:{reason}")], "on_lost is called once")
    for _ in range(2):
        assert outcome(lease.release) == "NotHeld"
        assert (lease.state, bool(lease.lost), outcome(lease.check)) == ("lost", True, f"LeaseLost:{reason}")
    client.close(0.2)


@pytest.mark.parametrize(
    "reason", [REASONS[0], *[pytest.param(reason, marks=pytest.mark.slow) for reason in REASONS[1:5]]]
)
def test_leaving_a_block_whose_lease_is_lost(
    valkey: Server, proxy: Proxy, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    striker = Striker(reason, valkey, proxy)
    client = pawlock.connect(proxy.url)

    def body(error: Exception | None = None, **options: Any) -> None:
        proxy.clear()
        valkey.command("DEL", "pawlock:lost")
        with client.lock("lost", **striker.options, **options) as lease:
            striker.strike()
            assert lease.lost.wait(20)
            if error is not None:
                raise error

    with pytest.raises(pawlock.LeaseLost) as caught:
        body()
    assert caught.value.reason == reason
    with pytest.raises(KeyError, match="the body's own") as own:
        body(KeyError("the body's own"))
    assert any(f"lost ({reason})" in note for note in own.value.__notes__)
    caplog.clear()
    body(on_exit="warn")
    assert any(r.name == "pawlock.lease" and f"lost ({reason})" in r.message for r in caplog.records)
    proxy.clear()
    client.close(1.0)


@pytest.mark.parametrize("reason", REASONS)
async def test_a_task_in_its_block_is_cancelled(valkey: Server, proxy: Proxy, reason: str) -> None:
    striker = Striker(reason, valkey, proxy)
    told: list[str] = []
    seen: list[str] = []

    async def on_lost(lease: pawlock.AsyncLease) -> None:
        await asyncio.sleep(0)
        told.append(lease.name)

    client = pawlock.connect_async(proxy.url, on_lost=on_lost)
    closing: asyncio.Task[None] | None = None
    with pytest.raises(pawlock.LeaseLost) as caught:
        async with client.lock("lost", **striker.options) as lease:
            await asyncio.to_thread(striker.strike)
            if reason == "closed":
                closing = asyncio.create_task(client.close(1.0))
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
    assert caught.value.reason == reason
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert seen == ["cancelled"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0.05)  # no stray cancel comes after
    assert await lease.lost.wait(0)
    await asyncio.to_thread(eventually, lambda: told, "on_lost is called")
    assert told == ["lost"]
    if closing is not None:
        await closing
    await client.close(0.2)


async def test_a_lease_without_a_block_cancels_nobody(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    lease = await aclient.lock("lost", ttl=0.6).acquire()
    valkey.command("DEL", "pawlock:lost")
    assert await lease.lost.wait(10)
    with pytest.raises(pawlock.NotHeld):
        await lease.release()


async def test_the_bodys_own_error_wins_in_a_task(valkey: Server, aclient: pawlock.AsyncClient) -> None:
    with pytest.raises(KeyError, match="own") as caught:
        async with aclient.lock("lost", ttl=0.6):
            valkey.command("DEL", "pawlock:lost")
            try:
                await asyncio.sleep(20)
            finally:
                raise KeyError("own")
    assert any("lost (expired)" in note for note in caught.value.__notes__)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0.02)


async def test_work_in_another_thread_may_beat(aclient: pawlock.AsyncClient) -> None:
    def work(lease: pawlock.AsyncLease) -> None:
        for _ in range(20):
            time.sleep(0.05)
            lease.beat()

    async with aclient.lock("beaten", ttl=0.9, max_hold=0.4) as lease:
        await asyncio.to_thread(work, lease)
        lease.check()


async def test_warn_on_exit_in_a_task(
    valkey: Server, aclient: pawlock.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A body that had ended anyway goes on with a warning; one that was cut short cannot look as if it had ended."""
    lock = aclient.lock("lost", ttl=0.6, on_exit="warn")
    async with lock as lease:
        valkey.command("DEL", "pawlock:lost")
        time.sleep(0.8)  # noqa: ASYNC251 - a loop that is blocked is the point
    assert "lost (" in caplog.text
    assert lease.state == "lost"
    await asyncio.sleep(0.02)
    with pytest.raises(pawlock.LeaseLost):
        async with lock:
            valkey.command("DEL", "pawlock:lost")
            await asyncio.sleep(20)


def test_waiting_for_the_loss_ends_with_the_release(client: pawlock.Client) -> None:
    lease = client.lock("fine", ttl=60).acquire()
    assert not lease.lost.wait(0)
    began = time.monotonic()
    assert not lease.lost.wait(0.05)
    assert time.monotonic() - began >= 0.05
    with started_threads(lease.lost.wait, lambda: lease.lost.wait(50)) as results:
        eventually(lambda: len(lease._record.parked or ()) == 2, "two wait")
        lease.release()
    assert results == [False, False]
    assert not lease.lost
    assert outcome(lease.check) == "LeaseLost:closed"


async def test_waiting_for_the_loss_ends_with_the_release_in_tasks(aclient: pawlock.AsyncClient) -> None:
    lease = await aclient.lock("fine", ttl=60).acquire()
    waiter = asyncio.create_task(lease.lost.wait())
    await asyncio.sleep(0.02)
    await lease.release()
    assert await asyncio.wait_for(waiter, 5) is False


def test_the_loss_of_one_owner_is_not_told_to_the_next(client: pawlock.Client, valkey: Server) -> None:
    """Local hand-over: both stand on one token of the server; the one who released is done with it."""
    told: list[str] = []
    lock = client.lock("passed on", ttl=1.2, on_lost=lambda lease: told.append(str(lease.fence)), timeout=10)
    first = lock.acquire()
    leases: list[pawlock.Lease] = []
    done = threading.Event()

    def second() -> None:
        lease = lock.acquire()
        leases.append(lease)
        lease.lost.wait(20)
        done.wait(20)

    with started_threads(second):
        eventually(lambda: local_waiters(client), "the second sleeps")
        first.release()
        eventually(lambda: leases, "the second owns")
        assert leases[0]._record.hold is first._record.hold, "not handed over locally"
        valkey.command("DEL", "pawlock:passed on")
        eventually(lambda: told == [str(leases[0].fence)], "its owner is told, and nobody else")
        done.set()
    assert first.state == "released"
    assert leases[0].state == "lost"
    assert leases[0].fence > first.fence


# LOST is final


@pytest.mark.parametrize("api", ["threads", "asyncio"])
def test_a_good_renewal_that_comes_too_late_revives_nothing(valkey: Server, proxy: Proxy, api: str) -> None:
    """The server has renewed, and says so after the end of what its client knows."""
    log: list[str] = []

    def check(lease: pawlock.Lease | pawlock.AsyncLease, rule: Rule) -> None:
        before = lease.valid_until
        eventually(lambda: lease.state == "lost", "its end comes", 5)
        rule.release()
        time.sleep(0.3)
        assert (lease.state, lease.valid_until) == ("lost", before)
        log.append(outcome(lease.check))

    if api == "threads":
        with pawlock.connect(proxy.url, ttl=0.6) as client:
            lease = client.lock("late").acquire()
            rule = proxy.hold_reply(RENEW, times=None)
            rule.wait()
            assert holder_of(valkey, "late") == lease.token
            check(lease, rule)
            eventually(lambda: free(valkey, "late"), "a lost lease is left on the server")
    else:

        async def main() -> None:
            async with pawlock.connect_async(proxy.url, ttl=0.6) as client:
                lease = await client.lock("late").acquire()
                rule = proxy.hold_reply(RENEW, times=None)
                await asyncio.to_thread(rule.wait)
                await asyncio.to_thread(check, lease, rule)
                for _ in range(400):
                    if free(valkey, "late"):
                        break
                    await asyncio.sleep(0.01)
                assert free(valkey, "late")

        asyncio.run(main())
    assert log in (["LeaseLost:unreachable"], ["LeaseLost:expired"])


def test_a_lost_lease_is_lost_for_good_though_the_name_is_ours_again(
    client: pawlock.Client, valkey: Server
) -> None:
    lock = client.lock("anew", ttl=0.6)
    old = lock.acquire()
    valkey.command("DEL", "pawlock:anew")
    assert old.lost.wait(10)
    with lock as new:
        assert new.fence > old.fence
        assert old.state == "lost"
        assert outcome(old.release) == "NotHeld"
        new.check()
        new.extend(5)


def test_a_lease_that_a_check_in_another_thread_finds_expired(valkey: Server) -> None:
    """The body runs in a worker thread: the loss it finds is told in the loop's own thread."""
    told: list[int] = []

    async def on_lost(lease: pawlock.AsyncLease) -> None:
        told.append(threading.get_ident())
        await asyncio.sleep(0)

    def work(lease: pawlock.AsyncLease, blocked: threading.Event) -> str:
        blocked.wait(10)
        eventually(lambda: outcome(lease.check) != "done", "the worker hears of it")
        return outcome(lease.check)

    async def main() -> None:
        async with pawlock.connect_async(valkey.url, on_lost=on_lost) as client:
            for _ in range(3):
                blocked = threading.Event()
                with pytest.raises(pawlock.LeaseLost):
                    async with client.lock("worker", ttl=0.3, renew=False) as lease:
                        job = asyncio.create_task(asyncio.to_thread(work, lease, blocked))
                        await asyncio.sleep(0.05)
                        blocked.set()
                        time.sleep(0.6)  # noqa: ASYNC251 - the worker must find it first
                        await asyncio.sleep(10)
                assert (await job).startswith("LeaseLost")
            for _ in range(200):
                if len(told) == 3:
                    break
                await asyncio.sleep(0.01)
        assert told == [threading.get_ident()] * 3

    # The debug mode of asyncio refuses calls that are not safe from other threads.
    asyncio.run(main(), debug=True)


def test_a_callback_that_fails_or_hangs_hinders_nothing(
    client: pawlock.Client, valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    hang = threading.Event()
    callbacks: list[Callable[[Any], object]] = [lambda lease: 1 / 0, lambda lease: hang.wait(20)]
    leases = [client.lock(f"cb {n}", ttl=0.6, on_lost=cb).acquire() for n, cb in enumerate(callbacks)]
    healthy = client.lock("healthy", ttl=0.6).acquire()
    for n in range(2):
        valkey.command("DEL", f"pawlock:cb {n}")
    assert all(lease.lost.wait(10) for lease in leases)
    time.sleep(1.0)
    healthy.check()
    healthy.release()
    hang.set()
    assert any(r.levelno == logging.ERROR and "on_lost" in r.message for r in caplog.records)


def test_a_lease_outlived_by_its_loop_says_so(valkey: Server) -> None:
    async def main() -> pawlock.AsyncLease:
        return await pawlock.connect_async(valkey.url, ttl=0.4).lock("outlived").acquire()

    loop = asyncio.new_event_loop()
    lease = loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    transports = [lease._record.engine.runtime._mux._transport]  # type: ignore[attr-defined]
    for transport in transports:
        transport.close()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    eventually(lambda: lease.remaining() == 0, "its end comes", 5)
    assert outcome(lease.check) == "LeaseLost:expired"
    assert lease.state == "lost"
    assert not lease._record.hold.live, "nothing renews it, and its end warns of nothing"
