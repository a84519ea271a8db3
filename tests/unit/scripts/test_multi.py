"""The script that takes several names: all or none, past nobody who waits, on states of every kind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import inf
from types import MappingProxyType

import pytest
import redis

from tests.support.servers import Server
from tests.unit.scripts.fuzz import START_US, TOMB, Broken, Enough
from tests.unit.scripts.model import Snapshot, Step, broken, take
from tests.unit.scripts.rig import Reply, Rig, owner, token

pytestmark = pytest.mark.slow

NAMES = ("a", "b", "c", "d")

# name: (old text, new text) in multi.lua, as in test_fuzz.
MUTANTS: dict[str, tuple[str, str]] = {
    "looks at the first name only": ("    busy = busy or index\n", "    busy = index == 1 and 1 or busy\n"),
    "takes what it can": (
        "    busy = busy or index\n  end\n",
        """    busy = busy or index
  elseif not value then
    turn_to(index)
    one.value = one.token
    grant(one.token, now_ms + one.ttl_ms, 1, one.fence)
  end
""",
    ),
    "ignores tombstones": ("call('EXISTS', dead) == 1", "false"),
    "passes the queue by": ("  one.found = head and plan(head)\n", ""),
    "pumps and goes on": ("one.value or (one.found and one.found.value)", "one.value"),
    "notifies nobody": ("mail[#mail + 1], outbox = outbox, {}", "outbox = {}"),
    "notifies only the last one": (
        "      mail[#mail + 1], outbox = outbox, {}\n",
        "      mail[1], outbox = outbox, {}\n",
    ),
    "takes its own for another's": (
        "if value and value ~= one.token then\n    busy",
        "if value then\n    busy",
    ),
    "grants again what it holds": ("if one.value == one.token then\n      curs", "if false then\n      curs"),
    "keeps one fence for all": ("KEYS[at + 2]", "KEYS[2]"),
    "takes tickets from the first queue": ("KEYS[at + 4]", "KEYS[4]"),
    "gives all the first ttl": ("tonumber(ARGV[at + 2])", "tonumber(ARGV[2])"),
    "buries with the first name's tombstone": ("return KEYS[at + 5]", "return KEYS[5]"),
    "grants to a waiter at the first name's key": (
        "turn_to(index)\n    if one.found",
        "turn_to(1)\n    if one.found",
    ),
}


NOTHING: Mapping[str, int] = MappingProxyType({})


class World:
    """Some names with holders, owners and waiters of every kind, and a multi-lock that comes to them."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig, self.seed, self.rng = rig, seed, random.Random(seed)
        rig.redis.flushall()
        rig.now_us, rig.drift_us = START_US, 0
        self.count = 0
        self.known: dict[str, list[str]] = {name: [] for name in NAMES}
        self.dead: set[str] = set()
        self.last: tuple[dict[str, str], dict[str, int]] | None = None
        self.stats: Counter[str] = Counter()

    def fail(self, what: str) -> None:
        raise Broken(f"seed {self.seed}, step {self.count}: {what}")

    def fresh(self) -> str:
        self.count += 1
        return token(f"t{self.count}")

    def step(self) -> None:
        kind = self.rng.random()
        if kind < 0.35:
            self.rig.advance(self.rng.choice([0, 1, 20, 100, 400]))
        elif kind < 0.7:
            self.single()
        else:
            self.multi()

    def single(self) -> None:
        """What other clients do to one name."""
        rng, rig, name = self.rng, self.rig, self.rng.choice(NAMES)
        known = self.known[name]
        kind = rng.random()
        if kind < 0.5 or not known:
            tok = self.fresh()
            known.append(tok)
            ttl, mode = rng.choice([50, 300, 2000]), rng.choice([0, 1, 1])
            if rng.random() < 0.2:
                rig.own_acquire(tok, owner(rng.choice("xy")), ttl, min(ttl, 200), mode=mode, name=name)
            else:
                rig.acquire(tok, ttl, min(ttl, 200), mode=mode, name=name)
        elif kind < 0.8:
            tok = rng.choice(known)
            rig.leave(tok, tomb=rng.choice([0, TOMB]), name=name)
            known.remove(tok)
        else:
            rig.renew(rng.choice(known), 300, 200, name=name)
        rig.mail()

    def multi(self) -> None:
        rng, rig = self.rng, self.rig
        if self.last is not None and rng.random() < 0.3:
            tokens, ttls = self.last
        else:
            names = rng.sample(NAMES, rng.randrange(1, 5))
            tokens = {name: self.fresh() for name in names}
            ttls = {name: rng.choice([60, 400, 3000]) for name in names}
            for name, tok in tokens.items():
                if rng.random() < 0.1:
                    rig.leave(tok, tomb=TOMB, name=name)
                    rig.mail()
        self.last = tokens, ttls
        for name, tok in tokens.items():
            if tok not in self.known[name]:
                self.known[name].append(tok)
        dead = {name for name, tok in tokens.items() if self.barred(name, tok)}
        before = {name: take(rig, name) for name in NAMES}
        reply = rig.multi(tokens, ttls)
        after = {name: take(rig, name) for name in NAMES}
        self.stats[str(reply[0])] += 1
        self.judge(tokens, ttls, dead, before, after, reply)

    def barred(self, name: str, tok: str) -> bool:
        kind, expiry, _ = self.rig.raw([self.rig.key("dead", name, dead=tok)]).popitem()[1]
        return bool(kind == "string" and expiry >= self.rig.now)

    def judge(
        self,
        tokens: dict[str, str],
        ttls: dict[str, int],
        dead: set[str],
        before: dict[str, Snapshot],
        after: dict[str, Snapshot],
        reply: Reply,
    ) -> None:
        now = self.rig.now
        before = {name: shot.at(now) for name, shot in before.items()}
        for name in NAMES:
            if name in tokens:
                for what in broken(before[name], after[name], Step("acquire", tokens[name], reply=reply)):
                    self.fail(f"{name}: {what}")
            elif before[name] != after[name]:
                self.fail(f"{name} was touched by {tokens}")
        had = {name for name, tok in tokens.items() if before[name].value == tok}
        barred = bool(dead - had)
        free = all(name in had or not (before[name].value or before[name].live()) for name in tokens)
        if reply[0] != ("X" if barred else "H" if free else "B"):
            self.fail(f"{reply} where free is {free} and barred {barred}")
        self.judge_names(tokens, ttls, had, after, reply)
        granted = {tok for name in tokens for tok in after[name].holders() - before[name].holders()}
        told = {words[0] for _, words in self.rig.mail()}
        if told != granted - set(tokens.values()):
            self.fail(f"{granted} were granted, {told} were told")

    def judge_names(
        self,
        tokens: dict[str, str],
        ttls: dict[str, int],
        had: set[str],
        after: dict[str, Snapshot],
        reply: Reply,
    ) -> None:
        """All or none, and the reply says what the server has."""
        mine = {name for name, tok in tokens.items() if after[name].value == tok}
        if reply[0] != "H":
            if mine - had:
                self.fail(f"{reply}, but {mine - had} were taken")
            index = reply[1] - 1
            name = list(tokens)[index]
            if reply[0] == "B" and after[name].value in {None, tokens[name]}:
                self.fail(f"{reply}: {name} is not another's")
            return
        if mine != tokens.keys():
            self.fail(f"{reply}, but only {mine} of {tokens}")
        for name, cur, left in zip(tokens, reply[1], reply[2], strict=True):
            wanted = after[name].expiry - self.rig.now if name in had else ttls[name]
            if (cur, left, after[name].expiry) != (after[name].cur, wanted, self.rig.now + wanted):
                self.fail(f"{name}: {cur}, {left} where the server has {after[name]}")


