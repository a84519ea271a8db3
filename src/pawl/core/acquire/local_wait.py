"""Waiting for a name that somebody of the same client has: in the local queue, behind one ticket for all.

A caller is a ``Sleeper`` from its first step to its lease. Until then everything that it has of the name can be
found through it, and ``pass_back`` gives that back from wherever its call broke off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawl.core.acquire.giving_up import timed_out
from pawl.core.protocol.runtime import StopSignal
from pawl.core.retry import STOP_POLL, check_stop
from pawl.core.state.records import Claim
from pawl.errors import ClientClosed
from pawl.model import LeaseState

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pawl.core.keep.engine import Engine
    from pawl.core.lease.base import BaseLease
    from pawl.core.protocol.runtime import Runtime
    from pawl.core.state.local_queue import Sleeper
    from pawl.core.state.plan import Plan

__all__ = ["await_turn", "left", "own", "pass_back", "sit_down"]


def sit_down(engine: Engine, plan: Plan, sleeper: Sleeper, spot: tuple[Hashable, str]) -> bool:
    """Wait in the local queue; False if this is not the straight way, and nothing was done.

    Args:
        engine: The client's engine.
        plan: The lock.
        sleeper: The caller.
        spot: The caller's thread or task, and the key that it wants.
    """
    place = engine.places._places.get(plan.spot)
    if place is None or spot in engine.held or engine.closed:
        return False
    # Before it sits there: it may be served at once, and a close waits for whom it sees waiting. The caller removes it.
    sleeper.parker = engine.runtime.parker()
    engine.waits[sleeper] = plan.primitive, spot[0], engine.runtime.now()
    if not engine.places.sit_down(place, sleeper, sleeper.parker):
        return False
    book = engine.book
    if book is not None and not book.armed:
        book.watch()
    return True


def own(
    engine: Engine, plan: Plan, sleeper: Sleeper | Claim, lease: BaseLease, spot: tuple[Hashable, str]
) -> bool:
    """Own what was handed over; False if it was lost on the way.

    Args:
        engine: The client's engine.
        plan: The lock.
        sleeper: The caller, which has a tenure.
        lease: One that was made beforehand, of nothing.
        spot: The caller's thread or task, and the key that it wanted.
    """
    now = engine.runtime.now()
    tenure = sleeper.tenure
    if tenure is None:
        return False
    engine.counters["handed_over"] += 1
    # No call from here on: Ctrl-C finds it handed over to the sleeper, or owned by the lease.
    lease._tenure = tenure
    lease._number = sleeper.number
    lease._fence = sleeper.fence
    # Who re-enters, and who is notified of a loss, is from here on for this plan to say.
    tenure.primitive, tenure.options, tenure.who = plan.primitive, plan.options, spot[0]
    engine.held[spot] = tenure
    lease._released = False
    tenure.lease = sleeper.lease
    # In this order: a loss from here on finds the lease.
    if tenure.state is not LeaseState.HELD or now >= tenure.valid_until or engine.closed:
        lease._released = True
        return False
    lease._given = True
    sleeper.tenure = None
    return True


async def await_turn(
    engine: Engine, plan: Plan, sleeper: Sleeper, window: tuple[float, float | None], stop: StopSignal | None
) -> None:
    """Sleep until a turn was passed to a sleeper.

    Raises:
        NotAcquired: The time is up, or the caller was asked to stop.
        ClientClosed: The client was closed.
    """
    place, runtime = sleeper.place, engine.runtime
    began, until = window
    # What came before the call, and woke it, is looked at first.
    woken = True
    while True:
        if place is not None and not woken:
            place.take_orphan(sleeper, runtime.new_token())
        if sleeper.served:
            return
        if sleeper.closed or engine.closed:
            raise ClientClosed("the client was closed while waiting", name=plan.primitive.name)
        check_stop(stop, plan.primitive.name)
        if sleeper.alarm is not None:
            raise sleeper.alarm
        over = until is not None and not woken and runtime.now() >= until
        if over and place is not None and place.withdraw(sleeper):
            raise await timed_out(engine, plan, began, None)
        woken = await sleeper.parker.park(_patience(runtime, until, stop))


def pass_back(engine: Engine, plan: Plan, sleeper: Sleeper, who: object) -> None:
    """Give back whatever a caller has of a name: its seat, or its turn, to the next; safe to repeat."""
    place = sleeper.place
    if place is None or (sleeper.waits and place.withdraw(sleeper)):
        return
    tenure = sleeper.tenure
    if tenure is None:
        claim = sleeper.claim or Claim("")
        if not claim.spoken:
            claim.turn = sleeper.turn
            engine.drop_claim(plan.primitive, place, claim)
        return
    lease = tenure.lease() if tenure.lease is not None else None
    if lease is not None and lease._number == sleeper.number:
        # Made, and never given to anybody.
        lease._released = True
    if tenure.used == sleeper.number:
        engine.forget_holder(tenure, who)
        if not engine.end_turn(tenure, engine.runtime.now(), sleeper.number):
            engine.depart_from(tenure)


def _patience(runtime: Runtime, until: float | None, stop: StopSignal | None) -> float | None:
    """How long a local waiter sleeps before it looks around."""
    if until is None and stop is None:
        return runtime.look_after
    pauses = [runtime.look_after, STOP_POLL if stop is not None else None, left(runtime, until)]
    return min((pause for pause in pauses if pause is not None), default=None)


def left(runtime: Runtime, until: float | None) -> float | None:
    """Seconds until a time; None for never."""
    return None if until is None else max(1e-9, until - runtime.now())
