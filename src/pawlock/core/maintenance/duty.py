"""What the loop asks of a duty, and how long a duty may keep the connection."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine

__all__ = ["MaintenanceDuty", "until_next_need"]

_MOST_DELAY = 0.1
"""Seconds by which a wait for the server may delay the report of another lease's end, or its renewal. Less would end
the waits of all renewals before a server a little away can answer, once leases that nobody renews end all the time."""


class MaintenanceDuty:
    """One thing that is done in the background; it overrides what it needs. It keeps nothing: the engine does."""

    def begin(self, engine: Engine, now: float) -> None:
        """Do what needs no request, before anything is sent."""

    async def ask(self, engine: Engine, now: float) -> None:
        """Send what is due in requests of its own, each within ``until_next_need``."""

    def sleep_until(self, engine: Engine, now: float) -> float:
        """When to look in again; infinity: nothing is to come, or somebody wakes the loop for it."""
        return inf


def until_next_need(engine: Engine) -> float:
    """Seconds for which a wait for the server may keep the leases that are not in hand waiting."""
    return max(_MOST_DELAY, engine.leases.schedule.first_need() - engine.runtime.now())
