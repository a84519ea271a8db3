"""From a run that fails to the smallest that fails alike."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.simulator.plan import Plan
from tests.simulator.simulation import Result

__all__ = ["kind_of", "shrink"]

_LIVES = 3
_MOST = 2000


def kind_of(violation: str) -> str:
    """What sort of violation it is, without names, numbers and times."""
    return re.sub(r"[\d.]+|'[^']*'|@\S+", "", violation.partition(": ")[2])[:30]


def shrink(plan: Plan, run: Callable[[Plan], Result], *, most: int = _MOST) -> Plan:
    """The smallest plan found that breaks the same promise: fewer faults, fewer workers, fewer steps.

    What a plan leaves open is drawn from its seed, and a part less changes all that is drawn afterwards. So each
    smaller plan is tried with a few seeds.

    Args:
        plan: One that fails.
        run: Runs a plan.
        most: How many runs to spend.

    Returns:
        The plan, smaller if that was possible.
    """
    wanted = kind_of(run(plan).violation)
    spent = 0
    again = True
    while again:
        again = False
        for smaller in plan.smaller():
            for life in range(_LIVES):
                if spent >= most:
                    return plan
                spent += 1
                tried = smaller.with_seed(plan.seed + life * 1_000_003)
                if kind_of(run(tried).violation) == wanted:
                    plan, again = tried, True
                    break
            if again:
                break
    return plan
