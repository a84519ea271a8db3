"""Protocols that are wrong on purpose: designs that were published, and the holes that pawlock's own first draft had."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from pawlock.core import acquire, engine, giving_up, lease, maintenance, transfer, wait
from pawlock.core.local_queue import WaiterState
from pawlock.core.options import drift
from pawlock.core.records import Hold, valid_until
from pawlock.core.runtime import Fault
from pawlock.errors import BackendUnavailable
from pawlock.model import Release
from tests.simulator.runtime import SimRuntime

Edit = Callable[[str, bytes], bytes]


def edit(old: str, new: str) -> Edit:
    """A script mutant: a text that is replaced wherever it stands."""

    def change(_: str, source: bytes) -> bytes:
        return source.replace(old.encode(), new.encode())

    return change


_formula = valid_until


def _everywhere(formula: Callable[[float, int, int], float]) -> list[Any]:
    return [patch.object(where, "valid_until", formula) for where in (engine, acquire, transfer)]


class _Times:
    """The time of the process that runs: what a formula would have to ask to be wrong."""

    now: Callable[[], float]


def time_of_the_process() -> float:
    """The time of the process that runs."""
    return _Times.now()


def _from_reply(sent_at: float, left_ms: int, asked_ms: int) -> float:
    return _formula(max(sent_at, _Times.now()), left_ms, asked_ms)


def _without_drift(sent_at: float, left_ms: int, asked_ms: int) -> float:
    return sent_at + min(left_ms, asked_ms) / 1000


def _whole_seconds(sent_at: float, left_ms: int, asked_ms: int) -> float:
    life = math.ceil(min(left_ms, asked_ms) / 1000)
    return sent_at + life - drift(life)


def watching_time() -> Any:
    """A patch without which ``time_of_the_process`` knows nothing."""
    original = SimRuntime.__init__

    def init(self: SimRuntime, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        world = self._world

        def now() -> float:
            task = world.current
            return task.process.clock.boot() if task is not None else self.now()

        _Times.now = staticmethod(now)

    return patch.object(SimRuntime, "__init__", init)


def _clock_of(reading: str) -> Any:
    original = SimRuntime.__init__

    def init(self: SimRuntime, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.now = getattr(self._process.clock, reading)

    return patch.object(SimRuntime, "__init__", init)


def _no_second_look(*args: Any) -> Hold:
    _, plan, waiter, granted, sent_at = args
    until = _formula(sent_at, granted.left_ms, plan.options.ttl_ms)
    return Hold(plan.primitive, plan.options, waiter, granted.fence, until, sent_at)


def _trusting_check(engine: Any, plan: Any, waiting: Any, wakeup: Any) -> Hold | None:
    until, now = _Times.now() + plan.options.ticket_ttl * 0.98, engine.runtime.now()
    hold = Hold(plan.primitive, plan.options, waiting, wakeup.fence, until, now)
    hold.confirmed = False
    return hold if plan.options.renewed else None


def _deaf_to_no(engine: Any, hold: Any, _: Any) -> None:
    engine.replan(hold)


def _takes_any_answer(engine: Any, hold: Any, _: Any) -> None:
    ttl_ms = hold.rhythm.ttl_ms
    if not engine.apply_renewals([(hold, ttl_ms, ttl_ms)], engine.runtime.now()):
        engine.replan(hold)


async def _patient_renewal(self: SimRuntime, calls: Any, timeout: float) -> Any:
    return await _call_many(self, calls, max(timeout, 5.0))


_call_many = SimRuntime.call_many
_next_call = acquire._next_call


def _new_token_each_time(plan: Any, attempt: Any, waiting: Any) -> Any:
    if waiting.unanswered and waiting.state is not WaiterState.QUEUED:
        secret, _, shown = waiting.token.partition("@")
        waiting.token = f"{int(secret) + 10**21:022}@{shown}"
    return _next_call(plan, attempt, waiting)


def _passes_on_only(engine: Any, _: Any, attempt: Any, __: Any) -> None:
    if attempt.hold is None and attempt.given is None:
        giving_up._pass_turn(engine, attempt)
    else:
        _give_back(engine, _, attempt, __)


_give_back = giving_up.give_back


async def _says_lost(engine: Any, hold: Any, told: Any, *, unanswered: bool, again: bool) -> Release:
    del unanswered, again
    return await _not_ours(engine, hold, told, unanswered=False, again=False)


_not_ours = lease.not_ours


async def _unknown_is_busy(engine: Any, plan: Any, attempt: Any) -> Any:
    try:
        return await _win(engine, plan, attempt)
    except BackendUnavailable:
        attempt.waiter.state = WaiterState.NEW
        return None


async def _unknown_is_held(engine: Any, plan: Any, attempt: Any) -> Any:
    try:
        return await _win(engine, plan, attempt)
    except BackendUnavailable:
        now = engine.runtime.now()
        return Hold(plan.primitive, plan.options, attempt.waiter, 1, now + plan.options.ttl, now)


_win = acquire.win


def _one_fence_for_all(engine: Any, plan: Any, hold: Any, attempt: Any) -> Any:
    lease = _own_given(engine, plan, hold, attempt)
    if lease is not None:
        lease.fence = hold.fence
    return lease


_own_given = acquire.own_given


def _life_anew(self: Hold, place: Any, now: float) -> None:
    _give_to(self, place, now)
    self.valid_until = now + self.rhythm.ttl


_give_to = Hold.give_to


async def _forgets_before_sending(*_: Any) -> Release:
    return Release.RELEASED


async def _one_try(engine: Any, hold: Any) -> Release:
    try:
        await engine.runtime.call(hold.primitive.leave(hold.token, 0, 0), hold.options.answer_within)
    except Fault:
        return Release.UNKNOWN
    return Release.RELEASED


CLIENTS: dict[str, Callable[[], list[Any]]] = {
    "S2 a late message revives a dead grant": lambda: [
        watching_time(),
        patch.object(wait, "_check", _trusting_check),
    ],
    "S9 local owners share a fence": lambda: [patch.object(acquire, "own_given", _one_fence_for_all)],
    "S9 a hand-over begins the life anew": lambda: [patch.object(Hold, "give_to", _life_anew)],
    "O4 a resent release is called lost": lambda: [patch.object(lease, "not_ours", _says_lost)],
    "O5 any answer to a renewal is a yes": lambda: [patch.object(maintenance, "_refused", _takes_any_answer)],
    "validity from the reply": lambda: [watching_time(), *_everywhere(_from_reply)],
    "no drift": lambda: _everywhere(_without_drift),
    "validity in whole seconds": lambda: _everywhere(_whole_seconds),
    "no look at the time after the reply": lambda: [patch.object(acquire, "_granted", _no_second_look)],
    "the wall clock": lambda: [_clock_of("wall")],
    "a clock that stands in a suspend": lambda: [_clock_of("monotonic")],
    "the watchdog swallows a no": lambda: [patch.object(maintenance, "_refused", _deaf_to_no)],
    "the loss is reported after the renewal returns": lambda: [
        patch.object(SimRuntime, "call_many", _patient_renewal)
    ],
    "a retry takes a new token": lambda: [patch.object(acquire, "_next_call", _new_token_each_time)],
    "a cancelled acquire leaves its token": lambda: [patch.object(acquire, "give_back", _passes_on_only)],
    "unknown is taken for busy": lambda: [patch.object(acquire, "win", _unknown_is_busy)],
    "unknown is taken for held": lambda: [patch.object(acquire, "win", _unknown_is_held)],
    "a release is not sent": lambda: [patch.object(lease, "leave", _forgets_before_sending)],
    "a release is tried once": lambda: [patch.object(lease, "leave", _one_try)],
    "a waiter trusts its message alone": lambda: [patch.object(wait, "_patience", lambda *_: 1e9)],
}
"""Wrong clients: each a list of patches."""

FAULTS: dict[str, tuple[str, ...]] = {
    "O5 any answer to a renewal is a yes": ("admin_delete", "flush"),
    "no look at the time after the reply": ("pause",),
    "a clock that stands in a suspend": ("suspend",),
    "the watchdog swallows a no": ("admin_delete", "flush"),
    "the loss is reported after the renewal returns": ("stall", "cut_out"),
    "a retry takes a new token": ("late_copy", "reply_loss"),
    "a cancelled acquire leaves its token": ("cancel",),
    "unknown is taken for busy": ("reply_loss", "cut_in"),
    "unknown is taken for held": ("reply_loss", "cut_out"),
    "a release is tried once": ("loss",),
    "a waiter trusts its message alone": ("message_loss",),
    "a hand-off needs memory": ("no_memory",),
    "acquire ignores the tombstone": ("late_copy",),
    "leave sets no tombstone": ("late_copy",),
    "the quick grant ignores the tombstone": ("late_copy",),
    "acquire again lowers its ticket": ("clock_back", "late_copy"),
    "the quick ticket ignores the tombstone": ("late_copy", "cancel"),
    "the quick ticket replaces an older one": ("late_copy", "reply_loss"),
    "the fence is the clock alone": ("clock_back",),
    "the quick fence of a free name is the clock alone": ("clock_back",),
    "the quick fence is the clock alone": ("clock_back",),
    "renew lowers a ticket": ("clock_back",),
    "O4 a resent release is called lost": ("reply_loss",),
}
"""Which faults show a mutant soonest, where not any will do."""

_DROP = "      call('ZREM', QUEUE, head)\n      call('HDEL', TICKETS, head)\n"
_GIVE = "call('SET', NAME, head, 'PXAT', expiry)\n"

SCRIPTS: dict[str, tuple[str, str]] = {
    "a resend mints another fence": (
        "return {'H', RID, present_fence(), call('PTTL', NAME), now_ms}",
        "return {'H', RID, mint(1, 0), call('PTTL', NAME), now_ms}",
    ),
    "renew takes a name that is free": (
        "  reply = {'U', RID, present(value)}\nend\nannounce()",
        "  reply = {'H', RID, grant(token, now_ms + ttl_ms, 1), ttl_ms, now_ms}\nend\nannounce()",
    ),
    "a hand-off needs memory": (f"{_DROP}      {_GIVE}", f"      {_GIVE}{_DROP}"),
    "S8 a release passes its waiters by": (
        "if holding and not head and quick",
        "if holding and quick",
    ),
}
"""Wrong scripts beside those of the scripts' own tests: old text, new text."""


UNSEEN = {
    "PTTL is read after TIME": "a lease would have to be longer than what is asked for, by less than the drift",
}
"""What pawlock's own client never gets to feel; the scripts' own tests find these."""


@contextmanager
def wrong(patches: list[Any]) -> Iterator[None]:
    """Run with these patches."""
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield
