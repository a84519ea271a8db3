"""The scenarios, by the names of the command line."""

from __future__ import annotations

from benchmarks.model import Scenario
from benchmarks.scenarios import contended, pairs, permits, redlock, wakeup

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *pairs.SCENARIOS,
        *contended.SCENARIOS,
        *wakeup.SCENARIOS,
        *redlock.SCENARIOS,
        *permits.SCENARIOS,
    )
}

__all__ = ["SCENARIOS"]
