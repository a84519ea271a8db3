"""The scripts under clients that crash, and the proof that this would notice a script that is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.resources import files
from math import inf

import pytest

from tests.support.servers import Server
from tests.unit.scripts.fuzz import Broken, fuzz
from tests.unit.scripts.rig import Rig

SECONDS = float(os.environ.get("PAWLOCK_FUZZ_SECONDS", "0.3"))
FIRST = int(os.environ.get("PAWLOCK_FUZZ_SEED", "0"))

# As a script has it: without its comment.
CLOCK = "if" + files("pawlock.primitives").joinpath("_clock.lua").read_text().rstrip().partition("\nif")[2]

# name: (old text, new text); the text is replaced wherever it is, in every script that has it.
MUTANTS: dict[str, tuple[str, str]] = {
    "renew lowers an expiry": ("if left < ttl_ms then", "if true then"),
    "acquire ignores the tombstone": ("call('EXISTS', DEAD) == 1", "false"),
    "leave sets no tombstone": ("if tomb_ms > 0 then", "if false then"),
    "a hand-off raises to the full ttl": (
        "grant(found.token, found.expiry, found.block)",
        "grant(found.token, now_ms + 3000, found.block)",
    ),
    "renew creates a ticket": (
        "  reply = {'U', RID, present(value)}\n",
        "  reply = enqueue(token, ttl_ms, ticket_ttl_ms, 1, 'c', '-', 99, value or found and found.token, {})\n",
    ),
    "last is the start of the block": (
        "cur + math.max(block, 1) - 1",
        "cur",
    ),
    "leave does not pump": ("local serves = head and", "local serves = false and"),
    "leave does not compare": ("local holding = value == token", "local holding = value and true"),
    "the fence is the clock alone": ("math.max(tonumber(fence[1] or '0') + 1, now_us)", "now_us"),
    "acquire barges past the queue": (
        "local queued = not value and call('ZRANGE'",
        "local queued = mode == '3' and call('ZRANGE'",
    ),
    "the quick grant passes the queue by": (
        "call('EXISTS', NAME, QUEUE, DEAD) == 0",
        "call('EXISTS', NAME, DEAD) == 0",
    ),
    "the quick grant ignores the tombstone": (
        "call('EXISTS', NAME, QUEUE, DEAD) == 0",
        "call('EXISTS', NAME, QUEUE) == 0",
    ),
    "the quick ticket ignores the tombstone": (
        "< tonumber(ARGV[7]) and call('EXISTS', DEAD) == 0 then",
        "< tonumber(ARGV[7]) then",
    ),
    "the quick ticket replaces an older one": ("call('HSETNX', TICKETS", "1 + call('HSET', TICKETS"),
    "the quick ticket goes before the others": ("math.max(now_us, tail + 1)", "tail - 1"),
    "the quick ticket is for who holds": (" and #chance > 21 and value ~= token\n", " and #chance > 21\n"),
    "the quick fence of a free name is the clock alone": ("math.max((fence[1] or 0) + 1, now_us)", "now_us"),
    "the quick fence is the clock alone": ("math.max((last or 0) + 1, now_us)", "now_us"),
    "the quick hand-off grants a dead head": (
        "expiry and tonumber(expiry) > now_ms and",
        "expiry and",
    ),
    "the quick hand-off leaves the ticket": ("      call('ZREM', QUEUE, head)\n", ""),
    "acquire does not pump": ("  local found = plan(queued)\n", "  local found = {drop = {}}\n"),
    "renew does not pump": (
        "local found = not value and plan(nil, token, expiry)",
        "local found = not value and {drop = {}}",
    ),
    "dead heads are granted": (
        "if expiry > now_ms then\n        found.token",
        "if true then\n        found.token",
    ),
    "the newest ticket is granted": (
        "head and {head} or call('ZRANGE', QUEUE, 0, 0)",
        "call('ZRANGE', QUEUE, 0, 0, 'REV')",
    ),
    "a granted ticket stays": (
        "pump(found, token)\n  remove(found.drop)",
        "pump(found, token)",
    ),
    "acquire again lowers its ticket": ("    if expiry > had then\n", "    if true then had = 0\n"),
    "renew lowers a ticket": (
        "mine and math.max(parse(ticket), now_ms + ticket_ttl_ms)",
        "mine and now_ms + ticket_ttl_ms",
    ),
    "PTTL is read after TIME": (
        f"  local left = call('PTTL', NAME)\n{CLOCK}\n",
        f"{CLOCK}\n  local left = call('PTTL', NAME)\n",
    ),
    "queue keys follow the last ticket": (
        "if call('PTTL', key) < expiry_ms - now_ms then\n    call('PEXPIREAT', key, digits(expiry_ms + S",
        "if true then\n    call('PEXPIREAT', key, digits(expiry_ms + 0 * S",
    ),
    "leave keeps the ticket": ("if waiting then\n  found.drop", "if false then\n  found.drop"),
    "a message carries another expiry": (
        "digits(found.cur), digits(found.expiry), digits(now_ms)",
        "digits(found.cur), digits(found.expiry + 300), digits(now_ms)",
    ),
}

# The world that meets a rare one soonest; others follow, so that a change of the simulator costs time only.
SOONEST = {
    "PTTL is read after TIME": 16,
    "acquire again lowers its ticket": 15,
    "the quick hand-off grants a dead head": 19,
    "the quick hand-off leaves the ticket": 3,
    "the quick grant ignores the tombstone": 5,
    "the quick fence is the clock alone": 11,
    "acquire barges past the queue": 1,
    "the quick grant passes the queue by": 1,
}


@pytest.fixture
def mutate(valkey: Server) -> Iterator[Callable[[str, str], Rig]]:
    rigs: list[Rig] = []

    def make(old: str, new: str) -> Rig:
        hits = []

        def edit(_: str, source: str) -> str:
            hits.append(source.count(old))
            return source.replace(old, new)

        rigs.append(Rig(valkey.socket_path, edit=edit))
        assert sum(hits), f"no script has {old!r} any more"
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def test_nothing_breaks(rig: Rig) -> None:
    wanted = dict.fromkeys(("acquire H", "renew Q", "renew U", "leave A"), 1)
    wanted |= {"held": 100, "by message": 50}
    worlds, _ = fuzz(rig, range(FIRST, FIRST + 1_000_000), seconds=SECONDS, wanted=wanted)
    assert worlds


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_script_is_noticed(mutate: Callable[[str, str], Rig], mutant: str) -> None:
    rig = mutate(*MUTANTS[mutant])
    with pytest.raises(Broken) as caught:
        fuzz(rig, range(SOONEST.get(mutant, 0), 200), seconds=inf)
    print(mutant, "->", str(caught.value)[:150])
