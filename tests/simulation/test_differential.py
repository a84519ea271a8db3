"""The server in memory against real ones: the same calls, the same replies, the same keys afterwards.

The clock of both is the test's own, so that expiry is compared to the millisecond: see `tests/scripts/rig.py` for how
a real server is given one.
"""

# ruff: noqa: ANN401 - replies and contents of keys are of any type
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pawl.core.scripts import load
from pawl.testing.servers import Server
from pawl.testing.sim.lua import Interpreter
from pawl.testing.sim.store import Refused, Store, Unsupported, ZSet
from tests.scripts.rig import KEYS, PACKAGE, Rig, owner, token

STEPS = 50
QUICK = 150
FULL = int(os.environ.get("PAWL_DIFFERENTIAL_RUNS", "2600"))
"""Runs of 50 steps in the slow test: more than a hundred thousand steps."""

TOKENS = st.sampled_from([token(text) for text in "abcde"])
OWNERS = st.sampled_from([owner("x"), owner("y z")])
TTLS = st.sampled_from([1, 20, 100, 300, 1000, 30_000])
BLOCKS = st.sampled_from([0, 1, 17])
CHANNELS = st.sampled_from(["", "-", "ch:1", "ch 2"])
TOMBS = st.sampled_from([0, 0, 50, 5000])


class Memory:
    """The node in memory, with the methods of a rig that this test needs."""

    def __init__(self) -> None:
        self.mail: list[tuple[str, str]] = []
        self.store = Store(Random(1), self._publish)

    def _publish(self, channel: bytes, text: bytes) -> int:
        self.mail.append((channel.decode(), text.decode()))
        return 0

    def run(
        self, source: bytes, now_us: int, drift_us: int, keys: list[str], args: tuple[Any, ...], rid: str
    ) -> Any:
        names = [key.encode() for key in keys]
        self.store.begin(now_us, drift_us)
        words = [str(arg).encode() for arg in (*args, rid)]
        return _text(Interpreter.shared().run(source, self.store, names, words))

    def keys(self, now_ms: int) -> dict[str, tuple[int, Any]]:
        found: dict[str, tuple[int, Any]] = {}
        for key, value in self.store.data.items():
            expiry = self.store.expires.get(key, -1)
            if expiry < 0 or expiry > now_ms:
                found[key.decode()] = expiry, _plain(value)
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, ZSet):
        return [(member.decode(), value.scores[member]) for member in value.order()]
    return {field.decode(): text.decode() for field, text in value.items()}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_text(one) for one in value] if isinstance(value, list) else value


def _seen(kind: str, content: Any) -> Any:
    pairs = list(zip(content[::2], content[1::2], strict=False))
    if kind == "string":
        return content[0]
    return dict(pairs) if kind == "hash" else [(member, float(score)) for member, score in pairs]


