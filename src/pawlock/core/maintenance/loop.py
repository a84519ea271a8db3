"""The background loop of a client: it renews leases, sends what is given up, and forgets what is finalised."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pawlock.core.keep.server_check import look
from pawlock.core.maintenance.outbox import forget_finalised, send_due
from pawlock.core.maintenance.renewals import renew_due
from pawlock.core.state.schedule import Schedule

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine

__all__ = ["maintain"]

_LOOK_AGAIN = 1.0
"""Seconds that the loop sleeps at most while anything is to come. The timers of a runtime stop while the machine is
suspended, and validity does not: an expiry during the suspension is reported within this time after the resume. So soon
it is noticed, too, that an event loop was closed."""


async def maintain(engine: Engine) -> None:
    """Serve until the client closes, or nobody can use it any more."""
    engine.maintenance_runs = True
    try:
        await _serve(engine)
    finally:
        engine.maintenance_runs = False


async def _serve(engine: Engine) -> None:
    background, watcher = engine.background, engine.reports.watcher
    while True:
        over = engine.client() is None or engine.runtime.gone()
        if over:
            # Nobody holds anything any more; what was given up before is still to be sent.
            engine.schedule = Schedule(engine.guard)
            if not engine.outbox:
                background.abandon()
                return
        forget_finalised(engine)
        await renew_due(engine, background.now())
        await send_due(engine, background.now())
        if engine.health.look_at <= background.now():
            # Once, some time after the first lease: whether the server's settings break a promise.
            engine.health.look_at, engine.health.looked = inf, True
            await look(engine, engine.schedule.spare(background.now()))
        until = inf
        if watcher is not None:
            await watcher.ask(engine, background.now())
            until = watcher.sleep_until(engine, background.now())
        # What the finalisers appended meanwhile is seen here, or they nudge.
        now = background.now()
        # And where the last of the outbox went just now, the end above.
        if engine.abandoned or engine.dropped_levels or (over and not engine.outbox):
            until = now
        dues = [entry.due for entry in tuple(engine.outbox)]
        until = min(until, engine.health.look_at, engine.schedule.sleep_until(now), *dues)
        # What is due already is served next: then it does not sleep.
        if not await background.idle(None if until == inf else min(until, background.now() + _LOOK_AGAIN)):
            # Where the close was broken off, for instance by the end of its loop, there is something left.
            await send_due(engine, background.now())
            return
