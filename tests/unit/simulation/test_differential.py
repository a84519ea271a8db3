"""The server in memory against real ones: the same calls, the same replies, the same keys afterwards.

The clock of both is the test's own, so that expiry is compared to the millisecond: see `tests/unit/scripts/rig.py` for how
a real server is given one.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pawlock.core.scripts import load
from pawlock.testing.memory.lua import Interpreter
from pawlock.testing.memory.store import Refused, Store, Unsupported, ZSet
from tests.support.servers import Server
from tests.unit.scripts.permit_rig import PermitRig
from tests.unit.scripts.rig import Rig, token

STEPS = 50
MOMENT = 15
QUICK = 75
FULL = int(os.environ.get("PAWLOCK_DIFFERENTIAL_RUNS", "1300"))
"""Runs of 50 steps of each machine in the slow test: more than a hundred thousand steps in all."""

TOKENS = st.sampled_from([token(text) for text in "aaabbcde"])
TTLS = st.sampled_from([1, 20, 100, 300, 1000, 30_000])
BLOCKS = st.sampled_from([0, 1, 17])
CHANNELS = st.sampled_from(["", "-", "ch:1", "ch 2"])
TOMBS = st.sampled_from([0, 0, 50, 5000])
MODES = st.sampled_from(["1", "1", "2", "x"])


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
    """Every rule does the same to a real server and to the one in memory.

    Attributes:
        PARTS: The keys of a name that every script gets.
        ELSE: Those of them that may hold what is not pawlock's.
    """

    PARTS: tuple[str, ...]
    ELSE: tuple[str, ...]
    rig: Rig
    done: ClassVar[Counter[str]] = Counter()
    spoilt = False

    def __init__(self) -> None:
        super().__init__()
        self.rig.redis.flushall()
        self.rig.now_us = 4_000_000_000_000_000
        self.rig.drift_us = 0
        self.memory = Memory()

    def both(self, script: str, *args: Any, **tokens: str) -> None:
        rig = self.rig
        if script != "inspect":
            args = (*args, rig.fence_ttl)
        keys = [rig.key(part, **tokens) for part in rig.keys[script]]
        source = load(rig.package, script).source
        try:
            mine = self.memory.run(source, rig.now_us, rig.drift_us, keys, args, f"r{rig.requests + 1}")
        except Refused as refused:
            Both.done[f"{script} refused"] += 1
            with pytest.raises(Exception, match=refused.args[0].split(" ")[0]):
                rig.run(script, args, **tokens)
            return
        real = rig.run(script, args, **tokens)
        assert (mine[0], *mine[2:]) == real, script
        Both.done[f"{script} {real[0]}"] += 1

    @initialize(spoilt=st.booleans())
    def whether_keys_are_spoilt(self, *, spoilt: bool) -> None:
        # In the other half of the runs more comes to pass between the calls.
        self.spoilt = spoilt

    @rule(
        us=st.sampled_from([0, 1, 999, 1000, 19_000, 20_000, 99_999, 300_000, 1_000_000, 1, 1000, 40_000_000])
    )
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

    def look(self, most: int) -> None:
        """Look at who holds and who waits."""
        raise NotImplementedError

    @rule(us=st.sampled_from([0, 400, 2500]), most=st.sampled_from([0, 2, 100]))
    def time_moves_within_scripts(self, us: int, most: int) -> None:
        self.look(most)
        self.rig.drift_us = us
        self.look(most)

    @precondition(lambda self: self.spoilt)
    @rule(number=st.integers(0, 4))
    def a_key_is_evicted(self, number: int) -> None:
        key = self.rig.key(self.PARTS[number % len(self.PARTS)])
        self.rig.redis.delete(key)
        self.memory.store.drop(key.encode())

    @precondition(lambda self: self.spoilt)
    @rule(number=st.integers(0, 3))
    def a_key_holds_something_else(self, number: int) -> None:
        key, expiry = self.rig.key(self.ELSE[number % len(self.ELSE)]), self.rig.now + 50
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

    @invariant()
    def the_messages_are_the_same(self) -> None:
        mine = [(channel, text.split(" ")) for channel, text in self.memory.mail]
        self.memory.mail.clear()
        assert mine == self.rig.mail()


class BothMutexes(Both):
    """The scripts of the mutex."""

    PARTS = ("name", "fence", "queue", "tickets")
    ELSE = PARTS[1:]

    @rule(tok=TOKENS, ttl=TTLS, ticket=TTLS, mode=st.sampled_from([0, 1, 1, 1]), block=BLOCKS, channel=CHANNELS,
          room=st.sampled_from([1, 3, 100]))  # fmt: skip
    def acquire(
        self, tok: str, ttl: int, ticket: int, mode: int, block: int, channel: str, room: int
    ) -> None:
        self.both("acquire", tok, ttl, ticket, mode, block, channel, room, dead=tok)

    @rule(tok=TOKENS, ttl=TTLS, ticket=TTLS, channel=CHANNELS)
    def renew(self, tok: str, ttl: int, ticket: int, channel: str) -> None:
        self.both("renew", tok, ttl, ticket, channel)

    @rule(tok=TOKENS, tomb=TOMBS, close=st.sampled_from([0, 0, 100]))
    def leave(self, tok: str, tomb: int, close: int) -> None:
        self.both("leave", tok, tomb, close, dead=tok)

    @rule(old=TOKENS, tok=TOKENS, ttl=TTLS)
    def adopt(self, old: str, tok: str, ttl: int) -> None:
        self.both("adopt", tok, old, ttl, dead=tok)

    def look(self, most: int) -> None:
        self.both("inspect", most)


class BothPermits(Both):
    """The scripts of permits: in a run, either readers and writers, or permits by number."""

    PARTS = ("permits", "fence", "queue", "tickets", "holds")
    ELSE = PARTS[:4]
    permits = 0

    @initialize(permits=st.sampled_from([0, 0, 2, 5]))
    def of_what(self, permits: int) -> None:
        self.permits = permits

    def ask(self, mode: str) -> tuple[str, int]:
        if self.permits == 0:
            return (mode if mode in "1x" else "1"), 0
        # Clients may disagree on how many there are.
        return {"x": ("1", self.permits), "2": ("2", 3)}.get(mode, (mode, self.permits))

    @rule(tok=TOKENS, mode=MODES, ttl=TTLS, ticket=TTLS,
          wait=st.sampled_from([0, 1, 1, 1]), channel=CHANNELS, room=st.sampled_from([1, 3, 100]))  # fmt: skip
    def acquire(
        self, tok: str, mode: str, ttl: int, ticket: int, wait: int, channel: str, room: int
    ) -> None:  # fmt: skip
        mode, permits = self.ask(mode)
        self.both("acquire", tok, mode, permits, ttl, ticket, wait, channel, room, dead=tok)

    @rule(tok=TOKENS, mode=MODES, ttl=TTLS, ticket=TTLS, channel=CHANNELS)
    def renew(self, tok: str, mode: str, ttl: int, ticket: int, channel: str) -> None:
        self.both("renew", tok, *self.ask(mode), ttl, ticket, channel)

    @rule(tok=TOKENS, mode=MODES, tomb=TOMBS, close=st.sampled_from([0, 0, 100]))
    def leave(self, tok: str, mode: str, tomb: int, close: int) -> None:
        self.both("leave", tok, *self.ask(mode), tomb, close, dead=tok)

    @precondition(lambda self: self.permits)
    @rule(permits=st.sampled_from([1, 2, 5]), declared=st.sampled_from([2, 5]))
    def limit(self, permits: int, declared: int) -> None:
        self.both("limit", permits, declared)

    def look(self, most: int) -> None:
        self.both("inspect", self.permits, most)


@pytest.fixture(params=[BothMutexes, BothPermits], ids=["mutex", "permits"])
def machine(server: Server, request: pytest.FixtureRequest) -> Iterator[type[Both]]:
    found = {BothMutexes: Rig, BothPermits: PermitRig}[request.param](server.socket_path)
    if not found.can_move_the_clock():
        found.close()
        pytest.skip("a clock that the test moves needs a server with PEXPIRETIME (Redis 7.0, Valkey)")
    yield type("Machine", (request.param,), {"rig": found})
    found.close()


def _compare(machine: type[Both], runs: int, *, anew: bool = False) -> Counter[str]:
    Both.done.clear()
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=runs, stateful_step_count=STEPS, deadline=None, database=None,
            derandomize=runs != FULL and not anew,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    return Counter(Both.done)


def test_both_do_the_same_for_a_moment(machine: type[Both]) -> None:
    assert _compare(machine, MOMENT).total() > 100


@pytest.mark.slow
def test_both_do_the_same(machine: type[Both]) -> None:
    wanted = {"acquire H", "acquire Q", "renew H", "renew U", "leave A"}
    done = _compare(machine, QUICK)
    assert done.total() > 1000
    for _ in range(20):  # the first draw is always the same, until a script changes
        if wanted <= done.keys():
            return
        done += _compare(machine, QUICK, anew=True)
    pytest.fail(f"never seen: {wanted - done.keys()}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_both_do_the_same_for_long(machine: type[Both]) -> None:
    done = _compare(machine, FULL)
    print(f"{done.total()} scripts: {sorted(done.items())}")
    assert done.total() > 20 * FULL
    for script, answers in {"acquire": "HQBX", "renew": "HQU", "leave": "RWA"}.items():
        assert {f"{script} {one}" for one in answers} <= done.keys()


def test_every_command_is_known() -> None:
    asked = {
        command.encode()
        for rig in (Rig, PermitRig)
        for script in rig.keys
        for command in re.findall(r"call\('([A-Z]+)'", load(rig.package, script).source.decode())
    }
    assert asked <= Interpreter.shared().commands


def test_what_the_node_does_not_know_fails_loudly() -> None:
    memory = Memory()
    for text in ("redis.call('GEOADD', KEYS[1], 1, 1, 'a')", "redis.call('GET', 'undeclared')"):
        with pytest.raises(Unsupported):
            memory.run(text.encode(), 1, 0, ["k"], (), "1")
    with pytest.raises(Refused, match="global"):
        memory.run(b"leaked = 1", 1, 0, ["k"], (), "1")
