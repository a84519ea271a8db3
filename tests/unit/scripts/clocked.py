"""The scripts of latches and barriers on a real server whose clock is ours, and copies of requests that come late."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.resources import files
from itertools import count
from types import MappingProxyType
from typing import Any

import redis

from pawlock.core.runtime import Call
from pawlock.core.scripts import Script, load
from tests.unit.scripts.fuzz import Enough
from tests.unit.scripts.rig import _MAIL, _OUR_CLOCK, _PUBLISH, Edit, Reply

START_US = 4_000_000_000_000_000
LATEST = 2500
"""No copy of a request comes later than this, in ms."""


PACKAGES = ("latch", "barrier", "election", "once")


def names_of(package: str) -> list[str]:
    """The scripts of a package."""
    found = (item.name for item in files(f"pawlock.primitives.{package}").iterdir())
    return sorted(name[:-4] for name in found if name.endswith(".lua") and not name.startswith("_"))


class Broken(Exception):
    """An invariant does not hold; the text says which, when and in which world."""


class ClockedRig:
    """The scripts of all packages on one server."""

    def __init__(self, path: str, edit: Edit | None = None) -> None:
        self.redis: Any = redis.Redis(unix_socket_path=path, decode_responses=True)
        self.now_us = START_US
        self.drift_us = 0
        self.requests = 0
        self.sha: dict[Script, str] = {}
        for package in PACKAGES:
            for name in names_of(package):
                script = load(f"pawlock.primitives.{package}", name)
                source = script.source.decode()
                if edit:
                    source = edit(f"{package}.{name}", source)
                assert source.count("local call = redis.call\n") == 1
                source = source.replace("local call = redis.call\n", _OUR_CLOCK).replace(_PUBLISH, _MAIL)
                self.sha[script] = self.redis.script_load(source)

    def close(self) -> None:
        self.redis.close()

    @property
    def now(self) -> int:
        return self.now_us // 1000

    def run(self, call: Call) -> Reply:
        """Run a script; the reply without the request id, which was checked."""
        self.requests += 1
        words = [word.decode() for word in call.words()]
        rid = f"r{self.requests}"
        pipe = self.redis.pipeline(transaction=False)
        pipe.mset({"_now_us": self.now_us, "_drift_us": self.drift_us})
        pipe.evalsha(self.sha[call.script], call.script.numkeys, *words, rid)
        reply = pipe.execute()[-1]
        assert reply[1] == rid, f"{call.script.name} answered {reply} to request {rid}"
        return (reply[0], *reply[2:])

    def mail(self) -> list[tuple[str, list[str]]]:
        """Messages published since the last look: channel and words."""
        pipe = self.redis.pipeline()
        flat = pipe.lrange("_mail", 0, -1).delete("_mail").execute()[0]
        return [(flat[i], flat[i + 1].split(" ")) for i in range(0, len(flat), 2)]

    def expiry(self, key: str) -> int:
        """When a key ends, in ms of our clock; -1 never, -2 there is none (any more)."""
        expiry = int(self.redis.pexpiretime(key))
        return -2 if 0 <= expiry < self.now else expiry


Answered = Callable[[Reply], None]


class World:
    """One server and some clients; time jumps from event to event. What a seed finds, it finds again."""

    def __init__(self, rig: ClockedRig, seed: int) -> None:
        self.rig, self.seed, self.rng = rig, seed, random.Random(seed)
        rig.redis.flushall()
        rig.now_us = START_US
        self.now = 0.0
        self.behind = 0.0
        self.events: list[tuple[float, int, Callable[[], object]]] = []
        self.order = count()
        self.numbers = count()
        self.stats: Counter[str] = Counter()
        self.loss = self.rng.choice([0.0, 0.05, 0.2])
        self.doubles = self.rng.choice([0.0, 0.1, 0.3])
        self.keys: tuple[str, ...] = ()
        self.expiries: dict[str, int] = {}
        # Deleted as a whole when somebody is let go: there is nobody left for whom to keep it.
        self.emptied: tuple[str, ...] = ()

    def fail(self, what: str) -> None:
        raise Broken(f"seed {self.seed}, {self.now:.3f} ms: {what}")

    def token(self, text: str) -> str:
        return f"{next(self.numbers):024}@host:1/{text}"

    def later(self, delay: float, event: Callable[[], object]) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.order), event))

    def run(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, event = heapq.heappop(self.events)
            event()
        self.now = until

    def send(self, call: Call, arrived: Answered, answered: Answered) -> None:
        """Send a request: lost, doubled and late as it happens; so is the reply."""
        for copy in range(1 + (self.rng.random() < self.doubles)):
            if self.rng.random() < self.loss:
                continue
            delay = self.rng.uniform(0, 3) if self.rng.random() < 0.8 else self.rng.uniform(0, 300)
            if copy:
                delay += self.rng.uniform(0, LATEST - 400)
            self.later(delay, lambda: self.arrive(call, arrived, answered))

    def arrive(self, call: Call, arrived: Answered, answered: Answered) -> None:
        if self.rng.random() < 0.002:
            self.behind += self.rng.uniform(0, 50)
        self.rig.now_us = START_US + int((self.now - self.behind) * 1000)
        self.rig.drift_us = self.rng.choice([0, 0, 400, 2500])
        reply = self.rig.run(call)
        self.stats[f"{call.script.name} {reply[0]}"] += 1
        arrived(reply)
        self.check_keys(call)
        if self.rng.random() >= self.loss:
            self.later(self.rng.uniform(0, 3), lambda: answered(reply))

    def check_keys(self, call: Call) -> None:
        """Each key has an end, and none of them is cut short."""
        for key in self.keys:
            expiry = self.rig.expiry(key)
            if expiry == -1:
                self.fail(f"{key} has no end after {call.script.name}")
            had = self.expiries.get(key, -2)
            if had > self.rig.now and expiry < had and not (expiry == -2 and key in self.emptied):
                self.fail(f"{key} was cut short by {had - expiry} ms after {call.script.name}")
            self.expiries[key] = expiry


def fuzz(
    make: Callable[[int], World],
    seeds: range,
    *,
    seconds: float,
    sim_ms: float = 6000,
    wanted: Mapping[str, int] = MappingProxyType({}),
) -> Counter[str]:
    """Run worlds until the seeds or the seconds are used up; what happened in them.

    Raises:
        Broken: an invariant does not hold.
    """
    stats: Counter[str] = Counter()
    enough = Enough(seconds, wanted)
    for seed in seeds:
        world = make(seed)
        world.run(sim_ms)
        stats += world.stats
        stats["worlds"] += 1
        if enough(stats):
            break
    return stats
