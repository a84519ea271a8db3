"""Every wrong protocol is found by the simulator, and soon."""

from __future__ import annotations

from typing import Any

import pytest

from pawl.testing.sim import draw, run
from pawl.testing.sim.simulation import quiet
from tests.scripts.test_fuzz import MUTANTS as FUZZED
from tests.simulation.mutants import CLIENTS, FAULTS, SCRIPTS, UNSEEN, Edit, edit, wrong

MOST = 600
"""Seeds until a mutant counts as missed."""

ALL_SCRIPTS = {name: texts for name, texts in {**SCRIPTS, **FUZZED}.items() if name not in UNSEEN}


def killed(name: str, patches: list[Any], change: Edit | None = None) -> str:
    """The seed and the words with which a mutant is found."""
    with quiet(), wrong(patches):
        for seed in range(MOST):
            violation = run(draw(seed, FAULTS.get(name, ())), change).violation
            if violation:
                return f"seed {seed}: {violation}"
    return ""


@pytest.mark.parametrize("name", CLIENTS)
def test_a_wrong_client_is_found(name: str) -> None:
    found = killed(name, CLIENTS[name]())
    assert found, f"nothing was wrong in {MOST} seeds"
    print(name, "->", found)


@pytest.mark.parametrize("name", ALL_SCRIPTS)
def test_a_wrong_script_is_found(name: str) -> None:
    old, new = ALL_SCRIPTS[name]
    found = killed(name, [], edit(old, new))
    assert found, f"nothing was wrong in {MOST} seeds"
    print(name, "->", found)
