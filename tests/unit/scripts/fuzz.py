"""Clients that crash, lose and repeat requests and get replies late, on real scripts and simulated time.

Each world is made from a seed alone: what it finds, it finds again.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any

from tests.unit.scripts.model import Snapshot, Step, broken, take
from tests.unit.scripts.rig import DAY, Reply, Rig, token

TOMB = 3000
START_US = 4_000_000_000_000_000  # always the same, and later than the server's own clock
LATEST = 2500  # ms: no copy of a request comes later than this


class Broken(Exception):
    """An invariant does not hold; the text says which, when and in which world."""


Answered = Callable[[Reply], None]


@dataclass
class Belief:
    """What a client believes it holds until `valid` (ms of its own clock)."""

    token: str
    value: str
    cur: int
    valid: float


class World:
    """One server, some names and clients; time jumps from event to event."""

    client: type[Client]

    def __init__(self, rig: Rig, seed: int, names: tuple[str, ...] = ("a", "b")) -> None:
        self.rig, self.seed, self.rng = rig, seed, random.Random(seed)
        rig.redis.flushall()
        rig.now_us = START_US
        self.now = 0.0  # ms: the clients' clock
        self.start_us = rig.now_us
        self.behind = 0.0  # ms the server's clock was set back so far
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.stats: Counter[str] = Counter()
        self.snapshots = dict.fromkeys(names, Snapshot(rig.now))
        self.beliefs: dict[str, dict[str, Belief]] = {name: {} for name in names}
        self.used: dict[str, tuple[int, int]] = dict.fromkeys(
            names, (0, 0)
        )  # newest grant, highest fence used in it
        self.gone: dict[str, float] = {}
        self.channels: dict[str, Client] = {}
        # In some worlds fences are kept as briefly as may be; then nothing but the clock makes them rise.
        self.brief = random.Random(seed) if seed % 8 == 4 else None
        self.loss = self.rng.choice([0.0, 0.05, 0.2])
        self.doubles = self.rng.choice([0.0, 0.1, 0.3])
        self.crashes = self.rng.choice([0.0, 0.03, 0.1])
        # Where nothing comes late or twice, every request is answered, and a leave needs no tombstone.
        self.calm = seed % 4 == 3
        if self.calm:
            self.loss = self.doubles = 0.0
        for name in names:
            for number in range(self.rng.choice([2, 4, 7])):
                self.client(self, name, f"{name}{number}")
        self.later(500, self.set_clock_back)

    def fail(self, what: str) -> None:
        raise Broken(f"seed {self.seed}, {self.now:.3f} ms: {what}")

    def later(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.order), event))

    def set_clock_back(self) -> None:
        if self.rng.random() < 0.3 and not self.brief:
            self.behind += self.rng.uniform(0, 400)
        self.later(self.rng.uniform(100, 2000), self.set_clock_back)

    def latency(self) -> float:
        kind = self.rng.random()
        if kind < 0.75 or self.calm:
            return self.rng.uniform(0, 3)
        return self.rng.uniform(0, 30) if kind < 0.95 else self.rng.uniform(0, 300)

    def run(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, event = heapq.heappop(self.events)
            event()
        self.now = until

    def send(self, name: str, step: Step, args: tuple[Any, ...], answered: Answered) -> None:
        """Send a request: lost, doubled and late as it happens; so are the replies."""
        for copy in range(1 + (self.rng.random() < self.doubles)):
            if self.rng.random() < self.loss:
                self.stats["lost"] += 1
                continue
            delay = self.latency() if not copy else self.latency() + self.rng.uniform(0, LATEST - 400)
            self.later(delay, lambda: self.arrive(name, step, args, answered))

    def arrive(self, name: str, step: Step, args: tuple[Any, ...], answered: Answered) -> None:
        self.rig.now_us = self.start_us + int((self.now - self.behind) * 1000)
        self.rig.drift_us = self.rng.choice([0, 0, 400, 2500])
        tokens = {"dead_old": step.old, "dead_new": step.token, "dead": step.token}
        reply = self.rig.run(step.script, (*args, self.fence_ttl()), name, **tokens)
        self.stats[step.script + " " + str(reply[0])] += 1
        step = Step(step.script, step.token, step.old, step.mode, reply)
        after, before = take(self.rig, name), self.snapshots[name]
        if self.brief and not after.last and before.last:
            self.stats["fence forgotten"] += 1
            if after.holders():
                self.fail(f"I6: the fence of a lease is gone after {step}")
            after.last, after.cur = before.last, before.cur
        for what in broken(before, after, step, fence_ms=0 if self.brief else DAY):
            self.fail(what)
        self.snapshots[name] = after
        if step.leaving:
            self.gone[step.leaving] = max(self.gone.get(step.leaving, 0), after.now + TOMB)
        for tok in after.leases:
            if self.gone.get(tok, 0) > after.now:
                self.fail(f"I7: {tok} left and came back after {step}")
        self.believe(name, after)
        self.post(name, after, step)
        if self.rng.random() >= self.loss:
            self.later(self.latency(), lambda: answered(reply))

    def fence_ttl(self) -> int:
        """What the sender of a request wants, in ms."""
        return self.brief.choice([0, 0, 100, 5000]) if self.brief else DAY

    def believe(self, name: str, after: Snapshot) -> None:
        """I3: whoever believes to hold does, and so for longer than it believes."""
        for belief in self.beliefs[name].values():
            if belief.valid <= self.now:
                continue
            if after.value != belief.value or after.leases.get(belief.token, 0) < after.now:
                self.fail(
                    f"I3: {belief.token} believes for {belief.valid - self.now:.1f} ms more, but {after}"
                )

    def post(self, name: str, after: Snapshot, step: Step) -> None:
        mail = self.rig.mail()
        granted = after.holders() - {step.token}
        if len(mail) > 1 or (mail and mail[0][1][0] not in granted):
            self.fail(f"messages {mail} after {step}")
        for channel, (tok, fence, expiry, now) in mail:
            if (int(fence), int(now)) != (after.cur, after.now) or int(expiry) != after.leases[tok]:
                self.fail(f"message {tok} {fence} {expiry} {now}, but {after}")
            for _ in range(1 + (self.rng.random() < self.doubles)):
                if self.rng.random() >= self.loss:
                    client = self.channels[channel]
                    a = (tok, int(fence), int(expiry))
                    self.later(self.latency(), lambda client=client, a=a: client.message(*a))  # type: ignore[misc]

    def took(self, name: str, belief: Belief, block: int) -> None:
        """A client holds: alone, with a fence above all that were used before it."""
        for other in self.beliefs[name].values():
            if other.valid > self.now and other.value != belief.value:
                self.fail(f"two holders: {other} and {belief}")
        newest, highest = self.used[name]
        fence = belief.cur + self.rng.randrange(block)
        if belief.cur < newest or (belief.cur > newest and fence <= highest):
            self.fail(f"fence {fence} of grant {belief.cur} after {highest} of grant {newest}")
        self.used[name] = (belief.cur, max(highest, fence))
        self.beliefs[name][belief.token] = belief
        self.stats["held"] += 1


class Client:
    """One waiter at a time: takes a name, works, releases, starts anew; follows the client rules."""

    belief: Belief

    def __init__(self, world: World, name: str, text: str) -> None:
        self.world, self.name, self.text = world, name, text
        self.channel, self.number, self.token = f"ch:{text}", 0, ""
        world.channels[self.channel] = self
        self.state = "idle"
        world.later(world.rng.uniform(0, 20), self.go)

    def start(self) -> None:
        rng = self.world.rng
        self.number += 1
        self.token = token(f"{self.text}.{self.number}")
        self.state, self.valid, self.confirmed = "waiting", 0.0, 0.0
        self.expiry = self.answered = self.sent = 0
        self.ttl = rng.choice([20, 60, 300, 1000])
        self.ticket_ttl = min(self.ttl, rng.choice([60, 300]))
        self.block = rng.choice([1, 1, 16])
        self.mode = rng.choice([0, 1, 1, 1, 1])

    def go(self) -> None:
        self.start()
        tok = self.token
        self.world.later(self.world.rng.choice([20, 200, 1000, 4000]), lambda: self.give_up(tok))
        self.acquire(tok)

    def again(self) -> None:
        self.state, self.token = "idle", ""
        self.world.later(self.world.rng.uniform(0, 30), self.go)

    def request(
        self,
        script: str,
        tok: str,
        args: tuple[Any, ...],
        answered: Answered,
        *,
        mode: int = 1,
    ) -> None:
        self.world.send(self.name, Step(script, tok, mode=mode), args, answered)

    def valid_until(self, sent: float, ms: float) -> float:
        return sent + ms * 0.99 - 2

    def acquire(self, tok: str, tries: int = 0) -> None:
        if tok != self.token or self.state != "waiting" or (self.answered and tries):
            return
        sent, args = self.world.now, (self.ttl, self.ticket_ttl)
        rest = (self.block, self.channel, self.world.rng.choice([2, 100, 100]))
        all_args: tuple[Any, ...] = (tok, *args, self.mode, *rest)
        self.request("acquire", tok, all_args, lambda r: self.reply(tok, sent, r), mode=self.mode)
        self.world.later(30, lambda: self.acquire(tok, tries + 1))

    def renew(self, tok: str) -> None:
        if tok != self.token or self.state not in {"waiting", "held"}:
            return
        sent, held = self.world.now, self.state == "held"
        ttl = self.ttl if self.world.rng.random() < 0.8 else self.world.rng.choice([20, 3000])
        channel = self.channel if self.world.rng.random() < 0.2 else ""

        def answered(reply: Reply) -> None:
            if held:
                self.renewed(tok, sent, ttl, reply)
            else:
                self.reply(tok, sent, reply)

        self.request("renew", tok, (tok, ttl, self.ticket_ttl, channel), answered)
        every = self.ttl / 3 if held else self.ticket_ttl / 3
        self.renew_in(every, tok)

    def renew_in(self, delay: float, tok: str) -> None:
        self.sent += 1
        mine = self.sent

        def due() -> None:
            if self.sent == mine:
                self.renew(tok)

        self.world.later(delay, due)

    def reply(self, tok: str, sent: float, reply: Reply) -> None:
        world = self.world
        if tok != self.token or self.state != "waiting":
            return
        self.answered += 1
        if reply[0] == "H":
            valid = self.valid_until(sent, min(reply[2], max(self.ttl, 20)))
            if valid > world.now:
                self.held(reply[1], valid)
            else:
                self.renew(tok)
        elif reply[0] == "Q":
            self.confirmed = max(self.confirmed, self.valid_until(sent, self.ticket_ttl))
            self.expiry = max(self.expiry, reply[3])
            timer = self.ticket_ttl / 3 if reply[1] else min(self.ticket_ttl / 3, max(reply[2], 0) + 1)
            self.renew_in(timer, tok)
        elif reply[0] == "X":
            world.fail(f"{tok} never left and is with_tombstone")
        else:
            self.leave(tok)

    def message(self, tok: str, cur: int, expiry: int) -> None:
        if tok != self.token or self.state != "waiting":
            return
        if self.expiry and expiry >= self.expiry and self.confirmed > self.world.now:
            self.world.stats["by message"] += 1
            self.held(cur, self.confirmed)
        else:
            self.renew(tok)

    def held(self, cur: int, valid: float) -> None:
        world, tok = self.world, self.token
        self.state, self.valid = "held", valid
        self.belief = Belief(tok, tok, cur, valid)
        world.took(self.name, self.belief, self.block)
        if world.rng.random() < world.crashes:
            world.stats["crash"] += 1
            self.lose()
            world.later(200, self.again)
            return
        if world.rng.random() < 0.7:
            self.renew(tok)
        world.later(world.rng.uniform(0, 1) ** 2 * 200, lambda: self.finish(tok))

    def renewed(self, tok: str, sent: float, ttl: int, reply: Reply) -> None:
        world = self.world
        if tok != self.token or self.state != "held":
            return
        if self.valid <= world.now:
            self.lose()
            self.leave(tok)
        elif reply[0] != "H":
            world.fail(f"{tok} holds until {self.valid:.1f} and is told {reply}")
        else:
            if reply[1] != self.belief.cur:
                world.fail(f"{tok} got fence {reply[1]} after {self.belief.cur}")
            self.valid = self.belief.valid = max(self.valid, self.valid_until(sent, min(reply[2], ttl)))

    def lose(self) -> None:
        self.state = "lost"
        self.world.beliefs[self.name].pop(self.token, None)

    def finish(self, tok: str) -> None:
        if tok != self.token or self.state != "held":
            return
        self.lose()
        self.leave(tok, close=self.world.rng.choice([0, 0, 0, 0, 50]))

    def give_up(self, tok: str) -> None:
        if tok != self.token or self.state != "waiting":
            return
        if self.world.rng.random() < self.world.crashes:
            self.world.stats["crash waiting"] += 1
            self.state = "lost"
            self.world.later(200, self.again)
            return
        self.leave(tok)

    def leave(self, tok: str, tries: int = 0, close: int = 0) -> None:
        """Sent until answered, ten times at most."""
        done: list[Reply] = []

        def answered(reply: Reply) -> None:
            if not done:
                done.append(reply)
                if tok == self.token:
                    self.again()

        def repeat() -> None:
            if not done and tries < 10:
                self.leave(tok, tries + 1, close)
            elif not done:
                answered(())

        if not tries:
            self.state = "leaving"
        self.request("leave", tok, (tok, 0 if self.world.calm else TOMB, close), answered)
        self.world.later(40, repeat)


World.client = Client


class Enough:
    """Says when a run has gone on for its seconds and has shown what it is for; a busy machine gets more time.

    Args:
        seconds: How long at least.
        wanted: What must have happened, and how often.
    """

    def __init__(self, seconds: float, wanted: Mapping[str, int]) -> None:
        self.begin = time.monotonic()
        self.seconds = seconds
        self.wanted = wanted

    def __call__(self, stats: Counter[str]) -> bool:
        missing = {what: n for what, n in self.wanted.items() if stats[what] < n}
        passed = time.monotonic() - self.begin
        assert not missing or passed < 60, f"never seen: {missing} in {stats}"
        return not missing and passed > self.seconds


def fuzz(
    rig: Rig,
    seeds: range,
    *,
    seconds: float,
    sim_ms: float = 6000,
    kind: type[World] = World,
    wanted: Mapping[str, int] = MappingProxyType({}),
) -> tuple[int, Counter[str]]:
    """Run worlds until the seeds or the seconds are used up; how many, and what happened in them.

    Raises:
        Broken: an invariant does not hold.
    """
    stats: Counter[str] = Counter()
    enough, worlds = Enough(seconds, wanted), 0
    for seed in seeds:
        world = kind(rig, seed)
        world.run(sim_ms)
        stats += world.stats
        worlds += 1
        if enough(stats):
            break
    return worlds, stats
