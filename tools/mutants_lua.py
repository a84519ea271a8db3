"""Mutants of the scripts: an operator, a number, a key, an order or a statement changed in each."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tools.mutants_py import Mutant, unique

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


def all_of(package: Path) -> list[Mutant]:
    """List the mutants of all scripts, in a fixed order."""
    paths = sorted((package / "primitives").rglob("*.lua"))
    return [mutant for path in paths for mutant in of_script(package, path)]


def of_script(package: Path, path: Path) -> Iterator[Mutant]:
    """Give the mutants of one script."""
    file = path.relative_to(package).as_posix()
    lines = path.read_text(encoding="utf-8").split("\n")
    met: Counter[str] = Counter()
    for line, changed, what in _changes(lines):
        name = unique(f"{file} {what}: {lines[line].strip()}", met)
        yield Mutant(name, file, line + 1, True, partial("\n".join, changed))


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
