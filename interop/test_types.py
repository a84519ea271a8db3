"""A string and a hash under one key: whoever comes second is refused, and not a byte changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pawlock
from interop.conftest import pttl
from interop.kinds import KINDS, Kind
from interop.line import Driver
from tests.support.servers import Server

STRINGS = [kind for kind in KINDS.values() if not kind.hashed and kind.part]
HASHES = [kind for kind in KINDS.values() if kind.hashed]
RAISING = {"pyredislock", "bsm", "rueidis1", "spring", "springpub", "gowire", "nodewire"}
"""They say WRONGTYPE; the others take a hash for a lock that somebody has."""

Start = Callable[..., Driver]


@pytest.mark.parametrize("kind", STRINGS, ids=lambda kind: kind.name)
def test_a_library_of_strings_on_a_hash_of_redisson(kind: Kind, start: Start, server: Server) -> None:
    key = kind.prefix + "x"
    redisson, them = start("redisson"), start(kind.name)
    assert redisson.ask("try", key, 60_000)["ok"]
    before = server.command("DUMP", key)
    if kind.name == "rueidis":
        # Of its three keys, two are free: it needs no third.
        assert them.ask("try", key, 30_000)["ok"]
        assert them.ask("unlock", key)["ok"]
    else:
        refused = them.ask("try", key, 30_000)
        assert not refused["ok"]
        assert ("WRONGTYPE" in refused.get("error", "")) == (kind.name in RAISING)
    assert server.command("DUMP", key) == before
    assert pttl(server, key) <= 60_000
    assert redisson.ask("state", key)["state"] == "held"
    assert redisson.ask("unlock", key)["ok"]


@pytest.mark.parametrize("kind", HASHES, ids=lambda kind: kind.name)
def test_redisson_on_a_string(kind: Kind, start: Start, server: Server, client: pawlock.Client) -> None:
    them = start(kind.name)
    server.command("SET", "x", "a string of a stranger", "PX", "60000")
    before = server.command("DUMP", "x")
    refused = them.ask("try", "x", 90_000)
    assert not refused["ok"]
    assert "WRONGTYPE" in refused["error"]
    assert server.command("DUMP", "x") == before
    assert pttl(server, "x") <= 60_000
    server.command("DEL", "x")
    with client.lock("x", ttl=60.0) as lease:
        refused = them.ask("try", "x", 90_000)
        assert (refused["ok"], "WRONGTYPE" in refused["error"]) == (False, True)
        assert server.command("GET", "x") == lease.token.encode()
        lease.check()


@pytest.mark.parametrize("kind", HASHES, ids=lambda kind: kind.name)
def test_pawlock_on_a_hash_of_redisson(
    kind: Kind, start: Start, server: Server, client: pawlock.Client
) -> None:
    them = start(kind.name)
    assert them.ask("try", "x", 60_000)["ok"]
    before = server.command("DUMP", "x")
    of_two = kind.name in ("redisson-read", "redisson-write")
    told = "read-write lock .* cannot be shared" if of_two else r"use pawlock\.Key\.redisson\('x'\)"
    for attempt in (
        lambda: client.lock("x").try_acquire(),
        lambda: client.lock("x").acquire(timeout=1),
        lambda: client.rlock("x").acquire(timeout=1),
        lambda: client.multi_lock([pawlock.Key("x"), "other"]).acquire(timeout=1),
        lambda: client.force_release("x", reason="a test"),
    ):
        with pytest.raises(pawlock.WrongKey, match=told):
            attempt()
    assert server.command("DUMP", "x") == before
    assert pttl(server, "x") <= 60_000
    client.lock("other").acquire(timeout=0).release()
    assert them.ask("state", "x")["state"] == "held"
    assert them.ask("unlock", "x")["ok"]
    client.lock("x").acquire(timeout=0).release()
