"""From another library to pawlock without a moment in which nothing is protected: each two generations that run together.

Both count on one unprotected counter, two processes each; the history checker judges them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest

import pawlock
from interop.conftest import wanted
from interop.counting import count
from interop.kinds import KINDS
from interop.line import Driver
from tests.support.servers import Server

Start = Callable[..., Driver]

IN_PLACE = ("pawlock-key", "pawlock-both", "pawlock-name")
PATHS = {
    "redis-py": ("redis-py", *IN_PLACE),
    "node-redlock": ("redlock5", *IN_PLACE),
    "redsync": ("redsync", *IN_PLACE),
    "bsm/redislock": ("bsm", *IN_PLACE),
    "python-redis-lock": ("pyredislock", "pawlock-pyredislock", "pawlock-pyredislock-both", "pawlock-name"),
    "Spring, SPIN_LOCK": ("spring", "pawlock-spring", "pawlock-spring-both", "pawlock-name"),
    "Spring, PUB_SUB_LOCK": ("springpub", "pawlock-spring", "pawlock-spring-both", "pawlock-name"),
    "ShedLock": ("shedlock", "shedlock-safe", *IN_PLACE),
    "rueidislock": ("rueidis", "pawlock-rueidis", "pawlock-rueidis-both", "pawlock-name"),
    "rueidislock, KeyMajority 1": ("rueidis1", *IN_PLACE),
}  # fmt: skip
"""The generations of each path in their order; those that stand side by side run together for a while."""

with pawlock.connect("redis://127.0.0.1:1") as nobody, suppress(pawlock.NotSupported):
    nobody.lock(pawlock.Key.redisson("x"))
    PATHS["Redisson"] = ("redisson", "pawlock-redisson", "pawlock-redisson-both", "pawlock-name")

PAIRS = sorted({pair for path in PATHS.values() for pair in pairwise(path)})


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_generations_share_a_counter(pair: tuple[str, str], valkey: Server) -> None:
    wanted(*pair)
    valkey.command("FLUSHALL")
    old, new = (KINDS[name] for name in pair)
    # A hold that outlives its TTL on a machine that stands still would be no fault of a lock.
    verdict = count(valkey.url, [old, old, new, new], 3.0, ttl=10.0)
    assert verdict.safe, verdict.as_json()
    assert [part.errors for part in verdict.parts] == [[]] * 4
    for generation in (verdict.parts[:2], verdict.parts[2:]):
        assert sum(len(part.grants) for part in generation) > 0, verdict.as_json()


@pytest.mark.parametrize("old", ["redis-py", "redsync", "redlock5"])
def test_no_generation_may_be_left_out(old: str, start: Start) -> None:
    """The first and the last have nothing in common."""
    assert start(old).ask("try", "x", 10_000)["ok"]
    assert not start("pawlock-key").ask("try", "x", 10_000)["ok"]
    assert not start("pawlock-both").ask("try", "x", 10_000)["ok"]
    assert start("pawlock-name").ask("try", "x", 10_000)["ok"]


def test_all_three_keys_of_rueidislock_exclude_it(start: Start, server: Server) -> None:
    key = "rueidislock:0:x"
    them, ours = start("rueidis"), start("pawlock-rueidis")
    assert ours.ask("try", key, 10_000)["ok"]
    assert server.command("EXISTS", key, "rueidislock:1:x", "rueidislock:2:x") == 3
    assert not them.ask("try", key, 0)["ok"]
    assert ours.ask("unlock", key)["ok"]
    assert them.ask("try", key, 0)["ok"]
    assert not ours.ask("try", key, 10_000)["ok"]


def test_a_plain_key_and_a_key_of_redisson_are_never_held_together(start: Start, server: Server) -> None:
    """Not in place: each refuses the other's, so a plain lock that is to be Redisson's takes a new name."""
    ours, theirs = start("pawlock-key"), start("redisson")
    assert ours.ask("try", "x", 10_000)["ok"]
    assert "WRONGTYPE" in theirs.ask("try", "x", 10_000)["error"]
    assert ours.ask("unlock", "x")["ok"]
    assert theirs.ask("try", "x", 10_000)["ok"]
    assert "pawlock.Key.redisson('x')" in ours.ask("try", "x", 10_000)["error"]
    with pawlock.connect(server.url) as client, pytest.raises(pawlock.WrongKey):
        client.multi_lock([pawlock.Key("x"), "name"]).acquire(timeout=1)
