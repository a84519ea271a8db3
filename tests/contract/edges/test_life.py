"""The life of a lease on purpose: longer, shorter, limited, prolonged, kept closed; and nothing outlives a release."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

import pawlock
from tests.contract.edges.helpers import eventually, free, holder_of, outcome, started_threads
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.scripts import published
from tests.support.servers import Server

RENEW = published("mutex/renew").sha


def left_on_server(server: Server, name: str) -> float:
    left = server.command("PTTL", f"pawlock:{name}")
    assert isinstance(left, int)
    return left / 1000


# extend


def test_extend_sets_the_life_and_the_rhythm(client: pawlock.Client, valkey: Server) -> None:
    with client.lock("longer", ttl=5) as lease:
        lease.extend(100)
        assert 95 < lease.remaining() <= 99
        assert 95 < left_on_server(valkey, "longer") <= 100
        assert lease.ttl == 100
        lease.extend(100)
        assert lease.remaining() <= 99, "it adds"


def test_extend_to_less_shortens_for_the_owner_only(
    client: pawlock.Client, other: pawlock.Client, valkey: Server
) -> None:
    with client.lock("shorter", ttl=60) as lease:
        lease.extend(2)
        assert lease.remaining() <= 2
        assert left_on_server(valkey, "shorter") > 50
        # Renewed by the new rhythm, it goes on.
        time.sleep(2.3)
        lease.check()
        assert lease.remaining() <= 2
    # The release frees what the server kept for longer.
    with other.lock("shorter", timeout=0):
        pass


@pytest.mark.filterwarnings("ignore:lease of 'brief':ResourceWarning")
def test_without_renewal_the_shortened_lease_ends_early_and_frees_the_name(
    client: pawlock.Client, valkey: Server
) -> None:
    lease = client.lock("brief", ttl=60, renew=False).acquire()
    lease.extend(0.3)
    assert lease.lost.wait(5)
    eventually(lambda: free(valkey, "brief"), "a lost lease is left")


def test_extend_of_what_is_gone(client: pawlock.Client, valkey: Server) -> None:
    lease = client.lock("gone").acquire()
    valkey.command("DEL", "pawlock:gone")
    with pytest.raises(pawlock.NotHeld, match=r"extend 'gone'.*lost \(expired\)"):
        lease.extend(90)
    assert lease.state == "lost"
    with pytest.raises(pawlock.NotHeld):
        lease.extend(1)
    assert free(valkey, "gone"), "an extension must not bring a lost lease back"
    lease = client.lock("released").acquire()
    lease.release()
    with pytest.raises(pawlock.NotHeld, match="was released"):
        lease.extend(5)


def test_extend_when_an_administrator_gave_it_away(client: pawlock.Client, valkey: Server) -> None:
    lease = client.lock("given away").acquire()
    valkey.command("SET", "pawlock:given away", "admin@desk:1/sh", "PX", "20000")
    with pytest.raises(pawlock.NotHeld, match="taken"):
        lease.extend(90)
    assert holder_of(valkey, "given away") == "admin@desk:1/sh"
    assert outcome(lease.check) == "LeaseLost:taken"


async def test_extend_in_tasks(aclient: pawlock.AsyncClient, valkey: Server) -> None:
    async with aclient.lock("longer", ttl=5) as lease:
        await lease.extend(100)
        assert 95 < lease.remaining() <= 99
        await lease.extend(3)
        assert lease.remaining() <= 3
        assert left_on_server(valkey, "longer") > 90
    assert free(valkey, "longer")


# max_hold and beat


def test_max_hold_ends_the_lease_and_not_sooner(client: pawlock.Client, valkey: Server) -> None:
    began = time.monotonic()
    lease = client.lock("limited", ttl=60, max_hold=0.7).acquire()
    assert lease.remaining() <= 0.7
    assert lease.lost.wait(10)
    assert 0.65 <= time.monotonic() - began < pace() * 3
    assert outcome(lease.check) == "LeaseLost:max_hold"
    # Its owner was told first; the name is its own until it releases or the ttl is over.
    assert holder_of(valkey, "limited") == lease.token
    assert outcome(lease.release) == "NotHeld"
    eventually(lambda: free(valkey, "limited"), "leaving frees the name")


def test_max_hold_is_longer_than_the_ttl(client: pawlock.Client) -> None:
    began = time.monotonic()
    lease = client.lock("renewed until", ttl=0.6, max_hold=1.5).acquire()
    assert lease.lost.wait(10)
    assert 1.45 <= time.monotonic() - began < pace() * 4
    assert outcome(lease.check) == "LeaseLost:max_hold"


def test_beat_counts_anew(client: pawlock.Client) -> None:
    lease = client.lock("beaten", ttl=0.9, max_hold=0.6).acquire()
    for _ in range(15):
        time.sleep(0.1)
        lease.beat()
    began = time.monotonic()
    assert lease.lost.wait(10)
    assert 0.5 <= time.monotonic() - began < pace() * 3
    assert outcome(lease.beat) == "LeaseLost:max_hold"


def test_each_beat_costs_one_renewal_however_many_there_were(client: pawlock.Client) -> None:
    lease = client.lock("beaten", ttl=30, max_hold=2).acquire()
    for _ in range(100):
        time.sleep(0.01)
        lease.beat()
    assert client._engine.reports.counters["renewed"] <= 110
    lease.release()


def test_beating_one_lease_starves_no_other(client: pawlock.Client) -> None:
    """They share a rhythm; the one that is served all the time must not hold up those behind it."""
    beaten = client.lock("beaten", ttl=0.9, max_hold=60).acquire()
    others = [client.lock(f"other {n}", ttl=0.9).acquire() for n in range(5)]
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        beaten.beat()
        time.sleep(0.01)
    for lease in (beaten, *others):
        lease.check()
        lease.release()
    assert (
        client._engine.reports.counters["lost_expired"]
        == client._engine.reports.counters["lost_unreachable"]
        == 0
    )


def test_beat_without_a_limit_is_a_check(client: pawlock.Client) -> None:
    with client.lock("unlimited") as lease:
        lease.beat()
    assert outcome(lease.beat) == "LeaseLost:closed"


async def test_max_hold_in_tasks(aclient: pawlock.AsyncClient, valkey: Server) -> None:
    with pytest.raises(pawlock.LeaseLost) as caught:  # noqa: PT012
        async with aclient.lock("limited", ttl=60, max_hold=0.6) as lease:
            for _ in range(8):
                await asyncio.sleep(0.1)
                lease.beat()
            await asyncio.sleep(20)
    assert caught.value.reason == "max_hold"
    eventually(lambda: free(valkey, "limited"), "it is given back")


# min_hold


def test_min_hold_keeps_the_name_closed_for_everybody(
    client: pawlock.Client, other: pawlock.Client, valkey: Server
) -> None:
    """Also for the same client's waiters: nothing is handed over locally."""
    lock = client.lock("cron", min_hold=1.2, timeout=10)
    entered: list[float] = []

    def next_run() -> None:
        with lock:
            entered.append(time.monotonic())

    began = time.monotonic()
    lease = lock.acquire()
    with started_threads(next_run):
        eventually(lambda: client.inspect("cron").queue_length == 1, "the next one queues")
        lease.release()
        assert other.lock("cron").try_acquire() is None
        assert holder_of(valkey, "cron") == "closed@min_hold"
        assert not entered
    assert entered[0] - began >= 1.15


