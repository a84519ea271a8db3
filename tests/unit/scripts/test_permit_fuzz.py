"""The scripts of permits under clients that crash, and the proof that this would notice a script that is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import inf

import pytest

from tests.support.servers import Server
from tests.unit.scripts.fuzz import Broken, fuzz
from tests.unit.scripts.permit_fuzz import PermitWorld
from tests.unit.scripts.permit_rig import PermitRig

SECONDS = float(os.environ.get("PAWLOCK_FUZZ_SECONDS", "0.3"))
FIRST = int(os.environ.get("PAWLOCK_FUZZ_SEED", "0"))


# name: (old text, new text); the text is replaced wherever it is, in every script that has it.
MUTANTS: dict[str, tuple[str, str]] = {
    "a writer is a weight": (
        "if mode == 'x' then\n    return state.count",
        "if mode == 'z' then\n    return state.count",
    ),
    "a writer needs only no other writer": ("return state.count == 0", "return not state.exclusive"),
    "readers enter beside a writer": ("return not state.exclusive and (", "return ("),
    "a writer is not looked for": ("limit > 0 or state.count == 1", "limit > 0"),
    "the limit counts holders, not weights": (
        "state.weight + tonumber(mode) <= state.limit",
        "state.count + tonumber(mode) <= state.limit",
    ),
    "one permit too many": (
        "state.weight + tonumber(mode) <= state.limit",
        "state.weight + tonumber(mode) <= state.limit + 1",
    ),
    "grants in one run do not count": ("  state.weight = state.weight + (tonumber(mode) or 0)\n", ""),
    "a late copy changes the mode": (
        "  return held_reply({fence = kept_fence, expiry = expiry, mode = had})",
        "  call('ZREM', NAME, had .. ':' .. token) call('ZADD', NAME, digits(expiry), mode .. ':' .. token)\n",
    ),
    "a late copy of the acquire does not find the reader": (
        "if not expiry and (mode == '1' or mode == 'x') then",
        "if not expiry and mode == '1' then",
    ),
    "a downgrade adds the reader and keeps the writer": ("    call('ZREM', NAME, 'x:' .. token)\n", ""),
    "a downgrade wakes nobody": ("  if waiters == 0 then\n", "  if true then\n"),
    "renew lowers an expiry": (
        "held.expiry = math.max(expiry, now_ms + ttl_ms)",
        "held.expiry = now_ms + ttl_ms",
    ),
    "renew makes every holder live": (
        "ZADD', NAME, digits(held.expiry), had",
        "ZADD', NAME, digits(held.expiry + 1), had",
    ),
    "the set does not outlive its holders": (
        "local lives = digits(math.max(held.expiry, now_ms + left))",
        "local lives = digits(held.expiry)",
    ),
    "renew creates a holder": (
        "  reply = {'U', RID, 'none'}\n",
        "  call('ZADD', NAME, digits(now_ms + ttl_ms), mode .. ':' .. token)\n  reply = {'U', RID, 'none'}\n",
    ),
    "renew does not serve the queue": (
        "local found = plan(state, mine and token, own_expiry)",
        "local found = {drop = {}, grants = {}, refused = {}}",
    ),
    "leave does not serve the queue": (
        "local found = plan(state, token, 0)",
        "local found = {drop = {}, grants = {}, refused = {}}",
    ),
    "leave keeps the ticket": ("if waiting then\n", "if false then\n"),
    "leave checks only the mode it was given": (
        "if not expiry and (mode == '1' or mode == 'x') then",
        "if not expiry and mode == 'x' then",
    ),
    "leave frees somebody": (
        "  state.dead[#state.dead + 1] = member\n",
        "  call('ZPOPMIN', NAME)\n",
    ),
    "leave sets no tombstone": ("if tomb_ms > 0 then", "if false then"),
    "acquire ignores the tombstone": ("call('EXISTS', DEAD) == 1", "false"),
    "the quick grant ignores the tombstone": (
        "call('EXISTS', NAME, QUEUE, DEAD, HOLDS) == 0",
        "call('EXISTS', NAME, QUEUE, HOLDS) == 0",
    ),
    "the quick grant passes the queue by": (
        "call('EXISTS', NAME, QUEUE, DEAD, HOLDS) == 0",
        "call('EXISTS', NAME, DEAD, HOLDS) == 0",
    ),
    "the quick grant asks for no agreement": (
        "tonumber(mode) <= tonumber(kept[4])",
        "true",
    ),
    "the quick fence is the clock alone": ("math.max((kept[1] or 0) + 1, now_us)", "now_us"),
    "the fence is the clock alone": ("math.max(tonumber(fence[1] or '0') + 1, now_us)", "now_us"),
    "all who enter together get one fence": ("one.fence = cur + i - 1", "one.fence = cur"),
    "the block is too small": (
        "local cur = mint(#grants, longest)",
        "local cur = mint(1, longest)",
    ),
    "acquire barges past the queue": (
        "not found.mine and not found.blocked and fits",
        "not found.mine and fits",
    ),
    "few pass many": (
        "          found.blocked = true\n          return found\n",
        "          found.blocked, member = true, 'nobody'\n",
    ),
    "dead heads are served": (
        "if expiry > now_ms then\n        if hopeless",
        "if true then\n        if hopeless",
    ),
    "the dead count": ("call('ZCARD', NAME) - #state.dead", "call('ZCARD', NAME)"),
    "the dead are not counted out of the weight": (
        "local members = few and call('ZRANGEBYSCORE', NAME, now, '+inf') or {}",
        "local members = few and call('ZRANGE', NAME, 0, -1) or {}",
    ),
    "the dead leave their fences": (
        "      stale[#stale + 1] = token\n    end\n  end\n  for",
        "    end\n  end\n  for",
    ),
    "a lost set leaves its fences": ("state.count == #grants and call('HKEYS', HOLDS) or {}", "{}"),
    "a hand-off raises to the full ttl": (
        "call('ZADD', NAME, digits(one.expiry), one.mode",
        "call('ZADD', NAME, digits(one.expiry + 700), one.mode",
    ),
    "a granted ticket stays": (
        "bury_holders(state, found, stale)\nremove(found.drop)\n",
        "bury_holders(state, found, stale)\n",
    ),
    "who can never be served stays": (
        "        if hopeless(mode, state) then\n",
        "        if false then\n",
    ),
    "a waiter that can never be served is not notified": ("    tell(one.channel, one.token, 0, 1)\n", ""),
    "a change of the limit serves nobody": (
        "local found = plan(state)\nkeep_limit",
        "local found = {drop = {}, grants = {}, refused = {}}\nkeep_limit",
    ),
    "a message carries another expiry": (
        "tell(one.channel, one.token, one.fence, one.expiry)",
        "tell(one.channel, one.token, one.fence, one.expiry + 300)",
    ),
    "only the first is notified": (
        "    if one.token ~= own then\n",
        "    if one.token ~= own and i == 1 then\n",
    ),
    "acquire again lowers its ticket": ("    if expiry > had then\n", "    if true then had = 0\n"),
    "renew lowers a ticket": (
        "mine and math.max(parse(ticket), now_ms + ticket_ttl_ms)",
        "mine and now_ms + ticket_ttl_ms",
    ),
}

# The world that meets a rare one soonest; others follow, so that a change of the simulator costs time only.
SOONEST = {
    "acquire again lowers its ticket": 17,
    "a lost set leaves its fences": 10,
    "the quick grant ignores the tombstone": 1,
    "the quick grant asks for no agreement": 2,
    "the quick fence is the clock alone": 1,
    "the fence is the clock alone": 1,
    "dead heads are served": 1,
    "a change of the limit serves nobody": 2,
}


@pytest.fixture
def rig(server: Server) -> Iterator[PermitRig]:
    found = PermitRig(server.socket_path)
    yield found
    found.close()


def test_nothing_breaks(rig: PermitRig) -> None:
    answers = ("acquire H", "acquire B", "renew Q", "renew U", "leave W", "leave A", "limit L")
    wanted = dict.fromkeys((*answers, "together", "downgraded", "by message"), 1)
    seeds = range(FIRST, FIRST + 1_000_000)
    worlds, _ = fuzz(rig, seeds, seconds=SECONDS, kind=PermitWorld, wanted=wanted)
    assert worlds


@pytest.fixture
def mutate(valkey: Server) -> Iterator[Callable[[str, str], PermitRig]]:
    rigs: list[PermitRig] = []

    def make(old: str, new: str) -> PermitRig:
        hits: list[int] = []

        def edit(_: str, source: str) -> str:
            hits.append(source.count(old))
            return source.replace(old, new)

        rigs.append(PermitRig(valkey.socket_path, edit=edit))
        assert sum(hits), f"no script has {old!r} any more"
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_script_is_noticed(mutate: Callable[[str, str], PermitRig], mutant: str) -> None:
    rig = mutate(*MUTANTS[mutant])
    with pytest.raises(Broken) as caught:
        fuzz(rig, range(SOONEST.get(mutant, 0), 200), seconds=inf, kind=PermitWorld)
    print(mutant, "->", str(caught.value)[:150])
