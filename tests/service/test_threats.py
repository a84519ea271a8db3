"""The page of threats: each line names a test that is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "concepts" / "threats.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_line_of_a_table_names_its_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what")]
    assert len(rows) > 15
    assert [row for row in rows if "`tests/" not in row] == []


def test_each_test_is_there() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert len(NAMED) > 10
    for path, name in NAMED:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in [one.name for one in tree.body if isinstance(one, functions)], f"{path}::{name}"
