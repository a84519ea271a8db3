"""The end of a client.

A call that goes on afterwards finds every connection closed; what it holds by then is over, and it raises
``ClientClosed``. So does a call on top of which a signal handler closes the client: what that has on the server by then
ends by its TTL.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from pawlock.core.records import Schedule
from pawlock.model import LossReason

if TYPE_CHECKING:
    from pawlock.core.engine import Engine

__all__ = ["close", "drain", "end_leases"]

_CLOSING_STEP = 0.002
_TRIES_BEFORE_CLOSE = 2
"""How often a server is tried that does not answer, before the client closes: an unreachable node of several masters in
any case, a single server once the time for one that does not answer is over."""


async def close(
    engine: Engine,
    interrupt: Callable[[], object],
    timeout: float,
    unanswered: float = inf,
    below: object = None,
) -> None:
    """Wake all waiters, release all leases, and leave every token that is still to be left.

    Args:
        engine: The client's engine.
        interrupt: Wakes what sleeps in the runtime.
        timeout: Seconds for all of it.
        unanswered: Seconds after which a single server that has twice not answered for a token is not waited for;
            inf: it is, until ``timeout``. Counted in steps of this loop, which take longer where the machine is busy:
            the answers do so, too.
        below: The thread on top of whose call a signal handler closes the client: that call cannot end before.
    """
    # One that was closed already, or is being closed by another thread or task, still waits for what is left.
    engine.closed = True
    runtime = engine.runtime
    here = runtime.who() if below is None else below
    end, steps = runtime.now() + timeout, 0
    if engine.reports.watcher is not None and engine.maintenance_runs:
        engine.reports.watcher.leave(engine)
    while True:
        # Asked before the leases are listed: what an acquisition gets until then is among them.
        busy = any(who is not here for who in tuple(engine.calls.values()))
        for attempt in tuple(engine.waits):
            attempt.unpark()
        interrupt()
        end_leases(engine)
        entries = tuple(engine.outbox)
        silent = any(entry.attempt >= _TRIES_BEFORE_CLOSE for entry in entries)
        if silent and steps * _CLOSING_STEP >= unanswered:
            break
        leaving = engine.maintenance_runs and bool(entries)
        if not (busy or leaving) or runtime.now() >= end:
            break
        engine.background.nudge()
        await runtime.pause(_CLOSING_STEP)
        steps += 1
    engine.outbox.clear()
    engine.schedule = Schedule(engine.guard)


async def drain(engine: Engine, timeout: float) -> None:
    """Wait for what a client that is closed no more has to leave: at the end of the process, in its main thread.

    Args:
        engine: The client's engine.
        timeout: Seconds for all of it; a server that has twice not answered is not waited for.
    """
    background = engine.background
    end = background.now() + timeout
    while engine.maintenance_runs and background.now() < end:
        if all(entry.attempt >= _TRIES_BEFORE_CLOSE for entry in tuple(engine.outbox)):
            break
        background.nudge()
        await background.pause(_CLOSING_STEP)


def end_leases(engine: Engine) -> None:
    """Lose all leases of a client that is closed; from any thread."""
    # Of a call that goes on, one may be between two places of the schedule.
    for hold in (*engine.schedule.all(), *tuple(engine.held.values())):
        engine.lose(hold, LossReason.CLOSED)
