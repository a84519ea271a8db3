"""The scripts of a key that is shared with Redisson, on a real server: what they write, tell and refuse. Nobody queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import redis

from pawlock.core.scripts import load
from tests.support.refusal import case
from tests.support.servers import Server
from tests.unit.scripts.rig import KEYS, Reply, Rig, token

JAVA = "6f1c1f06-9d6e-4a3f-8f0b-0d5f5a1c2b3d:31"
CHANNEL = "redisson_lock__channel:{n}"
FAIR = "redisson_lock_queue:{n}"
COUNTER = "redisson_lock_token:{n}"
TELL = ("leave", "force")
A, B, C = token("a"), token("b"), token("c")


class Redisson(Rig):
    """The rig for the scripts of that wire."""

    keys: Mapping[str, tuple[str, ...]] = {
        **{name: KEYS[name] for name in ("acquire", "renew", "leave", "adopt", "inspect")},
        "peek": KEYS["inspect"],
        "force": KEYS["leave"],
    }

    def __init__(self, path: str) -> None:
        super().__init__(path, own_clock=False)
        self.fenced = False
        self.sha = {
            name: self.redis.script_load(load(self.of(name), name, "redisson").source.decode())
            for name in self.keys
        }

    def of(self, script: str) -> str:
        return "pawlock.primitives.key" if script in TELL else self.package

    def run(self, script: str, args: tuple[Any, ...], name: str = "n", **tokens: str) -> Reply:
        keys = [self.key(part, name, **tokens) for part in self.keys[script]]
        keys.append(COUNTER if self.fenced else keys[1])
        if script in TELL:
            keys[-1:-1] = [FAIR]
            args = ("publish", CHANNEL, "0", *args)
        return self.run_on(script, keys, args)

    def java(self, count: int = 1, ttl: int = 60_000, field: str = JAVA) -> None:
        """What an RLock leaves under the key."""
        self.redis.hset("n", field, count)
        self.redis.pexpire("n", ttl)

    def hash(self) -> dict[str, str]:
        found: dict[str, str] = self.redis.hgetall("n")
        return found

    def record(self) -> dict[str, str]:
        found: dict[str, str] = self.redis.hgetall("{n}:fence")
        return found

    def force(self, value: str, tomb: int = 0) -> Reply:
        return self.run("force", (value, tomb, "", self.fence_ttl), dead=value)


@pytest.fixture
def rig(server: Server) -> Iterator[Redisson]:
    found = Redisson(server.socket_path)
    yield found
    found.close()


class Ear:
    """Listens to all channels of Redisson."""

    def __init__(self, rig: Rig) -> None:
        self.redis = rig.redis
        self.found = rig.redis.pubsub()
        self.found.psubscribe("redisson_lock__channel*")
        self.found.get_message(timeout=5)

    def heard(self) -> list[tuple[str, str]]:
        """Channel and message of each, since the last look."""
        messages: list[tuple[str, str]] = []
        self.redis.publish("redisson_lock__channel", "end")
        while (one := self.found.get_message(timeout=5)) is not None and one["data"] != "end":
            messages.append((one["channel"], one["data"]))
        return messages


@pytest.fixture
def ear(rig: Redisson) -> Iterator[Ear]:
    found = Ear(rig)
    yield found
    found.found.close()


def pttl(rig: Rig, key: str) -> int:
    left: int = rig.redis.pttl(key)
    return left


def test_a_grant_is_a_hash_of_one_field(rig: Redisson) -> None:
    granted = rig.acquire(A, 5000)
    assert granted[0] == "H"
    assert rig.hash() == {A: "1"}
    assert 4000 < pttl(rig, "n") <= 5000
    assert rig.record()["cur"] == str(granted[1])
    assert rig.acquire(A, 5000)[:2] == granted[:2], "a resent request has the same answer"
    assert rig.hash() == {A: "1"}


def test_a_renewal_only_raises(rig: Redisson) -> None:
    rig.acquire(A, 60_000)
    assert rig.renew(A, 5000)[0] == "H"
    assert pttl(rig, "n") > 55_000
    assert rig.renew(A, 90_000)[0] == "H"
    assert pttl(rig, "n") > 85_000
    assert rig.renew(B)[:2] == ("U", "other")


def test_a_release_deletes_and_tells(rig: Redisson, ear: Ear) -> None:
    rig.acquire(A)
    assert ear.heard() == []
    assert rig.leave(A) == ("R",)
    assert rig.redis.exists("n") == 0
    assert ear.heard() == [(CHANNEL, "0")]
    assert rig.leave(A) == ("A", "none", 0)
    assert ear.heard() == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_lock_of_java_is_a_foreign_holder(rig: Redisson, ear: Ear, count: int) -> None:
    rig.java(count)
    before = rig.redis.dump("n")
    busy = rig.acquire(A, mode=0)
    assert (busy[0], busy[2], busy[3]) == ("B", 1, "")
    assert 50_000 < busy[1] <= 60_000
    assert rig.renew(B)[0] == "U"
    assert rig.leave(A) == ("A", "foreign", 0)
    assert rig.inspect()[6] == 1
    assert (rig.redis.dump("n"), ear.heard()) == (before, [])


def test_the_first_fair_waiter_is_told_on_its_own_channel(rig: Redisson, ear: Ear) -> None:
    rig.redis.rpush(FAIR, JAVA, "another:2")
    rig.acquire(A)
    rig.leave(A)
    assert ear.heard() == [(CHANNEL, "0"), (f"{CHANNEL}:{JAVA}", "0")]
    assert rig.redis.lrange(FAIR, 0, -1) == [JAVA, "another:2"]


def test_a_queue_of_another_type_stops_no_release(rig: Redisson, ear: Ear) -> None:
    rig.acquire(A)
    rig.redis.set(FAIR, "text")
    assert rig.leave(A) == ("R",)
    assert ear.heard() == [(CHANNEL, "0")]


def test_what_stays_closed_is_told_since_it_ends_sooner(rig: Redisson, ear: Ear) -> None:
    rig.acquire(A, 60_000)
    assert rig.leave(A, close=300) == ("R",)
    assert rig.hash() == {"closed@min_hold": "1"}
    assert pttl(rig, "n") <= 300
    assert ear.heard() == [(CHANNEL, "0")]
    assert rig.acquire(B, mode=0)[0] == "B"


SHAPES: dict[str, list[tuple[str, ...]]] = {
    "a read-write lock": [("HSET", "n", "mode", "write", f"{JAVA}:write", "1")],
    "a read lock": [("HSET", "n", "mode", "read")],
    "two fields": [("HSET", "n", JAVA, "1", "another:1", "1")],
    "many fields": [("HSET", "n", *(str(i) for i in range(200)))],
    "a value that is no number": [("HSET", "n", JAVA, "one")],
    "a count of nothing": [("HSET", "n", JAVA, "0")],
    "a field that names nobody": [("HSET", "n", "hits", "7")],
    "a string": [("SET", "n", "x" * 22 + "@host:1/a")],
    "a list": [("RPUSH", "n", "a")],
    "a set": [("SADD", "n", "a")],
    "a sorted set": [("ZADD", "n", "1", "a")],
    "a stream": [("XADD", "n", "*", "a", "b")],
}


def test_any_other_shape_is_refused_untouched(rig: Redisson, ear: Ear) -> None:
    for shape, commands in SHAPES.items():
        with case(shape):
            rig.redis.flushall()
            for command in commands:
                rig.redis.execute_command(*command)
            rig.redis.pexpire("n", 60_000)
            raw = redis.Redis(unix_socket_path=rig.redis.connection_pool.connection_kwargs["path"])
            before = raw.dump("n")
            attempts = [
                lambda: rig.acquire(A, mode=0),
                lambda: rig.renew(A),
                lambda: rig.leave(A, tomb=1000),
                lambda: rig.run("adopt", (A, B, 1000, rig.fence_ttl), dead=A),
                rig.inspect,
                lambda: rig.run("peek", ()),
                lambda: rig.force(A),
            ]
            for attempt in attempts:
                told = "read-write lock" if "read" in shape else ""
                with pytest.raises(redis.ResponseError, match=f"WRONGTYPE.*{told}"):
                    attempt()
            assert raw.dump("n") == before
            raw.close()
            assert pttl(rig, "n") > 50_000
            assert [key for key in rig.redis.keys("*") if key != "n"] == []
            assert ear.heard() == []


def test_force_takes_a_lock_of_java(rig: Redisson, ear: Ear) -> None:
    rig.java(count=2)
    assert rig.run("peek", ())[2] == [JAVA, ""]
    assert rig.force("another:1", 1000)[0] == "A"
    assert rig.hash() == {JAVA: "2"}
    assert rig.force(JAVA, 1000)[0] == "R"
    assert rig.hash() == {}
    assert ear.heard() == [(CHANNEL, "0")]
    assert rig.force(JAVA, 1000)[0] == "R", "a resent request"


def test_a_new_token_takes_the_place_of_the_old(rig: Redisson, ear: Ear) -> None:
    rig.acquire(A, 60_000)
    assert rig.run("adopt", (B, A, 9000, rig.fence_ttl), dead=B)[0] == "H"
    assert rig.hash() == {B: "1"}
    assert pttl(rig, "n") <= 9000
    assert ear.heard() == []


# Fences -----------------------------------------------------------------------------------------------------------


def test_one_counter_rises_over_both_sides(rig: Redisson) -> None:
    rig.fenced = True
    rig.redis.set(COUNTER, 41)
    seen: list[int] = []
    for round_ in range(3):
        seen.append(rig.acquire(A, block=7)[1])
        assert rig.redis.get(COUNTER) == str(seen[-1] + 6), "the whole block is of this lease"
        rig.leave(A)
        seen.append(rig.redis.incr(COUNTER))  # what a lock of RFencedLock does
        if round_ == 1:
            rig.redis.delete("{n}:fence")
    assert seen == sorted(set(seen))
    ahead = seen[-1] + 10**9
    rig.redis.set(COUNTER, ahead)
    assert rig.acquire(B)[1] == ahead + 1, "and where the counter is ahead of the clock"
    rig.leave(B)
    assert rig.redis.get(COUNTER) == str(ahead + 1)
    rig.redis.incr(COUNTER)
    assert rig.acquire(B)[1] == ahead + 3, "by one only"
    rig.leave(B)
    assert pttl(rig, COUNTER) == -1, "Redisson's own key lives as it wants"


def test_a_lock_without_fences_leaves_the_counter_alone(rig: Redisson) -> None:
    rig.redis.set(COUNTER, "41")
    rig.acquire(A)
    assert rig.redis.get(COUNTER) == "41"


def test_a_counter_that_is_none_is_refused(rig: Redisson) -> None:
    rig.fenced = True
    for value in ("-1", "many", "1" * 18, ""):
        rig.redis.set(COUNTER, value)
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            rig.acquire(A)
        assert (rig.hash(), rig.redis.get(COUNTER)) == ({}, value)


# Memory -------------------------------------------------------------------------------------------------------------


def test_a_server_without_memory(rig: Redisson, ear: Ear) -> None:
    rig.acquire(A, 60_000)
    try:
        rig.redis.config_set("maxmemory", 1)
        assert rig.renew(A, 90_000)[0] == "H"
        assert rig.leave(A, tomb=1000) == ("R",)
        assert (rig.hash(), ear.heard()) == ({}, [(CHANNEL, "0")])
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            rig.acquire(C)
        assert rig.hash() == {}
        assert rig.record().get("cur") is not None
    finally:
        rig.redis.config_set("maxmemory", 0)
