"""The scripts of a latch against a model of it, under requests that come twice, late or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from math import inf

import pytest

from pawlock.primitives.latch import Latch
from tests.support.servers import Server
from tests.unit.scripts.clocked import LATEST, Broken, ClockedRig, World, fuzz
from tests.unit.scripts.rig import Reply

SECONDS = float(os.environ.get("PAWLOCK_FUZZ_SECONDS", "0.3"))
TICKET = 300
REMEMBER = LATEST + 1000


class LatchWorld(World):
    """A latch and what it should be: counted by requests that are each taken once."""

    def __init__(self, rig: ClockedRig, seed: int) -> None:
        super().__init__(rig, seed)
        self.latch = Latch("n", "n", self.rng.choice([1, 3, 9]), 60_000, TICKET, REMEMBER, 100)
        self.keys = tuple(f"{{n}}:1:latch{suffix}" for suffix in ("", ":waiters", ":seen"))
        self.emptied = self.keys[1:2]
        self.left = self.latch.count
        self.round = 0
        self.rounds: dict[int, int] = {}
        self.opened = -1
        self.taken: set[str] = set()
        self.parts: set[str] = set()
        self.noted: dict[tuple[str, str], int] = {}
        self.waiters: dict[str, Waiter] = {}
        for number in range(self.rng.choice([2, 4])):
            self.later(self.rng.uniform(0, 100), partial(self.count_down, number))
        for number in range(self.rng.choice([1, 3])):
            self.later(self.rng.uniform(0, 100), partial(Waiter, self, number))
        self.later(self.rng.uniform(0, 1000), self.reset)

    def again(self, delay: float, event: Callable[[], object]) -> None:
        self.later(self.rng.uniform(0, delay), event)

    def count_down(self, number: int) -> None:
        token, n = self.token(f"c{number}"), self.rng.choice([1, 1, 1, 4])
        part = self.rng.choice(["", "", "a", "b"])
        call = self.latch.count_down(token, part, n)

        def arrived(reply: Reply) -> None:
            opened = False
            if token not in self.taken and part not in self.parts:
                self.taken.add(token)
                self.parts |= {part} - {""}
                self.left = max(0, self.left - n)
                opened = self.left == 0 and self.opened < self.round
            if reply != ("D", self.left):
                self.fail(f"{reply} to a count of {n}, and {self.left} are left")
            self.post(opened=opened)

        self.repeat(lambda done: self.send(call, arrived, done))
        self.again(300, partial(self.count_down, number))

    def reset(self) -> None:
        token = self.token("r")
        call = self.latch.reset(token)

        def arrived(reply: Reply) -> None:
            if token not in self.taken:
                self.taken.add(token)
                self.left = self.latch.count
                self.round += 1
                self.parts.clear()
            if reply != ("R", self.left):
                self.fail(f"{reply} to a reset, and {self.left} are left")
            self.post(opened=False)

        self.repeat(lambda done: self.send(call, arrived, done))
        self.again(1500, self.reset)

    def repeat(self, send: Callable[[Callable[[Reply], None]], None], tries: int = 0) -> None:
        """Send until it is answered, four times at most."""
        done: list[Reply] = []
        send(done.append)
        if tries < 3:
            self.later(40, lambda: None if done else self.repeat(send, tries + 1))

    def post(self, *, opened: bool) -> None:
        """Exactly those are woken who wait, and only when it opens."""
        mail = self.rig.mail()
        if not opened:
            if mail:
                self.fail(f"messages {mail}, and nothing was opened")
            return
        self.opened = self.round
        self.stats["opened"] += 1
        live = {noted for noted, expiry in self.noted.items() if expiry > self.rig.now}
        told = {(words[0], channel) for channel, words in mail}
        if not live <= told <= set(self.noted):
            self.fail(f"told {told}, and {live} wait")
        self.noted.clear()
        for channel, words in mail:
            waiter = self.waiters.get(words[0])
            if waiter is not None and self.rng.random() >= self.loss:
                round_ = int(words[1])
                self.later(self.rng.uniform(0, 3), partial(waiter.message, channel, round_))


class Waiter:
    """Waits, asks again, gives up, dies, or takes another channel."""

    def __init__(self, world: LatchWorld, number: int) -> None:
        self.world, self.number = world, number
        self.token = world.token(f"w{number}")
        world.waiters[self.token] = self
        self.channel, self.former = "ch0", ""
        self.asked = 0
        self.round: int | None = None  # the world's number of the round it is in
        self.theirs = 0  # the server's number of it
        self.done = False
        world.later(world.rng.choice([50, 400, 3000]), self.give_up)
        self.ask()

    def ask(self) -> None:
        world = self.world
        if self.done:
            return
        self.asked += 1
        if world.rng.random() < 0.05:
            self.former, self.channel = self.channel, f"ch{self.asked}"
        round_, channel, former, mine = self.theirs, self.channel, self.former, self.round
        call = world.latch.wait(self.token, round_, channel, former)

        def arrived(reply: Reply) -> None:
            here = mine if round_ else world.round
            assert here is not None
            if (reply[0] == "O") != (world.opened >= here):
                world.fail(f"{reply} in round {here}, and {world.opened} was opened last")
            if reply[0] == "W":
                world.noted.pop((self.token, former), None)
                had = world.noted.get((self.token, channel), 0)
                world.noted[self.token, channel] = max(had, reply[3])
            if reply[0] in "NW" and reply[1] != world.left:
                world.fail(f"{reply}, and {world.left} are left")
            if reply[0] == "N":
                world.rounds[reply[2]] = world.round
            world.post(opened=False)

        world.send(call, arrived, self.answered)
        world.later(TICKET / 3, self.ask)

    def answered(self, reply: Reply) -> None:
        if self.done:
            return
        if reply[0] == "O":
            self.let_go("by asking")
        elif reply[0] == "N" and not self.theirs:
            self.theirs = reply[2]
            self.round = self.world.rounds[self.theirs]
            self.ask()

    def message(self, channel: str, round_: int) -> None:
        if self.done or channel != self.channel:
            return
        if round_ < self.theirs:
            self.world.fail(f"told of {round_}, and waits in {self.theirs}")
        self.let_go("by message")

    def let_go(self, how: str) -> None:
        world = self.world
        if self.round is not None and world.opened < self.round:
            world.fail(f"let go {how} in round {self.round}, and {world.opened} was opened last")
        world.stats[f"let go {how}"] += 1
        self.end()

    def give_up(self) -> None:
        world = self.world
        if self.done:
            return
        if self.theirs and world.rng.random() < 0.7:
            here, theirs, channel = self.round, self.theirs, self.channel
            assert here is not None

            def arrived(reply: Reply) -> None:
                world.noted.pop((self.token, channel), None)
                if (reply[0] == "O") != (world.opened >= here):
                    world.fail(f"left with {reply} in round {here}, and {world.opened} was opened last")
                world.post(opened=False)

            world.send(world.latch.leave(self.token, theirs, channel), arrived, lambda _: None)
        else:
            world.stats["died"] += 1
        self.end()

    def end(self) -> None:
        self.done = True
        self.world.again(100, partial(Waiter, self.world, self.number))


MUTANTS: dict[str, tuple[str, str]] = {
    "a request counts twice": ("if is_seen(token, part) then", "if false then"),
    "a part is not remembered": ("if part ~= '' then\n    call('ZADD'", "if false then\n    call('ZADD'"),
    "a part is remembered over a reset": ("  call('ZREMRANGEBYSCORE', SEEN, '+inf', '+inf')\n", ""),
    "a late reset is done again": ("if is_seen(token, '') then", "if false then"),
    "requests are forgotten at once": ("digits(now_ms + remember_ms), token", "digits(now_ms + 1), token"),
    "it counts below 0": ("math.max(0, latch.left - n)", "latch.left - n"),
    "who waits is not woken": ("opens and call('ZRANGE', WAITERS, 0, -1) or {}", "{}"),
    "a reset opens": (
        "call('HSET', LATCH, 'count', digits(count), 'left', digits(count), 'round', digits(round))",
        "call('HSET', LATCH, 'left', digits(count), 'round', digits(round), 'opened', digits(round))",
    ),
    "a reset begins no round": (
        "local round = math.max(latch.round + 1, now_us)",
        "local round = latch.round",
    ),
    "only the present round is open": (
        "if latch.opened >= round then\n  return {'O', RID, latch.opened}",
        "if latch.opened >= round and latch.opened == latch.round then\n  return {'O', RID, latch.opened}",
    ),
    "it is open while something is left": (
        "local opens = latch.left == 0 and latch.opened < latch.round",
        "local opens = latch.left <= 1 and latch.opened < latch.round",
    ),
    "the latch is cut short": (
        "local expiry_ms = math.max(now_ms + ttl_ms, latch.expiry_ms)",
        "local expiry_ms = now_ms + ttl_ms - 5000 * (now_ms % 2)",
    ),
    "waiters have no end": (
        "  call('ZADD', key, digits(math.max",
        "  outlive = function() end\n  call('ZADD', key, digits(math.max",
    ),
    "who leaves stays noted": ("call('ZREM', WAITERS, token .. ' ' .. channel)", "local _ = channel"),
}

# The world that meets a rare one soonest; others follow, so that a change of the simulator costs time only.
SOONEST = {"who leaves stays noted": 6, "only the present round is open": 3}


@pytest.fixture
def mutate(valkey: Server) -> Iterator[Callable[[str, str], ClockedRig]]:
    rigs: list[ClockedRig] = []

    def make(old: str, new: str) -> ClockedRig:
        hits = []

        def edit(name: str, source: str) -> str:
            hits.append(source.count(old))
            return source.replace(old, new) if name.startswith("latch.") else source

        rigs.append(ClockedRig(valkey.socket_path, edit=edit))
        assert sum(hits), f"no script has {old!r} any more"
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def test_nothing_breaks(mutate: Callable[[str, str], ClockedRig]) -> None:
    rig = mutate("local call", "local call")
    wanted = dict.fromkeys(
        ("count_down D", "wait N", "wait W", "wait O", "leave A", "leave O", "reset R", "died"), 1
    )
    wanted |= {"opened": 20, "let go by message": 10, "let go by asking": 20}
    assert fuzz(partial(LatchWorld, rig), range(1_000_000), seconds=SECONDS, wanted=wanted)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_script_is_noticed(mutate: Callable[[str, str], ClockedRig], mutant: str) -> None:
    rig = mutate(*MUTANTS[mutant])
    with pytest.raises(Broken) as caught:
        fuzz(partial(LatchWorld, rig), range(SOONEST.get(mutant, 0), 200), seconds=inf)
    print(mutant, "->", str(caught.value)[:150])
