"""A cancel at each place where an operation waits, one after the other: nothing is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from pawl.testing.sim import Client, Operation, Plan
from pawl.testing.sim.simulation import Simulation, quiet

MOST = 60

_STEPS = {
    "acquire": Operation(0, "acquire", None, 0.01, (), "block"),
    "acquire in time": Operation(0, "acquire", 0.3, 0.01, (), "release"),
    "try": Operation(0, "try", 0.0, 0.01, (), "release"),
    "extend": Operation(0, "acquire", None, 0.01, ("extend:2",), "block"),
    "again": Operation(0, "acquire", None, 0.01, ("again",), "block"),
    "inspect": Operation(0, "inspect"),
    "long": Operation(0, "acquire", None, 2.5, (), "block"),
}
_LOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "lock": ("lock", {}),
    "strict": ("lock", {"handover": 0}),
    "fixed": ("lock", {"renew": False}),
    "rlock": ("rlock", {}),
    "owner": ("rlock_owner", {"owner": "x"}),
}


def _plan(lock: str, step: Operation, colour: str) -> Plan:
    kind, options = _LOCKS[lock]
    other = Operation(0, "acquire", None, 0.02, (), "block", 0.001)
    others = Client("tasks", 1.0, False, ((other,) * 6, (other,) * 6))
    swept = Client(colour, 1.0, False, ((step,), (other,) * 3))
    return Plan(1, ((kind, "a", {"ttl": 1.0, **options}),), (swept, others), (), 0.0005, 0.0)


def _sweep(plan: Plan) -> int:
    """Cancel the first worker at its n-th wait, for each n; how many waits there were."""
    for wait in range(MOST):
        sim = Simulation(plan)
        task = sim.members[0].tasks[0]
        task.cancel(after=wait + 1)
        sim.run()
        cancelled = any(event[2:4] == ("w0", "cancelled") for event in sim.world.trace if event[1] == "c0")
        for member in sim.members:
            member.kill()
        if not cancelled:
            return wait
    raise AssertionError(f"more than {MOST} waits")


@pytest.mark.parametrize("colour", ["threads", "tasks"])
@pytest.mark.parametrize("lock", _LOCKS)
@pytest.mark.parametrize("step", _STEPS)
def test_a_cancel_at_any_wait_leaves_nothing(step: str, lock: str, colour: str) -> None:
    if step == "again" and lock != "rlock":
        step = "acquire"
    with quiet():
        waits = _sweep(_plan(lock, _STEPS[step], colour))
    assert waits >= 1
