"""More fences for a run of local hand-overs, asked for beside the run.

A run ends after ``handover`` grants, so that other clients have their turn. While nobody is queued on the server there
is no turn to give, and the next block of fences may be had without an end: the server reserves it only then. The count
begins anew from the question, so who comes to the server after it waits no longer than after the end of a run.

A thread that releases posts the question, and the last owner of the run fetches the answer, which lies there by then:
a thread of its own for it would only take turns with all others. Where a call does not block, one who waits asks.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, cast

from pawl.core.runtime import Fault
from pawl.core.tenure import Tenure

if TYPE_CHECKING:
    from pawl.core.engine import Engine
    from pawl.core.handover import Place
    from pawl.core.lease import BaseLease
    from pawl.core.options import LockOptions
    from pawl.core.primitive import HandedPrimitive
    from pawl.core.runtime import Call, Reply

__all__ = ["ask_more", "look_ahead"]


def look_ahead(engine: Engine, place: Place, lease: BaseLease) -> None:
    """Before a hand-over late in a run: ask for more fences, or fetch them if these are used up."""
    tenure = lease._tenure
    options, posted = tenure.options, tenure.posted
    try:
        if posted is None:
            if _may_ask(engine, place, tenure, options):
                _post(engine, tenure, options)
        elif place.streak >= options.handover or tenure.used >= (tenure.most or options.handover):
            tenure.posted = None
            _take(place, tenure, posted[0](), posted[1], posted[2], options)
    except Fault:
        # The run ends as any other does, with a question that is asked until it is answered.
        return
    except BaseException:
        # Ctrl-C during the wait for the answer: the release was wanted, and goes on without its caller.
        if lease._levels == 1 and lease._take_end():
            engine.finish_release(lease)
        raise


def _post(engine: Engine, tenure: Tenure, options: LockOptions) -> None:
    asked_at = engine.runtime.now()
    fetch = engine.runtime.post(_call(tenure, options), options.request_timeout)
    if fetch is not None:
        tenure.asked = True
        tenure.posted = fetch, tenure.used, asked_at
    elif 0.0 < engine.look_at < inf:
        # Mostly the upkeep has no connection yet: what it is to ask soon may as well be asked now.
        engine.look_at = 0.0
        engine.runtime.nudge()


async def ask_more(engine: Engine, place: Place, options: LockOptions, timeout: float | None) -> None:
    """For one who waits: ask for more fences while others use the rest.

    Args:
        engine: The client's engine.
        place: Where the caller waits.
        options: How it wants the lock.
        timeout: Seconds that it wants to wait.
    """
    tenure = place.keeper()
    # An answer that does not come must not end a wait late, nor cost an impatient caller its connection.
    patient = timeout is None or timeout > options.request_timeout
    # Who asks is the last of them, and has its answer before its turn.
    enough = len(place.sleepers) >= options.handover - options.asks_at
    if not (patient and enough and isinstance(tenure, Tenure) and _may_ask(engine, place, tenure, options)):
        return
    line = engine.runtime.line()
    if line is None:
        return
    tenure.asked = True
    used, asked_at = tenure.used, engine.runtime.now()
    try:
        asked = line.ask(_call(tenure, options), options.request_timeout)
        reply = asked if isinstance(asked, list) else await asked
    except Fault:
        return
    _take(place, tenure, reply, used, asked_at, options)


def _may_ask(engine: Engine, place: Place, tenure: Tenure, options: LockOptions) -> bool:
    return (
        tenure.lone
        and not tenure.asked
        and 0 < options.asks_at <= place.streak
        and place.may_hand_over(tenure, engine.runtime.now())
        and engine.quorum is None
        and engine.history is None
        and engine.observer is None
    )


def _call(tenure: Tenure, options: LockOptions) -> Call:
    return cast("HandedPrimitive", tenure.primitive).more(tenure.token, options.handover)


def _take(
    place: Place, tenure: Tenure, reply: Reply | None, used: int, asked_at: float, options: LockOptions
) -> None:
    if reply is not None and reply[0] == b"H":
        place.take_more(tenure, reply[2], used, asked_at, options.handover)
