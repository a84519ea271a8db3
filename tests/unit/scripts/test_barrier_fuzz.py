"""The scripts of a barrier against a model of it, under requests that come twice, late or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf

import pytest

from pawlock.primitives.barrier import Barrier
from tests.support.servers import Server
from tests.unit.scripts.clocked import LATEST, Broken, ClockedRig, World, fuzz
from tests.unit.scripts.rig import Reply

SECONDS = float(os.environ.get("PAWLOCK_FUZZ_SECONDS", "0.3"))
TICKET = 300
TOMB = LATEST + 1000


@dataclass
class Arrival:
    """One that waits, as the model has it."""

    number: int
    expiry: int
    channel: str


class BarrierWorld(World):
    """A barrier and what it should be: arrivals with an end, each counted once."""

    def __init__(self, rig: ClockedRig, seed: int) -> None:
        super().__init__(rig, seed)
        self.parties = self.rng.choice([1, 2, 3, 5])
        self.barrier = Barrier("n", "n", self.parties, TICKET)
        self.keys = tuple(f"{{n}}:1:barrier{suffix}" for suffix in ("", ":waiting", ":passed", ":tickets"))
        self.emptied = self.keys[1:]
        self.waiting: dict[str, Arrival] = {}
        self.passed: dict[str, tuple[int, int, int]] = {}
        self.with_tombstone: set[str] = set()
        self.members: dict[str, Party] = {}
        self.arrivals = 0
        for number in range(self.parties + self.rng.choice([0, 1, 3])):
            self.later(self.rng.uniform(0, 100), partial(Party, self, number))

    def arrived(self, token: str, channel: str, reply: Reply, *, stay: bool) -> None:
        """What an arrival does to the model, and whether the script did the same."""
        now = self.rig.now
        if token in self.passed:
            index, round_, until = self.passed[token]
            if (reply[0] == "P" and reply[1:] == (index, round_)) or now <= until:
                self.expect(reply, ("P", index, round_))
                return
            # That it passed is forgotten; whoever may send copies has itself with_tombstone.
        mine = self.waiting.get(token)
        for other, one in list(self.waiting.items()):
            if one.expiry <= now and other != token:
                del self.waiting[other]
        if mine is not None and (mine.expiry > now or reply[0] == "W"):
            mine.expiry, mine.channel = max(mine.expiry, now + TICKET), channel
            self.expect(reply, ("W", len(self.waiting)))
            return
        self.waiting.pop(token, None)
        if stay:
            self.expect(reply, ("U",))
        elif token in self.with_tombstone:
            self.expect(reply, ("X",))
        else:
            self.arrivals += 1
            self.waiting[token] = Arrival(self.arrivals, now + TICKET, channel)
            self.passes_or_waits(token, reply)

    def passes_or_waits(self, token: str, reply: Reply) -> None:
        if len(self.waiting) < self.parties:
            self.expect(reply, ("W", len(self.waiting)))
            return
        order = sorted(self.waiting, key=lambda one: -self.waiting[one].number)
        told = {one: (i, self.waiting[one].channel) for i, one in enumerate(order) if one != token}
        self.expect(reply, ("P", 0), told)
        until = self.rig.now + 3 * TICKET - 1
        self.passed.update((one, (i, reply[2], until)) for i, one in enumerate(order))
        self.waiting.clear()
        self.stats["rounds"] += 1

    def expect(self, reply: Reply, wanted: Reply, told: dict[str, tuple[int, str]] | None = None) -> None:
        if reply[: len(wanted)] != wanted:
            self.fail(f"{reply} in place of {wanted}")
        self.expect_mail(told or {})

    def left(self, token: str, reply: Reply) -> None:
        """What a withdrawal does to the model, and whether the script did the same."""
        self.expect_mail({})
        mine = self.waiting.pop(token, None)
        if mine is None and reply[0] == "W":
            self.fail(f"{token} was not there and got {reply}")
        if mine is not None and reply[0] != "W" and mine.expiry > self.rig.now:
            self.fail(f"{token} was there and got {reply}")
        if reply[0] == "P" and reply[1] != self.passed[token][0]:
            self.fail(f"{token} left with {reply}, and passed with {self.passed[token]}")
        self.with_tombstone.add(token)

    def expect_mail(self, told: dict[str, tuple[int, str]]) -> None:
        mail = {words[0]: (int(words[1]), channel) for channel, words in self.rig.mail()}
        if mail != told:
            self.fail(f"told {mail} in place of {told}")
        for token, (index, channel) in mail.items():
            if self.rng.random() >= self.loss:
                self.later(self.rng.uniform(0, 3), partial(self.members[token].message, channel, index))


class Party:
    """Arrives, stays, gives up, dies, pauses, or takes another channel."""

    def __init__(self, world: BarrierWorld, number: int) -> None:
        self.world, self.number = world, number
        self.token = world.token(f"p{number}")
        world.members[self.token] = self
        self.channel, self.asked, self.known, self.done = "ch0", 0, False, False
        world.later(world.rng.choice([100, 1000, 4000]), self.give_up)
        self.ask()

    def ask(self) -> None:
        world = self.world
        if self.done:
            return
        self.asked += 1
        if world.rng.random() < 0.05:
            self.channel = f"ch{self.asked}"
        stay, channel = self.known, self.channel
        call = world.barrier.arrive(self.token, channel, stay=stay)
        world.send(call, lambda reply: world.arrived(self.token, channel, reply, stay=stay), self.answered)
        # Sometimes it is paused past its ticket.
        pause = TICKET / 3 if world.rng.random() < 0.95 else TICKET * world.rng.uniform(1, 5)
        world.later(pause, self.ask)

    def answered(self, reply: Reply) -> None:
        if self.done:
            return
        if reply[0] == "P":
            self.pass_with(reply[1], "by asking")
        elif reply[0] == "W":
            self.known = True
        elif reply[0] == "U":
            self.world.stats["lapsed"] += 1
            self.end()

    def message(self, channel: str, index: int) -> None:
        if not self.done and channel == self.channel:
            self.pass_with(index, "by message")

    def pass_with(self, index: int, how: str) -> None:
        if self.world.passed[self.token][0] != index:
            self.world.fail(f"{self.token} passed {how} with {index}")
        self.world.stats[f"passed {how}"] += 1
        self.end()

    def give_up(self) -> None:
        world = self.world
        if self.done:
            return
        if world.rng.random() < 0.7:
            call = world.barrier.leave(self.token, TOMB)
            world.send(call, lambda reply: world.left(self.token, reply), lambda _: None)
        else:
            world.stats["died"] += 1
        self.end()

    def end(self) -> None:
        self.done = True
        self.world.later(self.world.rng.uniform(0, 60), partial(Party, self.world, self.number))


MUTANTS: dict[str, tuple[str, str]] = {
    "an arrival counts twice": ("if barrier.waits > 0 then\n", "if barrier.waits > 0 and mode == '1' then\n"),
    "who passed may pass again": (
        "if barrier.passed then\n  return {'P', RID, barrier.index, barrier.passed}\nend\nlocal expiry_ms",
        "local expiry_ms",
    ),
    "the dead are counted": ("call('ZCARD', WAITING) - #lapsed + 1", "call('ZCARD', WAITING) + 1"),
    "the tombstone is not asked for": ("if call('EXISTS', DEAD) == 1 then", "if false then"),
    "a withdrawal leaves no tombstone": ("if tomb_ms > 0 then", "if false then"),
    "a withdrawal takes nothing back": ("drop(WAITING, {token})", "local _ = drop"),
    "to stay is to arrive": ("if mode == '1' then", "if false then"),
    "one too few pass": ("if arrived < parties then", "if arrived < parties - 1 then"),
    "one too many pass": ("if arrived < parties then", "if arrived <= parties then"),
    "the first gets 0": ("return a.number > b.number", "return a.number < b.number"),
    "a ticket is cut short": (
        "math.max(barrier.waits, now_ms + ticket_ttl_ms)",
        "now_ms + ticket_ttl_ms - 250 * (now_ms % 2)",
    ),
    "who waits is not woken": ("if one.token ~= token then", "if false then"),
    "the round goes on": ("call('DEL', WAITING)\n", ""),
    "tickets have no end": (
        "for _, key in ipairs({BARRIER, WAITING, TICKETS_OF}) do",
        "for _, key in ipairs({BARRIER, WAITING}) do",
    ),
    "who passed has no end": (
        "for _, key in ipairs({BARRIER, PASSED, TICKETS_OF}) do",
        "for _, key in ipairs({BARRIER, TICKETS_OF}) do",
    ),
}

# The world that meets a rare one soonest; others follow, so that a change of the simulator costs time only.
SOONEST = {
    "the dead are counted": 26,
    "a withdrawal takes nothing back": 5,
    "to stay is to arrive": 5,
    "an arrival counts twice": 3,
    "the first gets 0": 3,
    "a ticket is cut short": 3,
}


@pytest.fixture
def mutate(valkey: Server) -> Iterator[Callable[[str, str], ClockedRig]]:
    rigs: list[ClockedRig] = []

    def make(old: str, new: str) -> ClockedRig:
        hits = []

        def edit(name: str, source: str) -> str:
            if not name.startswith("barrier."):
                return source
            hits.append(source.count(old))
            return source.replace(old, new)

        rigs.append(ClockedRig(valkey.socket_path, edit=edit))
        assert sum(hits), f"no script has {old!r} any more"
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def test_nothing_breaks(mutate: Callable[[str, str], ClockedRig]) -> None:
    rig = mutate("local call", "local call")
    wanted = dict.fromkeys(
        ("arrive W", "arrive P", "arrive U", "leave W", "leave A", "leave P", "died", "lapsed"), 1
    )
    wanted |= {"rounds": 50, "passed by message": 50, "passed by asking": 50}
    # From the first worlds on in which a ticket lapses.
    assert fuzz(partial(BarrierWorld, rig), range(26, 1_000_000), seconds=SECONDS, wanted=wanted)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_script_is_noticed(mutate: Callable[[str, str], ClockedRig], mutant: str) -> None:
    rig = mutate(*MUTANTS[mutant])
    with pytest.raises(Broken) as caught:
        fuzz(partial(BarrierWorld, rig), range(SOONEST.get(mutant, 0), 200), seconds=inf)
    print(mutant, "->", str(caught.value)[:150])
