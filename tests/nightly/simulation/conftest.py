"""Simulations run in a row: one collection of garbage for all runs of a test, not one for each of them."""

from collections.abc import Iterator

import pytest

from tests.simulator.simulation import quiet

# What these files look at is what `quiet` leaves out.
_LOUD = ("test_command.py",)


@pytest.fixture(autouse=True)
def _quiet_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.name in _LOUD:
        yield
        return
    with quiet():
        yield
