"""Processes that are ended by a signal at a random moment leave nothing behind; see ``terms``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.workloads.terms import DROPPED, Terms
from tests.support.servers import Server

MANY = 700
"""Each handler with each duty some 17 times; `python -m tests.nightly.workloads.terms` ends as many as one likes."""


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_a_few_processes_that_are_ended_leave_nothing(server: Server, tmp_path: Path) -> None:
    figures = Terms(server, tmp_path, seed=1).run(24)
    assert not figures.faults, "\n".join(figures.faults)
    assert len(figures.left) <= 1, "\n".join(figures.left)
    assert len(figures.ended) + figures.done[DROPPED] == 24


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.timeout(3600)
def test_many_processes_that_are_ended_leave_nothing(server: Server, tmp_path: Path) -> None:
    figures = Terms(server, tmp_path, seed=2).run(MANY)
    assert not figures.faults, "\n".join(figures.faults)
    # An exit that strikes between two steps of pawlock may cost one lease, which ends by its TTL.
    assert len(figures.left) <= MANY / 100, "\n".join(figures.left)
    assert figures.done[DROPPED] <= MANY / 50
    assert len(figures.ended) + figures.done[DROPPED] == MANY
