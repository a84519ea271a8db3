"""The wrong protocols that take the simulator seconds to find; all others are in tests/unit/simulation."""

from __future__ import annotations

import pytest

from tests.simulator.mutants.hunt import LONG, MOST, hunt, known
from tests.simulator.simulation import quiet


@pytest.mark.parametrize("name", LONG)
def test_a_wrong_protocol_is_found(name: str) -> None:
    with quiet():
        seed, found = hunt(name, known().get(name))
    assert found, f"nothing was wrong in {MOST} seeds"
    print(name, "-> seed", seed, found)
