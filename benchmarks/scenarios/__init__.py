"""The scenarios, by the names of the command line."""

from __future__ import annotations

from benchmarks.model import Scenario
from benchmarks.scenarios import contended, crowd, delay, drop_in, kinds, pairs, redlock, scale, wakeup

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *pairs.SCENARIOS,
        *contended.SCENARIOS,
        *crowd.SCENARIOS,
        *wakeup.SCENARIOS,
        *redlock.SCENARIOS,
        *scale.SCENARIOS,
        *delay.SCENARIOS,
        *kinds.SCENARIOS,
        *drop_in.SCENARIOS,
    )
}

__all__ = ["SCENARIOS"]
