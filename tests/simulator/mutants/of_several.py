"""Wrong protocols of permits, of several names, of independent masters and of replicas."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from math import inf
from typing import Any
from unittest.mock import patch

from pawlock.core import acquire, engine, wait
from pawlock.core.runtime import Call
from pawlock.primitives.multi.lease import BaseMultiLease, HeldMultiLease, members_of
from pawlock.primitives.mutex import Mutex
from pawlock.redlock.nodes import KnownMasters
from pawlock.redlock.options import RedlockOptions
from pawlock.redlock.requests import RedlockMutex, Vote
from pawlock.redlock.votes import Votes
from tests.simulator.mutants.of_one import time_of_the_process, watching_time
from tests.simulator.quorum import QuorumSimRuntime
from tests.simulator.runtime import SimRuntime
from tests.unit.scripts.test_permit_fuzz import MUTANTS as PERMITS

Where = tuple[tuple[str, ...], tuple[str, ...]]

_MASTERS: Where = ("mutex",), ("redlock3", "redlock5")
_PERMIT: Where = ("semaphore", "rwlock"), ("single",)
_SEVERAL: Where = ("multi_lock",), ("single",)
_PAIR: Where = ("mutex",), ("pair",)


def _half(self: Votes, nodes: int) -> None:
    _votes(self, nodes)
    self.needed = nodes // 2


_votes = Votes.__init__


def _writes_nothing(self: RedlockMutex, vote: Vote, fence: int) -> Call:
    del fence
    return self.renew(vote.token, vote.ttl_ms, 0, "")


async def _undoes_nothing(self: QuorumSimRuntime, calls: Any, timeout: float) -> Any:
    # A caller's own question has more time, nearly always.
    undoes = calls[0].name == "leave" and timeout == self._known.timeout
    return [] if undoes else await _call_many(self, calls, timeout)


_call_many = QuorumSimRuntime.call_many


def _knows_before_it_greets(self: KnownMasters, index: int, info: str, now: float) -> Any:
    return _met(self, index, info, now)._replace(counts_from=-inf)


_met = KnownMasters.met


def _needs_all(self: Votes) -> Any:
    self.needed = self.nodes
    return _result(self)


_result = Votes.result


def _of_its_own(
    self: QuorumSimRuntime, process: Any, network: Any, fleet: Any, api: str, lives: KnownMasters
) -> None:
    """A loop that knows of restarts only what its own connections said."""
    own = copy(lives)
    own.present, own.heard_at = list(lives.present), list(lives.heard_at)
    _runtime(self, process, network, fleet, api, own)


_runtime = QuorumSimRuntime.__init__


def _nothing(*_: Any) -> None:
    """Does nothing."""


def _from_the_reply(self: RedlockOptions, sent_at: float, left_ms: int, asked_ms: int) -> float:
    return _valid_until(self, max(sent_at, time_of_the_process()), asked_ms, max(left_ms, asked_ms))


_valid_until = RedlockOptions.valid_until


def _checks_the_last(self: BaseMultiLease) -> None:
    members_of(self)[-1].check()


def _wait_as_ttl(self: Mutex, token: str, ttl_ms: int, ticket_ms: int, **more: Any) -> Any:
    return _acquire(self, token, min(ttl_ms, 150), ticket_ms, **more)


_acquire = Mutex.acquire


def _says_nothing(self: SimRuntime, link: Any) -> None:
    waiters, self._waiters = self._waiters, {}
    _gone(self, link)
    self._waiters = waiters


_gone = SimRuntime._gone


async def _waits_for_nobody(asker: Any, *rest: Any) -> Any:
    *_, call, budget = rest
    return await asker.runtime.call(call, budget)


CLIENTS: dict[str, Callable[[], list[Any]]] = {
    "half of the masters are a quorum": lambda: [patch.object(Votes, "__init__", _half)],
    "the fence of a majority is not written back": lambda: [
        patch.object(RedlockMutex, "ratify", _writes_nothing)
    ],
    "a try that was refused is not undone": lambda: [
        patch.object(QuorumSimRuntime, "call_many", _undoes_nothing)
    ],
    "a master that restarted counts at once": lambda: [
        patch.object(KnownMasters, "_counts_from", lambda *_: -inf)
    ],
    "a restart is looked for before the greeting alone": lambda: [
        patch.object(KnownMasters, "met", _knows_before_it_greets)
    ],
    "a token that was taken back is used by the next": lambda: [
        patch.object(acquire, "_begin_try", _nothing)
    ],
    "each loop knows by itself": lambda: [patch.object(QuorumSimRuntime, "__init__", _of_its_own)],
    "a renewal needs every master": lambda: [patch.object(Votes, "result", _needs_all)],
    "a far master has no more time than a near one": lambda: [patch.object(KnownMasters, "took", _nothing)],
    "no look at the time after the quorum": lambda: [
        watching_time(),
        patch.object(RedlockOptions, "valid_until", _from_the_reply),
    ],
    "a multi-lock is as good as its last name": lambda: [
        patch.object(BaseMultiLease, "check", _checks_the_last),
        patch.object(HeldMultiLease, "valid_until", property(lambda self: self.leases[-1].valid_until)),
    ],
    "the wait is sent as ttl": lambda: [patch.object(Mutex, "acquire", _wait_as_ttl)],
    "a waiter does not ask after it connects anew": lambda: [
        patch.object(SimRuntime, "_gone", _says_nothing),
        patch.object(wait, "_patience", lambda *_: 1e9),
    ],
    "S7 a grant counts before the replica has it": lambda: [
        patch.object(acquire, "ask_with_replicas", _waits_for_nobody)
    ],
    "an undo sets no tombstone": lambda: [
        patch.object(engine, "TOMB_MS", 0),
        patch("pawlock.core.lease.TOMB_MS", 0),
        patch("pawlock.core.acquire.TOMB_MS", 0),
        patch("pawlock.redlock.requests.TOMB_MS", 0),
    ],
}

_LEAVE_HOLDS = "if holding and not closing and not found.token then\n"

SCRIPTS: dict[str, tuple[str, str]] = {
    "S4 a write-back counts on any master": (
        "if value ~= token then\nlocal CLOSED",
        "if value ~= token and wanted == 0 then\nlocal CLOSED",
    ),
    "a vote is given without a check": (
        "  return {'X', RID, now_us}\nend\nif value then",
        "  return {'X', RID, now_us}\nend\nif false then",
    ),
    "renewing a vote takes a name that is free": (
        "if value ~= token then\nlocal CLOSED",
        (
            "if not value then\n  call('SET', NAME, token, 'PXAT', string.format('%.0f', now_ms + ttl_ms))\n"
            "  value, left_ms = token, ttl_ms\nend\nif value ~= token then\nlocal CLOSED"
        ),
    ),
    "a vote's fence is the proposal alone": (
        "proposal > last and proposal <= last + 3600000000 and",
        "proposal > 0 and",
    ),
    "a grant mints no fence": (
        "  return mint(block, expiry_ms)\nend",
        "  return tonumber(fence[1] or '1')\nend",
    ),
    "the fence ends with the lease": ("promised = from + FENCE_TTL", "promised = from + 1000"),
    "dead tickets stay at the head": (
        "      if expiry > now_ms then\n        found.token",
        "      if true then\n        if expiry <= now_ms then return {drop = {}} end\n        found.token",
    ),
    "tickets are dropped by the clock of who asks": (
        "      if expiry > now_ms then\n        found.token",
        "      if expiry > now_ms + 1500 then\n        found.token",
    ),
    "the waiter is notified before the name is free": (
        _LEAVE_HOLDS,
        "if holding and waiting == nil then\n",
    ),
    "a release writes before it deletes": (
        "local waiting, tomb = call('HEXISTS', TICKETS, token) == 1, not holding and call('GET', DEAD)\nlocal closing",
        (
            "if tomb_ms > 0 then\n  call('SET', DEAD, '1', 'PXAT', digits(now_ms + tomb_ms))\nend\n"
            "local waiting, tomb = call('HEXISTS', TICKETS, token) == 1, not holding and call('GET', DEAD)\nlocal closing"
        ),
    ),
    "all readers share one ttl": (
        "call('ZRANGEBYSCORE', NAME, '-inf', '(' .. now)",
        "call('ZRANGEBYSCORE', NAME, '-inf', '(0')",
    ),
    "renew makes every reader live": (
        "  outlive(HOLDS, held.expiry)\n",
        (
            "  for _, member in ipairs(call('ZRANGE', NAME, 0, -1)) do\n"
            "    call('ZADD', NAME, digits(held.expiry), member)\n  end\n  outlive(HOLDS, held.expiry)\n"
        ),
    ),
    "readers are a number": (
        "call('ZADD', NAME, digits(one.expiry), one.mode .. ':' .. one.token)",
        "call('ZADD', NAME, digits(one.expiry), one.mode .. ':' .. one.token .. RID)",
    ),
    "permits are a number without an end": (
        "  return state\nend\nlocal function fits",
        (
            "  state.weight = limit > 0 and call('HLEN', HOLDS) or state.weight\n  return state\nend\n"
            "local function fits"
        ),
    ),
    **{f"permits: {name}": texts for name, texts in PERMITS.items()},
}

WHERE: dict[str, Where] = {
    **dict.fromkeys(
        (
            "half of the masters are a quorum", "the fence of a majority is not written back",
            "a try that was refused is not undone", "a master that restarted counts at once",
            "no look at the time after the quorum", "S4 a write-back counts on any master",
            "a vote is given without a check", "renewing a vote takes a name that is free",
            "a vote's fence is the proposal alone", "a restart is looked for before the greeting alone",
            "a token that was taken back is used by the next",
            "each loop knows by itself",
            "a renewal needs every master",
            "a far master has no more time than a near one",
        ),
        _MASTERS,
    ),
    **dict.fromkeys(
        (
            "all readers share one ttl", "renew makes every reader live", "readers are a number",
            "permits are a number without an end", *(f"permits: {name}" for name in PERMITS),
        ),
        _PERMIT,
    ),
    "a multi-lock is as good as its last name": _SEVERAL,
    "S7 a grant counts before the replica has it": _PAIR,
}  # fmt: skip
"""What a mutant is about, and on which servers; where nothing is said, a mutex on one."""

FAULTS: dict[str, tuple[str, ...]] = {
    "permits: leave sets no tombstone": ("late_copy",),
    "permits: acquire ignores the tombstone": ("late_copy",),
    "permits: the quick grant ignores the tombstone": ("late_copy",),
    "permits: a late copy of the acquire does not find the reader": ("late_copy",),
    "permits: acquire again lowers its ticket": ("late_copy", "clock_back"),
    "permits: the quick grant passes the queue by": ("kill", "pause"),
    "a master that restarted counts at once": ("crash_empty", "kill"),
    "a restart is looked for before the greeting alone": ("crash_empty", "new_threads"),
    "each loop knows by itself": ("crash_empty",),
    "the fence of a majority is not written back": ("stall", "delay", "crash_keep"),
    "no look at the time after the quorum": ("pause", "suspend"),
    "a release writes before it deletes": ("no_memory",),
    "a waiter does not ask after it connects anew": ("reset",),
    "an undo sets no tombstone": ("late_copy",),
    "S7 a grant counts before the replica has it": ("failover_lagging",),
    "dead tickets stay at the head": ("kill",),
    "a multi-lock is as good as its last name": ("admin_delete", "stall"),
    "renew makes every reader live": ("kill", "stall"),
    "all readers share one ttl": ("kill",),
    "permits are a number without an end": ("kill",),
}
"""Which faults show it soonest, where not any will do."""

_ASK = "no client of the simulator changes a limit or asks for more than there are"
_RARE = "pawlock's own client makes the calls that show it too seldom"
_POLLS = "a waiter that is not notified asks by itself a moment later"

UNSEEN: dict[str, str] = {
    "permits: the quick grant asks for no agreement": _ASK,
    "permits: who can never be served stays": _ASK,
    "permits: a waiter that can never be served is not notified": _ASK,
    "permits: a change of the limit serves nobody": _ASK,
    "permits: a late copy of the acquire does not find the reader": _RARE,
    "permits: the quick grant passes the queue by": _RARE,
}
"""What pawlock's own client never gets to feel; the scripts' own tests find these."""
