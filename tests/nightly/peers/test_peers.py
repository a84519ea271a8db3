"""pawlock survives the rows that any lock can be put under; others do not, so the rows break something."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly.peers.rows import ROWS
from tools import fault_rows

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "peers.md"


def outcome(row: int, label: str) -> dict[str, str]:
    """In a process of its own: some rows fork it, stop it or raise in it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.nightly.peers.rows", str(row), label],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("row", sorted(ROWS))
def test_pawlock_survives(row: int) -> None:
    assert outcome(row, "pawlock") == {"outcome": "survived", "why": ""}


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("row", [1, 10, 46])
def test_a_row_is_no_row_that_everybody_survives(row: int) -> None:
    assert outcome(row, "redis-py")["outcome"] == "fails"


def test_the_page_has_every_row_under_the_name_of_the_faults() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == {str(row): fault_rows.ROWS[row] for row in ROWS}, "run python tools/peer_rows.py"


def test_the_last_row_of_the_page_counts_those_above() -> None:
    """A cell that was changed by hand is found."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    *rows, last = [[cell.strip() for cell in line.split(" | ")[2:]] for line in lines[2:]]
    columns = list(zip(*rows, strict=True))
    assert len(rows) == len(ROWS)
    for column, count in zip(columns, last, strict=True):
        said = [cell.removesuffix(" |") for cell in column]
        survived, applies = said.count("yes"), sum(not cell.startswith("–") for cell in said)
        assert count.removesuffix(" |") == f"**{survived} of {applies}**"
