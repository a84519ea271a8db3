"""A few moves of the workload that moves slots; the many are run by hand."""

from __future__ import annotations

import pytest

from tests.nightly.workloads.slots import Slots
from tests.support.servers import available


@pytest.mark.fault
@pytest.mark.timeout(240)
def test_every_primitive_goes_on_while_slots_move() -> None:
    if reason := available("valkey"):
        pytest.skip(reason)
    with Slots(8, seed=7) as slots:
        slots.run()
    assert not slots.bad()
    assert sum(slots.moved.values()) == 8
    assert {"rw write", "rw read", "sem permit", "lead write", "multi", "barrier and latch"} <= set(
        slots.judge.grants
    )
