"""The page of what is shown where comes from a run, and the run covered all that there is."""

from __future__ import annotations

import pytest

from pawlock.primitives.registry import REGISTRY
from tests.conformance import matrix
from tools import conformance_table


def test_the_page_is_what_the_record_of_the_run_says() -> None:
    written = conformance_table.PAGE.read_text(encoding="utf-8")
    assert written == conformance_table.page(conformance_table.read()), (
        "run python tools/conformance_table.py"
    )


NOT_THERE = {
    "redis-6.2": {"TLS", "embedded"},
    "redis": {"embedded"},
    "valkey-8": {"TLS", "embedded"},
    "valkey": {"TLS"},
}
"""Builds without TLS, and what pawlock does not start by itself. Every topology runs on one server at least."""


@pytest.mark.parametrize("server", matrix.SERVERS)
def test_the_run_covered_every_primitive_on_every_topology(server: str) -> None:
    cells = conformance_table.read()[server]["cells"]
    assert set(cells) == set(matrix.TOPOLOGIES), "run python tools/conformance_table.py --missing"
    assert {topology for topology, cell in cells.items() if isinstance(cell, str)} == NOT_THERE[server]
    for topology in set(matrix.TOPOLOGIES) - NOT_THERE[server]:
        cell = cells[topology]
        assert set(cell) == set(matrix.kinds_of(topology)), "run python tools/conformance_table.py"
        assert all(count >= 2 for count in cell.values())


def test_a_primitive_that_is_new_needs_a_new_run() -> None:
    shown = conformance_table.page(conformance_table.read())
    assert all(shown.count(f"| `{kind}` |") == len(conformance_table.read()) for kind in REGISTRY)
