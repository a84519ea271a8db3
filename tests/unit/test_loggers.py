"""The page on logging names every logger, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_has_every_logger() -> None:
    there = {
        name
        for file in (ROOT / "src" / "pawlock").rglob("*.py")
        for name in re.findall(r'getLogger\(\s*"(pawlock\.[a-z.]+)"', file.read_text(encoding="utf-8"))
    }
    assert len(there) > 10
    page = (ROOT / "docs" / "how-to" / "metrics.md").read_text(encoding="utf-8")
    table = page.partition("## Loggers")[2].partition("\n## ")[0]
    heads = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = {name for head in heads for name in re.findall(r"`(pawlock\.[a-z.]+)`", head)}
    assert told == there
