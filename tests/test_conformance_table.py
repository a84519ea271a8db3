"""The page of what is shown where comes from a run, and the run covered all that there is."""

from __future__ import annotations

import pytest

from pawl.primitives.registry import REGISTRY
from tests.conformance import matrix
from tools import conformance_table


def test_the_page_is_what_the_record_of_the_run_says() -> None:
    written = conformance_table.PAGE.read_text(encoding="utf-8")
    assert written == conformance_table.page(conformance_table.read()), (
        "run python tools/conformance_table.py"
    )


@pytest.mark.parametrize("server", conformance_table.read())
def test_the_run_covered_every_primitive_on_every_topology(server: str) -> None:
    cells = conformance_table.read()[server]["cells"]
    if server == "valkey":
        # The server that every machine has; what the record lacks of others, the page says.
        assert set(cells) == set(matrix.TOPOLOGIES)
    shown = conformance_table.page(conformance_table.read())
    for topology in set(matrix.TOPOLOGIES) - set(cells):
        assert f"{topology}: not in the record" in shown
    for topology, cell in cells.items():
        if isinstance(cell, str):
            assert topology in ("TLS", "embedded"), f"{topology} on {server} was not run: {cell}"
            continue
        assert set(cell) == set(matrix.kinds_of(topology)), "run python tools/conformance_table.py"
        assert all(count >= 2 for count in cell.values())


def test_a_primitive_that_is_new_needs_a_new_run() -> None:
    shown = conformance_table.page(conformance_table.read())
    assert all(shown.count(f"| `{kind}` |") == len(conformance_table.read()) for kind in REGISTRY)
