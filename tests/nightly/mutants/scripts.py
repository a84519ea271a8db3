"""Scripts with an operator, a number, a key, an order or a statement changed: do the simulator and the tests notice?

``python -m tests.nightly.mutants.scripts --sample 30 --seed 1`` draws so many, runs the simulator on each, and where that
finds nothing the tests of scripts; it prints what noticed each, and ends with 1 if one was not noticed. A mutant may be
the same to every caller: whoever reads the list says so.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "pawlock"
SEEDS = 100
LIMIT = 900.0
"""Seconds for one run; a mutant that hangs is noticed."""

HOMES = {"latch": "gates", "barrier": "gates", "election": "gates", "once": "gates", "namespace": "operate"}
"""The folders of the tests of a primitive, where they have another name."""

SWAPS = (
    (re.compile(r"(?<=\s)<=(?=\s)"), "<", "<= to <"),
    (re.compile(r"(?<=\s)>=(?=\s)"), ">", ">= to >"),
    (re.compile(r"(?<=\s)<(?=\s)"), "<=", "< to <="),
    (re.compile(r"(?<=\s)>(?=\s)"), ">=", "> to >="),
    (re.compile(r"=="), "~=", "== to ~="),
    (re.compile(r"~="), "==", "~= to =="),
    (re.compile(r"(?<=\s)\+(?=\s)"), "-", "+ to -"),
    (re.compile(r"(?<=\s)-(?=\s)"), "+", "- to +"),
    (re.compile(r"\band\b"), "or", "and to or"),
    (re.compile(r"\bor\b"), "and", "or to and"),
    (re.compile(r"\bnot\s"), "", "without not"),
    (re.compile(r"\bmath\.max\b"), "math.min", "max to min"),
    (re.compile(r"\bmath\.min\b"), "math.max", "min to max"),
    (re.compile(r"(?<![\w.'%\"-])\d+(?![\w.'\"])"), None, "number plus one"),
)
KEY = re.compile(r"(?<=[(, ])(NAME|QUEUE|TICKETS|FENCE|HOLDS|PERMITS|WAITERS|WAITING|SEEN|PASSED)\b(?=[,)])")
STATEMENT = re.compile(
    r"^\s*(redis\.p?call|call|remove|drop|note|tell|publish|[a-z_.]+\s*=|[a-z_]+\[[^\]]+\]\s*=).*$"
)
SIMPLE = re.compile(r"^(\s*)(?:redis\.p?call|call|local [\w, ]+ =|[a-z_.]+ =|remove|grant|publish)\b.*$")
OPENS = re.compile(r"\b(function|then|do|repeat|else)\s*$|\{\s*$|\($")


class Mutant(NamedTuple):
    """One change of one script.

    Attributes:
        file: The script, below the package.
        line: Where it is changed.
        what: How, and the line.
        text: The whole script with the change.
    """

    file: str
    line: int
    what: str
    text: str


def every() -> Iterator[Mutant]:
    """Give the mutants of all scripts, in a fixed order."""
    for path in sorted([*PACKAGE.glob("primitives/**/*.lua"), *PACKAGE.glob("redlock/*.lua")]):
        lines = path.read_text(encoding="utf-8").split("\n")
        for line, changed, what in _changes(lines):
            file = path.relative_to(PACKAGE).as_posix()
            yield Mutant(file, line + 1, f"{what}: {lines[line].strip()}", "\n".join(changed))


def noticed(mutant: Mutant) -> str:
    """What notices a mutant, or ""; each runs on a copy of the package."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "pawlock"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / mutant.file).write_text(mutant.text, encoding="utf-8")
        simulate = f"from tests.simulator.command import main; raise SystemExit(main(['--seeds', '{SEEDS}', '--as-drawn']))"
        if said := _failed(folder, "-c", simulate):
            return f"the simulator ({said})"
        primitive = Path(mutant.file).parent.name
        homes = (ROOT / "tests").glob(f"*/{HOMES.get(primitive, primitive)}")
        tests = [
            "tests/unit/scripts",
            "tests/conformance/test_conformance.py",
            *(str(home) for home in sorted(homes)),
        ]
        # Those that change a script themselves fail wherever its text is another.
        chosen = ("-m", "not slow", "-k", "not wrong_script and not headers and not toy", *tests)
        said = _failed(folder, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *chosen)
        return said and f"a test ({said})"


def _failed(package: str, *arguments: str) -> str:
    """How a run ended, in its own last words; "": well."""
    environ = {**os.environ, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not over within {LIMIT:g} s"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return " ".join(lines[-2:]) or f"code {done.returncode}" if done.returncode else ""


def drawn(sample: int, seed: int) -> list[Mutant]:
    """Draw so many of them, once it is seen that nothing is noticed where nothing is changed.

    Raises:
        SystemExit: Something fails without any mutant.
    """
    mutants = list(every())
    unchanged = mutants[0]._replace(text=(PACKAGE / mutants[0].file).read_text(encoding="utf-8"))
    if by := noticed(unchanged):
        raise SystemExit(f"{by} fails without any change")
    return random.Random(seed).sample(mutants, sample)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sample."""
    parser = argparse.ArgumentParser(description="Change scripts, and see what notices it.")
    parser.add_argument("--sample", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    missed = 0
    for mutant in drawn(options.sample, options.seed):
        by = noticed(mutant)
        missed += not by
        print(f"{by or 'NOTHING':<14} {mutant.file}:{mutant.line} {mutant.what}", flush=True)
    print(f"{options.sample - missed} of {options.sample} were noticed")
    return 1 if missed else 0


def _changes(lines: list[str]) -> Iterator[tuple[int, list[str], str]]:
    keys = sorted({key for line in lines for key in KEY.findall(line)})
    for at, line in enumerate(lines):
        code = line.split("--")[0]
        if not code.strip():
            continue
        for changed, what in (*_words(line, code), *_keys(line, code, keys)):
            yield at, [*lines[:at], changed, *lines[at + 1 :]], what
        if STATEMENT.match(code) and not OPENS.search(code.rstrip()) and _balanced(code):
            yield at, [*lines[:at], *lines[at + 1 :]], "left out"
        if at + 1 < len(lines) and _swappable(code, lines[at + 1]):
            yield at, [*lines[:at], lines[at + 1], line, *lines[at + 2 :]], "swapped with the next"


def _words(line: str, code: str) -> Iterator[tuple[str, str]]:
    for pattern, other, what in SWAPS:
        for match in pattern.finditer(code):
            if not _in_text(code, match.start()):
                new = str(int(match[0]) + 1) if other is None else other
                yield line[: match.start()] + new + line[match.end() :], what


def _keys(line: str, code: str, keys: list[str]) -> Iterator[tuple[str, str]]:
    for match in KEY.finditer(code):
        other = next((key for key in keys if key != match[0]), None)
        if other is not None:
            yield line[: match.start()] + other + line[match.end() :], f"{match[0]} to {other}"


def _in_text(code: str, at: int) -> bool:
    return code[:at].count("'") % 2 == 1


def _balanced(code: str) -> bool:
    return all(code.count(one) == code.count(other) for one, other in ("()", "{}", "[]"))


def _swappable(code: str, following: str) -> bool:
    first, second = SIMPLE.match(code), SIMPLE.match(following)
    if not first or not second or first[1] != second[1]:
        return False
    if (
        not _balanced(code)
        or not _balanced(following)
        or OPENS.search(code.rstrip())
        or OPENS.search(following.rstrip())
    ):
        return False
    return "call(" in code or "call(" in following


if __name__ == "__main__":
    sys.exit(main())
