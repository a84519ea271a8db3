"""``pawlock.Key.redisson`` and the real Redisson, 4.7 and 3.52, on one lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import pawlock
from interop import kills, wake
from interop.conftest import Start, pttl, wanted
from interop.counting import count
from interop.kinds import KINDS, Kind
from interop.line import Driver
from tests.support.groups import ClusterGroup
from tests.support.pace import pace
from tests.support.servers import Server

LOCKS = [kind for kind in KINDS.values() if kind.hashed and not kind.name.endswith(("-read", "-write"))]
TOLD = [kind for kind in LOCKS if kind.subscribes]
every = pytest.mark.parametrize("kind", LOCKS, ids=lambda kind: kind.name)


def key_for(kind: Kind) -> pawlock.Key:
    return pawlock.Key.redisson("x", fenced="fenced" in kind.name)


@every
def test_each_keeps_the_other_out(kind: Kind, start: Start, client: pawlock.Client, server: Server) -> None:
    them, key = start(kind.name), key_for(kind)
    assert them.ask("try", "x", 60_000)["ok"]
    before = server.command("DUMP", "x")
    assert client.lock(key).try_acquire() is None
    with pytest.raises(pawlock.AcquireTimeout):
        client.rlock(key).acquire(timeout=0.3)
    info = client.inspect(key)
    assert (info.held, info.foreign, info.holder, info.fence) == (True, True, "", None)
    assert server.command("DUMP", "x") == before
    assert them.ask("state", "x")["state"] == "held"
    assert them.ask("unlock", "x")["ok"]
    with client.lock(key, ttl=60.0) as lease:
        before = server.command("DUMP", "x")
        assert not them.ask("try", "x", 60_000)["ok"]
        assert them.ask("locked", "x")["ok"]
        refused = them.ask("unlock", "x")
        assert not refused["ok"]
        assert "IllegalMonitorState" in refused["error"]
        assert server.command("DUMP", "x") == before
        lease.check()
    assert them.ask("try", "x", 60_000)["ok"]
    assert them.ask("unlock", "x")["ok"]


@every
def test_pawlocks_waiter_has_it_after_their_unlock(kind: Kind, start: Start, client: pawlock.Client) -> None:
    them, found = start(kind.name), list[pawlock.Lease]()
    assert them.ask("try", "x", 120_000)["ok"]
    waiter = threading.Thread(
        target=lambda: found.append(client.lock(key_for(kind)).acquire(timeout=60 * pace()))
    )
    waiter.start()
    # It asks again and again, and stands in no queue.
    waiter.join(0.5)
    assert waiter.is_alive()
    assert not found
    assert them.ask("unlock", "x")["ok"]
    waiter.join()
    # Its key would have kept pawlock out for two minutes.
    found[0].release()


@every
def test_their_waiter_has_it_after_pawlocks_release(kind: Kind, start: Start, client: pawlock.Client) -> None:
    them = start(kind.name)
    with client.lock(key_for(kind), ttl=120.0) as lease:
        them.send("lock", "x", 10_000, -1)
        assert them.silent(0.5)
        lease.check()
    # It sleeps for as long as pawlock's key would have lived, or until it is told.
    assert them.reply(30 * pace())["ok"]
    assert client.lock(key_for(kind)).try_acquire() is None


@pytest.mark.parametrize("kind", TOLD, ids=lambda kind: kind.name)
def test_their_waiter_hears_of_the_end_of_min_hold(kind: Kind, start: Start, client: pawlock.Client) -> None:
    them = start(kind.name)
    with client.lock(key_for(kind), ttl=120.0, min_hold=1.0):
        them.send("lock", "x", 10_000, -1)
        assert them.silent(0.3)
    assert them.reply(30 * pace())["ok"]


def test_a_lock_that_java_entered_twice_is_held_until_it_left_twice(
    start: Start, client: pawlock.Client, server: Server
) -> None:
    them, key = start("redisson"), pawlock.Key.redisson("x")
    for _ in range(2):
        assert them.ask("try", "x", 60_000)["ok"]
    assert server.command("HVALS", "x") == [b"2"]
    assert them.ask("unlock", "x")["ok"]
    assert client.lock(key).try_acquire() is None
    assert them.ask("unlock", "x")["ok"]
    client.lock(key).acquire(timeout=0).release()


def test_its_watchdog_keeps_pawlock_out(start: Start, client: pawlock.Client, server: Server) -> None:
    them = start("redisson", JAVA_TOOL_OPTIONS="-Dwatchdog=1500")
    assert them.ask("try", "x", 0)["ok"]
    with pytest.raises(pawlock.AcquireTimeout):
        client.lock(pawlock.Key.redisson("x")).acquire(timeout=3)
    assert 0 < pttl(server, "x") <= 1500
    assert them.ask("unlock", "x")["ok"]


def test_either_takes_the_others_by_force(start: Start, client: pawlock.Client) -> None:
    them, key = start("redisson"), pawlock.Key.redisson("x")
    lease = client.lock(key, ttl=1.0).acquire()
    assert them.ask("force", "x")["ok"]
    assert lease.lost.wait(10 * pace())
    assert them.ask("try", "x", 60_000)["ok"]
    forced = client.force_release(key, reason="a test")
    assert (forced.count, forced.holder) == (1, "")
    assert "IllegalMonitorState" in them.ask("unlock", "x")["error"]


def test_fences_rise_over_both(start: Start, client: pawlock.Client) -> None:
    them, key, seen = start("redisson-fenced"), pawlock.Key.redisson("x", fenced=True), list[int]()
    for _ in range(3):
        seen.append(them.ask("try", "x", 60_000)["fence"])
        assert them.ask("unlock", "x")["ok"]
        with client.lock(key) as lease:
            seen.append(lease.fence)
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("name", ["redisson-read", "redisson-write"])
def test_a_read_write_lock_is_refused(
    name: str, start: Start, client: pawlock.Client, server: Server
) -> None:
    them, key = start(name), pawlock.Key.redisson("x")
    assert them.ask("try", "x", 60_000)["ok"]
    before = server.command("DUMP", "x")
    for attempt in (
        lambda: client.lock(key).try_acquire(),
        lambda: client.rlock(key).acquire(timeout=1),
        lambda: client.multi_lock([key, "other"]).acquire(timeout=1),
        lambda: client.inspect(key),
        lambda: client.force_release(key, reason="a test"),
    ):
        with pytest.raises(pawlock.WrongKey, match="Redisson read-write lock"):
            attempt()
    assert server.command("DUMP", "x") == before
    client.lock("other").acquire(timeout=0).release()
    assert them.ask("unlock", "x")["ok"]


def test_a_read_write_lock_enters_beside_pawlock_as_beside_its_own(
    start: Start, client: pawlock.Client
) -> None:
    """Redisson lets both in, whoever has the lock: see test_unsafe."""
    them = start("redisson-write")
    with client.lock(pawlock.Key.redisson("x"), on_exit="warn"):
        assert them.ask("try", "x", 60_000)["ok"]


@every
def test_they_share_a_counter(kind: Kind, valkey: Server) -> None:
    wanted(kind.name)
    valkey.command("FLUSHALL")
    verdict = count(valkey.url, [KINDS["pawlock"], KINDS["pawlock-asyncio"], kind, kind], 2.0, ttl=10.0)
    assert verdict.safe, verdict.as_json()
    assert [part.errors for part in verdict.parts] == [[]] * 4
    assert sum(len(part.grants) for part in verdict.parts) > 20


def test_processes_that_are_killed_leave_nothing_to_two(valkey: Server) -> None:
    wanted("redisson", "redisson3")
    valkey.command("FLUSHALL")
    kinds = [KINDS[name] for name in ("pawlock", "pawlock-asyncio", "redisson", "redisson3")]
    verdict, done = kills.run(valkey.url, kinds, 10.0, 1.0, 0.02, "7")
    assert verdict.safe, verdict.as_json()
    assert done.killed.total() > 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterGroup]:
    with ClusterGroup() as group:
        yield group


def test_in_a_cluster_they_share_a_counter(cluster: ClusterGroup, valkey: Server) -> None:
    wanted("redisson")
    kinds = [KINDS[name] for name in ("pawlock", "pawlock-asyncio", "redisson", "redisson")]
    verdict = count(cluster.url, kinds, 3.0, ttl=10.0, counter_at=valkey.url)
    assert verdict.safe, verdict.as_json()
    assert [part.errors for part in verdict.parts] == [[]] * 4


def test_in_a_cluster_their_waiter_is_told(cluster: ClusterGroup) -> None:
    wanted("redisson")
    with Driver(KINDS["redisson"], cluster.url).ready() as them, pawlock.connect(cluster.url) as client:
        for name in ("x", "order:42", "{a}b"):
            with client.lock(pawlock.Key.redisson(name), ttl=120.0):
                them.send("lock", name, 10_000, -1)
                assert them.silent(0.5)
            assert them.reply(30 * pace())["ok"]
            assert them.ask("unlock", name)["ok"]


def test_how_soon_each_is_woken(valkey: Server) -> None:
    wanted("redisson")
    pawlocks, them = KINDS["pawlock"], KINDS["redisson"]
    for holder, waiter in ((them, pawlocks), (pawlocks, them)):
        valkey.command("FLUSHALL")
        found = wake.summary(wake.measure(valkey.url, holder, waiter, 3))
        assert (found["n"], found["p95_ms"] is None) == (3, False)