def test_min_hold_that_is_over_closes_nothing(client: pawlock.Client, valkey: Server) -> None:
    with client.lock("cron", min_hold=0.1):
        time.sleep(0.15)
    assert free(valkey, "cron")


def test_min_hold_and_the_end_of_the_client(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    client = pawlock.connect(valkey.url)
    lease = client.lock("cron kept", min_hold=30).acquire()
    client.close()
    assert lease.state == "lost"
    assert holder_of(valkey, "cron kept") == "closed@min_hold"
    assert 25 < left_on_server(valkey, "cron kept") <= 30.1


async def test_min_hold_in_tasks(aclient: pawlock.AsyncClient) -> None:
    lock = aclient.lock("cron", min_hold=0.6, timeout=10)
    began = time.monotonic()
    async with lock:
        pass
    async with lock:
        assert time.monotonic() - began >= 0.58


# Renewal and release


def test_a_renewal_never_outlives_a_release(client: pawlock.Client, valkey: Server) -> None:
    """Releases in the very instant of renewals: no name is held afterwards, none comes back."""
    locks = [client.lock(f"race {n}", ttl=0.15, on_exit="warn") for n in range(8)]
    for round_ in range(1000):
        leases = [lock.try_acquire() for lock in locks]
        # Renewals are due every 50 ms: release before, in and after that instant.
        time.sleep(0.044 + 0.0003 * (round_ % 40))
        said = ["none" if lease is None else outcome(lease.release) for lease in leases]
        for n in range(8):
            is_free = partial(free, valkey, f"race {n}")
            if said[n] == "done":
                assert is_free()
            else:
                # Lost, for its owner a little earlier than for the server: nobody releases that, it expires.
                eventually(is_free, f"it expires: {said[n]}", 1.0)
        if round_ >= 40 and client._engine.reports.counters["renewed"] > 20:
            return
    pytest.fail("no renewal was near a release")


def test_a_renewal_on_its_way_brings_nothing_back(valkey: Server) -> None:
    """The renewal's request is held by the network until the release is done; then it arrives."""
    valkey.command("FLUSHALL")
    with Proxy(valkey) as proxy, pawlock.connect(proxy.url, ttl=0.9) as client:
        lease = client.lock("ghost").acquire()
        rule = proxy.hold_request(RENEW)
        rule.wait()
        lease.release()
        assert free(valkey, "ghost")
        rule.release()
        time.sleep(0.2)
        assert free(valkey, "ghost")
        assert lease.state == "released"


@pytest.mark.slow
async def test_a_renewal_never_outlives_a_release_in_tasks(
    aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    async def work(n: int) -> None:
        for round_ in range(500):
            lease = await aclient.lock(f"race {n}", ttl=0.3).acquire(timeout=5)
            await asyncio.sleep(0.09 + 0.0008 * (round_ % 25))
            with contextlib.suppress(pawlock.NotHeld):  # lost: the loop was not served for a whole ttl
                await lease.release()
            assert free(valkey, f"race {n}")
            if round_ >= 25 and aclient._engine().reports.counters["renewed"] > 10:
                return
        pytest.fail("no renewal was near a release")

    await asyncio.gather(*[work(n) for n in range(4)])


def test_renew_off_lets_the_lease_run_out(client: pawlock.Client, other: pawlock.Client) -> None:
    lease = client.lock("once", ttl=0.6, renew=False).acquire()
    with other.lock("once", timeout=10):
        assert lease.state == "lost"
    assert outcome(lease.check) == "LeaseLost:expired"
    assert outcome(lease.release) == "NotHeld"


# A block that the garbage collector ends


class Circle:
    """Garbage that waits for the collector, with what it refers to."""

    def __init__(self) -> None:
        self.itself = self
        self.kept: object = None


@pytest.mark.filterwarnings("ignore:lease of 'n' was never released:ResourceWarning")
def test_a_block_in_a_generator_that_is_collected_frees_the_name(
    client: pawlock.Client, valkey: Server
) -> None:
    def work(lease: pawlock.Lease) -> Iterator[None]:
        with lease:
            try:
                yield
            finally:
                # The collector came to the lease first, and the maintenance has seen that it is gone.
                eventually(lambda: client._engine.reports.counters["abandoned"] == 1, "it is given up")

    circle = Circle()
    lease = client.lock("n", ttl=60).acquire()
    steps = work(lease)
    next(steps)
    circle.kept = steps
    del circle, lease, steps
    gc.collect()
    assert client._engine.reports.counters["abandoned"] == 1
    assert free(valkey, "n")


@pytest.mark.filterwarnings("ignore:lease of 'n' was never released:ResourceWarning")
async def test_a_block_in_an_asynchronous_generator_that_is_collected_frees_the_name(
    aclient: pawlock.AsyncClient, valkey: Server
) -> None:
    async def work(lease: pawlock.AsyncLease) -> AsyncIterator[None]:
        async with lease:
            try:
                yield
            finally:
                await asyncio.sleep(0.1)

    circle = Circle()
    lease = await aclient.lock("n", ttl=60).acquire()
    steps = work(lease)
    await anext(steps)
    circle.kept = steps
    del circle, lease, steps
    gc.collect()
    await asyncio.to_thread(eventually, lambda: free(valkey, "n"), "the name is free")