class Both(RuleBasedStateMachine):
    """Every rule does the same to a real server and to the one in memory."""

    rig: Rig
    done = 0

    def __init__(self) -> None:
        super().__init__()
        self.rig.redis.flushall()
        self.rig.now_us = 4_000_000_000_000_000
        self.rig.drift_us = 0
        self.memory = Memory()

    def both(self, script: str, *args: Any, **tokens: str) -> None:
        Both.done += 1
        rig = self.rig
        if script != "inspect":
            args = (*args, rig.fence_ttl)
        keys = [rig.key(part, **tokens) for part in KEYS[script]]
        source = load(PACKAGE, script).source
        try:
            mine = self.memory.run(source, rig.now_us, rig.drift_us, keys, args, f"r{rig.requests + 1}")
        except Refused as refused:
            with pytest.raises(Exception, match=refused.args[0].split(" ")[0]):
                rig.run(script, args, **tokens)
            return
        real = rig.run(script, args, **tokens)
        assert (mine[0], *mine[2:]) == real, script

    @rule(tok=TOKENS, ttl=TTLS, ticket=TTLS, mode=st.sampled_from([0, 1, 1, 1, 2]), block=BLOCKS, channel=CHANNELS,
          room=st.sampled_from([1, 3, 100]))  # fmt: skip
    def acquire(
        self, tok: str, ttl: int, ticket: int, mode: int, block: int, channel: str, room: int
    ) -> None:
        self.both("acquire", tok, ttl, ticket, mode, block, channel, room, dead=tok)

    @rule(tok=TOKENS, ttl=TTLS, ticket=TTLS, channel=CHANNELS)
    def renew(self, tok: str, ttl: int, ticket: int, channel: str) -> None:
        self.both("renew", tok, ttl, ticket, channel)

    @rule(tok=TOKENS, ttl=TTLS, ticket=TTLS, channel=CHANNELS, others=st.lists(TOKENS, max_size=4))
    def beat(self, tok: str, ttl: int, ticket: int, channel: str, others: list[str]) -> None:
        self.both("beat", tok, ttl, ticket, channel, " ".join(others))

    @rule(tok=TOKENS, tomb=TOMBS, close=st.sampled_from([0, 0, 100]))
    def leave(self, tok: str, tomb: int, close: int) -> None:
        self.both("leave", tok, tomb, close, "", dead=tok)

    @rule(tok=TOKENS, tomb=TOMBS, close=st.sampled_from([0, 0, 100]), look=st.integers(0, 3),
          spent=st.lists(TOKENS, max_size=3))  # fmt: skip
    def leave_run(self, tok: str, tomb: int, close: int, look: int, spent: list[str]) -> None:
        self.both("leave", tok, tomb, close, " ".join((str(look), *spent)), dead=tok)

    @rule(old=TOKENS, tok=TOKENS, tomb=TOMBS, ttl=TTLS, ticket=TTLS, block=BLOCKS, channel=CHANNELS)
    def swap(self, old: str, tok: str, tomb: int, ttl: int, ticket: int, block: int, channel: str) -> None:
        self.both("swap", old, tomb, tok, ttl, ticket, block, channel, 100, dead_old=old, dead_new=tok)

    @rule(tok=TOKENS, block=BLOCKS)
    def more(self, tok: str, block: int) -> None:
        self.both("more", tok, block)

    @rule(old=TOKENS, tok=TOKENS, ttl=TTLS)
    def adopt(self, old: str, tok: str, ttl: int) -> None:
        self.both("adopt", tok, old, ttl, dead=tok)

    @rule(limit=st.sampled_from([0, 2, 100]))
    def inspect(self, limit: int) -> None:
        self.both("inspect", limit)

    @rule(tok=TOKENS, own=OWNERS, ttl=TTLS, ticket=TTLS, mode=st.sampled_from([0, 1, 1, 2]), channel=CHANNELS)
    def own_acquire(self, tok: str, own: str, ttl: int, ticket: int, mode: int, channel: str) -> None:
        self.both("own_acquire", tok, own, ttl, ticket, mode, 1, channel, 100, dead=tok)

    @rule(tok=TOKENS, own=OWNERS, ttl=TTLS, ticket=TTLS, channel=CHANNELS)
    def own_renew(self, tok: str, own: str, ttl: int, ticket: int, channel: str) -> None:
        self.both("own_renew", tok, own, ttl, ticket, channel)

    @rule(tok=TOKENS, own=OWNERS, tomb=TOMBS, close=st.sampled_from([0, 0, 100]))
    def own_leave(self, tok: str, own: str, tomb: int, close: int) -> None:
        self.both("own_leave", tok, own, tomb, close, dead=tok)

    @rule(us=st.sampled_from([0, 1, 999, 1000, 19_000, 20_000, 99_999, 300_000, 1_000_000, 40_000_000]))
    def time_passes(self, us: int) -> None:
        self.rig.now_us += us

    @rule(us=st.sampled_from([1000, 150_000]))
    def the_clock_is_set_back(self, us: int) -> None:
        # What has ended on either is gone from both: when a server notices is its own affair.
        ended = {key for key, (_, expiry, _content) in self.rig.raw().items() if 0 <= expiry <= self.rig.now}
        ended |= {key.decode() for key, expiry in self.memory.store.expires.items() if expiry <= self.rig.now}
        for key in ended:
            self.rig.redis.delete(key)
            self.memory.store.drop(key.encode())
        self.rig.now_us -= us

    @rule(us=st.sampled_from([0, 400, 2500]))
    def time_moves_within_scripts(self, us: int) -> None:
        self.rig.drift_us = us

    @rule(part=st.sampled_from(["name", "fence", "queue", "tickets", "holds"]))
    def a_key_is_evicted(self, part: str) -> None:
        key = self.rig.key(part)
        self.rig.redis.delete(key)
        self.memory.store.drop(key.encode())

    @rule(part=st.sampled_from(["fence", "queue", "tickets", "holds"]))
    def a_key_holds_something_else(self, part: str) -> None:
        key, expiry = self.rig.key(part), self.rig.now + 50
        self.rig.redis.set(key, "else", pxat=expiry)
        self.memory.store.begin(self.rig.now_us)
        Interpreter.shared().command(
            self.memory.store, b"SET", key.encode(), b"else", b"PXAT", b"%d" % expiry
        )

    @invariant()
    def the_keys_are_the_same(self) -> None:
        now = self.rig.now
        real = {
            key: (expiry, _seen(kind, content))
            for key, (kind, expiry, content) in self.rig.raw().items()
            if expiry < 0 or expiry > now
        }
        # What ends in this very millisecond is not compared: a real server whose own clock is elsewhere keeps it even
        # where PEXPIREAT would delete it.
        assert self.memory.keys(now) == real


@pytest.fixture
def rig(server: Server) -> Iterator[Rig]:
    found = Rig(server.socket_path)
    if not found.can_move_the_clock():
        found.close()
        pytest.skip("a clock that the test moves needs a server with PEXPIRETIME (Redis 7.0, Valkey)")
    yield found
    found.close()


def _compare(rig: Rig, runs: int) -> int:
    class Machine(Both):
        pass

    Machine.rig = rig
    Both.done = 0
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=runs, stateful_step_count=STEPS, deadline=None, derandomize=runs == QUICK, database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    return Both.done


def test_both_do_the_same(rig: Rig) -> None:
    assert _compare(rig, QUICK) > 2000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_both_do_the_same_for_long(rig: Rig) -> None:
    assert _compare(rig, FULL) > 20 * FULL


def test_every_command_of_the_mutex_is_known() -> None:
    asked = {
        command.encode()
        for script in KEYS
        for command in re.findall(r"call\('([A-Z]+)'", load(PACKAGE, script).source.decode())
    }
    assert asked <= Interpreter.shared().commands


def test_what_the_node_does_not_know_fails_loudly() -> None:
    memory = Memory()
    for text in ("redis.call('GEOADD', KEYS[1], 1, 1, 'a')", "redis.call('GET', 'undeclared')"):
        with pytest.raises(Unsupported):
            memory.run(text.encode(), 1, 0, ["k"], (), "1")
    with pytest.raises(Refused, match="global"):
        memory.run(b"leaked = 1", 1, 0, ["k"], (), "1")
