"""pawlock and the locks of other libraries, driven for real, on one key: exclusion, waiting, late releases, a counter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import isinf

import pytest

import pawlock
from interop import kills, wake
from interop.conftest import pttl, wanted
from interop.counting import chosen, count
from interop.kinds import KINDS, Kind
from interop.line import Driver
from tests.support.pace import pace
from tests.support.servers import Server

SHARING = [
    k
    for k in KINDS.values()
    if k.part and not k.hashed and not k.queues and k.name not in ("rueidis", "redsync-setnx")
]
"""Those that lock one key with a string; the others have tests of their own."""

Start = Callable[..., Driver]

every = pytest.mark.parametrize("kind", SHARING, ids=lambda kind: kind.name)


@every
def test_each_keeps_the_other_out(kind: Kind, start: Start, client: pawlock.Client, server: Server) -> None:
    them, key = start(kind.name), kind.prefix + "x"
    assert them.ask("try", key, 10_000)["ok"]
    value = server.command("GET", key)
    assert client.lock(key).try_acquire() is None
    info = client.inspect(key)
    assert (info.held, info.foreign, info.holder, info.fence, info.since) == (True, True, "", None, None)
    assert (server.command("GET", key), pttl(server, key) > 0) == (value, True)
    assert them.ask("unlock", key)["ok"]
    with client.lock(key).acquire(timeout=0) as lease:
        refused = them.ask("try", key, 10_000)
        assert (refused["ok"], "error" in refused) == (False, False)
        assert server.command("GET", key) == lease.token.encode()
        lease.check()
    assert them.ask("try", key, 10_000)["ok"]


@every
def test_pawlocks_waiter_has_it_after_their_release(kind: Kind, start: Start, client: pawlock.Client) -> None:
    them, key = start(kind.name), kind.prefix + "x"
    assert them.ask("try", key, 60_000)["ok"]
    found: list[pawlock.Lease] = []
    waiter = threading.Thread(target=lambda: found.append(client.lock(key).acquire(timeout=20)))
    waiter.start()
    while not client.inspect(key).queue_length:
        time.sleep(0.005)
    assert not found
    assert them.ask("unlock", key)["ok"]
    waiter.join()
    # Its key would have kept pawlock out for a minute.
    found[0].release()


@pytest.mark.parametrize("kind", [k for k in SHARING if not isinf(k.period)], ids=lambda kind: kind.name)
def test_their_waiter_has_it_after_pawlocks_release(kind: Kind, start: Start, client: pawlock.Client) -> None:
    them, key = start(kind.name), kind.prefix + "x"
    with client.lock(key, ttl=60.0) as lease:
        them.send("lock", key, 10_000, 20_000 * round(pace()))
        assert them.silent(0.3)
        lease.check()
    # Held by pawlock's key for a minute, if that were not gone.
    assert them.reply(30 * pace())["ok"]
    assert client.lock(key).try_acquire() is None


@pytest.mark.parametrize("kind", [k for k in SHARING if k.asks], ids=lambda kind: kind.name)
def test_a_late_release_and_extension_touch_nothing_of_pawlocks(
    kind: Kind, start: Start, client: pawlock.Client, server: Server
) -> None:
    them, key = start(kind.name), kind.prefix + "x"
    assert them.ask("try", key, 10_000)["ok"]
    server.command("DEL", key)  # what its expiry does
    with client.lock(key, ttl=5.0, renew=False).acquire(timeout=0) as lease:
        if kind.extends:
            assert not them.ask("extend", key, 60_000)["ok"]
            assert pttl(server, key) <= 5000
        them.ask("unlock", key)
        assert server.command("GET", key) == lease.token.encode()
        lease.check()


@every
def test_a_late_release_and_extension_of_pawlock_touch_nothing_of_theirs(
    kind: Kind, start: Start, client: pawlock.Client, server: Server
) -> None:
    them, key = start(kind.name), kind.prefix + "x"
    lease = client.lock(key, renew=False).acquire()
    server.command("DEL", key)
    assert them.ask("try", key, 10_000)["ok"]
    before, left = server.command("GET", key), pttl(server, key)
    with pytest.raises(pawlock.NotHeld):
        lease.extend(3600)
    with pytest.raises(pawlock.NotHeld):
        lease.release()
    assert (server.command("GET", key), pttl(server, key) <= left) == (before, True)
    assert them.ask("unlock", key)["ok"]


@every
def test_its_driver_says_what_the_library_knows(kind: Kind, start: Start, server: Server) -> None:
    them, key = start(kind.name), kind.prefix + "x"
    assert them.ask("try", key, 10_000)["ok"]
    assert them.ask("state", key)["state"] in ("held", "unknown")
    if kind.extends and kind.settable:
        assert them.ask("extend", key, 30_000)["ok"]
    elif not kind.extends:
        assert them.ask("extend", key, 30_000)["error"] == "unsupported"
    assert them.ask("unlock", key)["ok"]
    assert server.command("EXISTS", key) == 0
    assert them.ask("nonsense", key) | {"t0": 0, "t": 0} == {
        "ok": False,
        "error": "unsupported",
        "t0": 0,
        "t": 0,
    }


@pytest.mark.parametrize("kind", [k for k in SHARING if k.asks], ids=lambda kind: kind.name)
def test_they_share_a_counter(kind: Kind, valkey: Server) -> None:
    """Two processes of each: nobody finds another inside, no update is lost, by pawlock's own history checker."""
    wanted(kind.name)
    valkey.command("FLUSHALL")
    # A hold that outlives each TTL on a machine that stands still would be no fault of a lock.
    verdict = count(valkey.url, [KINDS["pawlock"], KINDS["pawlock-asyncio"], kind, kind], 2.0, ttl=10.0)
    assert verdict.safe, verdict.as_json()
    assert [part.errors for part in verdict.parts] == [[]] * 4
    assert sum(len(part.grants) for part in verdict.parts) > 20


MIXED = ["pawlock,pawlock-asyncio,redsync,redlock5", "pawlock,ioredis,retry-java", "pawlock,rueidis1"]


@pytest.mark.parametrize("mix", MIXED)
def test_processes_that_are_killed_leave_nothing_to_two(mix: str, valkey: Server) -> None:
    wanted(*mix.split(","))
    valkey.command("FLUSHALL")
    verdict, done = kills.run(valkey.url, chosen(mix), 8.0, 1.0, 0.02, "7")
    assert verdict.safe, verdict.as_json()
    assert done.killed.total() > 1


def test_how_soon_each_is_woken(valkey: Server) -> None:
    wanted("bsm", "springpub")
    pawlocks, bsm, sleeper = KINDS["pawlock"], KINDS["bsm"], KINDS["springpub"]
    for holder, waiter in ((bsm, pawlocks), (pawlocks, bsm), (sleeper, pawlocks)):
        valkey.command("FLUSHALL")
        found = wake.summary(wake.measure(valkey.url, holder, waiter, 3))
        assert (found["n"], found["p95_ms"] is None) == (3, False)
    assert wake.summary([1.0, None])["median_ms"] is None


def test_one_of_each_on_one_key(valkey: Server) -> None:
    strangers = "redis-py aioredlock redlock4 redlock5 ioredis sample-js redsync bsm sample-go retry-java"
    names = ["pawlock", *strangers.split()]
    wanted(*names)
    valkey.command("FLUSHALL")
    verdict = count(valkey.url, [KINDS[name] for name in names], 4.0, ttl=10.0)
    assert verdict.safe, verdict.as_json()
