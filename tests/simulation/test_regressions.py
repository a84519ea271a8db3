"""Plans that found something: each is run as it was kept, and finds nothing any more."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from pawl.core import renewal
from pawl.testing.sim import Client, Fault, Operation, Plan, Result, draw, run, shrink
from pawl.testing.sim.shrink import kind_of
from pawl.testing.sim.simulation import quiet
from tests.simulation.mutants import edit

KEPT = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_plan_breaks_nothing(path: Path) -> None:
    with quiet():
        result = run(Plan.from_json(path.read_text()))
    assert not result.violation


def _after_a_suspend() -> Plan:
    """A lease that nobody renews, in a process that was suspended long before the lease ends."""
    hold = Operation(0, "acquire", None, 6.0, ("blind",), "block")
    idle = Client("tasks", 1.0, False, ())
    fault = Fault("suspend", 0.2, 1.2, 0)
    locks = (("lock", "a", {"ttl": 4.0, "renew": False}),)
    return Plan(1, locks, (Client("tasks", 1.0, False, ((hold,),)), idle), (fault,), 0.0005, 0.0)


def test_a_loss_is_told_in_time_after_a_suspend() -> None:
    """The timer for the end of the lease had stood still in the suspend, and rang as much too late."""
    with quiet():
        with patch.object(renewal, "_LOOK_AGAIN", 1e9):
            assert "was told" in run(_after_a_suspend()).violation
        assert not run(_after_a_suspend()).violation


def test_a_failing_plan_is_made_smaller() -> None:
    wrong = edit("if left < ttl_ms then", "if true then")

    def runs(plan: Plan) -> Result:
        return run(plan, wrong)

    with quiet():
        plan = next(plan for plan in map(draw, range(300)) if runs(plan).violation)
        smallest = shrink(plan, runs, most=300)
        assert kind_of(runs(smallest).violation) == kind_of(runs(plan).violation)
    assert smallest.operations < plan.operations / 2
    assert len(smallest.faults) <= len(plan.faults)
