"""The prose check of `make lint` reads everything that users read, and fails on each turn of the style page."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs/contributing/style.md").read_text(encoding="utf-8")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_prose", ROOT / "tools/check_prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_prose"] = module  # a dataclass looks for its module there
    spec.loader.exec_module(module)
    return module


PROSE = load()
AVOID = PROSE.words(TABLE)

PLANTED = {
    "README.md": "Loss is told to its owner.\n",
    "docs/how-to/a-page.md": "A heading\n\nThe client waits for\never.\n",
    "changelog.d/+note.bugfix.md": "A client mends its connection.\n",
    "mkdocs.yml": "site_description: Locks that are told of their loss\n",
    "src/pawlock/sync/lock.py": '"""Whoever holds the lock may release it."""\n',
    "src/pawlock/cli/verbs.py": 'HELP = "The other way round."\n',
    "src/pawlock/core/protocol/options.py": 'raise ValueError(f"{what} is in vain for {name}")\n',
    "src/pawlock/core/keep/engine.py": 'log.warning("the server is looked at in the background: %s", error)\n',
    "src/pawlock/metrics/prometheus.py": 'counter("pawlock_x", "From the wish for a lease to its grant.")\n',
    "src/pawlock/metrics/data/pawlock-alerts.yaml": 'summary: "Leases of old were lost."\n',
    "src/pawlock/metrics/data/pawlock-overview.json": '{"description": "What the soak measured."}\n',
    "src/pawlock/service/problems.py": 'DETAIL = "Tell the operator of the service."\n',
    "src/pawlock/service/static/page.html": "<button>Take it from its holder</button>\n",
    "src/pawlock/service/static/page.js": 'at("state").textContent = "the server stands still";\n',
}
"""One sentence for each kind of text that users read."""

CLEAN = {
    "README.md": "Lock loss is reported.\n\n```text\nwhat code tells is not prose\n```\n\nNor is `told` in code.\n",
    "src/pawlock/sync/lock.py": '"""A lock.\n\nArgs:\n    told: The name of an argument is not prose.\n"""\n',
    "src/pawlock/core/lease/base.py": '"""Docstrings inside are for those who work on pawlock: it tells the loss."""\n',
    "src/pawlock/cli/run.py": 'KEY = "told"\n',
}


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def test_a_planted_sentence_is_found_in_each_kind_of_text(tmp_path: Path) -> None:
    plant(tmp_path, PLANTED)
    files, found = PROSE.check(tmp_path, AVOID)
    assert files == len(PLANTED)
    assert {finding.path for finding in found} == set(PLANTED)


def test_code_and_private_docstrings_are_no_prose(tmp_path: Path) -> None:
    plant(tmp_path, CLEAN)
    assert PROSE.check(tmp_path, AVOID) == (len(CLEAN), [])


def test_a_turn_is_found_across_lines_and_at_its_line() -> None:
    (finding,) = PROSE.findings("docs/x.md", "one\ntwo waits for\never\n", AVOID)
    assert (finding.line, finding.turn) == (2, "for ever")


def plain_words() -> list[str]:
    rows = re.findall(r"^\| `([^`]+)` \|", TABLE.partition("## Words to avoid")[2], re.MULTILINE)
    return [turn for row in rows for turn in re.sub(r"\(\?!.*?\)", "", row).replace("?", "").split("/")]


@pytest.mark.parametrize("turn", plain_words())
def test_each_turn_of_the_style_page_is_found(turn: str) -> None:
    assert list(PROSE.findings("docs/x.md", f"They {turn} here.", AVOID)), turn


def test_lint_runs_it() -> None:
    assert "tools/check_prose.py" in (ROOT / "tools/lint.py").read_text(encoding="utf-8")
