"""The background loop of a client, in a thread or a task of its own: it renews leases, and serves each duty in turn."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, cast

from pawlock.core.maintenance.duties import (
    Abandoned,
    GivenUpTokens,
    ServerSettings,
)
from pawlock.core.maintenance.duty import MaintenanceDuty
from pawlock.core.maintenance.renewals import renew_due

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine

__all__ = ["DUTIES", "maintain"]

_LOOK_AGAIN = 1.0
"""Seconds that the loop sleeps at most while anything is to come. The timers of a runtime stop while the machine is
suspended, and validity does not: an expiry during the suspension is reported within this time after the resume."""

DUTIES: tuple[MaintenanceDuty, ...] = (
    Abandoned(),
    GivenUpTokens(),
    ServerSettings(),
)
"""What is done besides renewals, in this order."""


async def maintain(engine: Engine) -> None:
    """Serve until the client closes."""
    engine.activity.maintenance_runs = True
    try:
        await _serve(engine)
    finally:
        # Somebody may cancel all tasks of a loop and go on: the next lease starts it anew.
        engine.activity.maintenance_runs = False


async def _serve(engine: Engine) -> None:
    runtime = engine.runtime
    # Most duties do one thing of the three.
    begins, asks, sleeps = (_having(engine, step) for step in ("begin", "ask", "sleep_until"))
    while True:
        now = runtime.now()
        for duty in begins:
            duty.begin(engine, now)
        await renew_due(engine, now)
        for duty in asks:
            await duty.ask(engine, now)
        now, until = runtime.now(), inf
        for duty in sleeps:
            until = min(until, duty.sleep_until(engine, now))
        until = min(until, engine.leases.schedule.sleep_until(now))
        # What is due already is served next: then it does not sleep.
        if not await runtime.idle(None if until == inf else min(until, runtime.now() + _LOOK_AGAIN)):
            return


def _having(engine: Engine, step: str) -> list[MaintenanceDuty]:
    nothing, watcher = getattr(MaintenanceDuty, step), engine.reports.watcher
    duties = DUTIES if watcher is None else (*DUTIES, cast("MaintenanceDuty", watcher))
    return [duty for duty in duties if getattr(type(duty), step) is not nothing]