def fuzz(rig: Rig, seeds: range, *, seconds: float, wanted: Mapping[str, int] = NOTHING) -> None:
    stats: Counter[str] = Counter()
    enough = Enough(seconds, wanted)
    for seed in seeds:
        world = World(rig, seed)
        for _ in range(150):
            world.step()
        stats += world.stats
        if enough(stats):
            break


def test_nothing_breaks(rig: Rig) -> None:
    fuzz(rig, range(100_000), seconds=1, wanted={"H": 10, "B": 10, "X": 10})


@pytest.fixture
def mutate(valkey: Server) -> Iterator[Callable[[str, str], Rig]]:
    rigs: list[Rig] = []

    def make(old: str, new: str) -> Rig:
        def edit(name: str, source: str) -> str:
            if name != "multi":
                return source
            assert source.count(old) == 1, f"multi.lua has not one {old!r}"
            return source.replace(old, new)

        rigs.append(Rig(valkey.socket_path, edit=edit))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_script_is_noticed(mutate: Callable[[str, str], Rig], mutant: str) -> None:
    rig = mutate(*MUTANTS[mutant])
    with pytest.raises(Broken) as caught:
        fuzz(rig, range(200), seconds=inf)
    print(mutant, "->", str(caught.value)[:150])


def test_one_wrong_key_stops_it_before_its_first_write(rig: Rig) -> None:
    for wrong in ("name", "fence", "queue", "tickets"):
        rig.redis.flushall()
        rig.redis.lpush(rig.key(wrong, "b"), "x") if wrong != "queue" else rig.redis.set(
            rig.key(wrong, "b"), "x"
        )
        if wrong == "tickets":
            rig.redis.zadd(rig.key("queue", "b"), {token("w"): 1})
        before = rig.raw()
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            rig.multi({"a": token("1"), "b": token("2")}, {"a": 100, "b": 100})
        assert {k: v for k, v in rig.raw().items() if not k.startswith("_")} == before


def test_another_wire_version_is_refused(rig: Rig) -> None:
    rig.redis.flushall()
    rig.redis.hset(rig.key("fence", "b"), mapping={"v": "9"})
    with pytest.raises(redis.ResponseError, match="PAWLOCKWIRE"):
        rig.multi({"a": token("1"), "b": token("2")}, {"a": 100, "b": 100})
    assert rig.value("a") is None
