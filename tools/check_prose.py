"""Hold what users read to the style page: `python tools/check_prose.py [--count]`.

It reads the documentation, the README and its neighbours, notes for the change log, docstrings of public modules, and
the texts that the package shows (errors, logs, help, metrics, alerts, the live page). Code is left out.
The words, and what to write instead, are in the table "Words to avoid" of `docs/contributing/style.md`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STYLE = "docs/contributing/style.md"
PAGES = (
    "docs/**/*.md",
    "*.md",
    "changelog.d/*.md",
    "deploy/**/*.md",
    "examples/**/*.md",
    "mkdocs.yml",
    "pyproject.toml",
)
DATA = (
    "src/pawlock/**/*.yaml",
    "src/pawlock/**/*.json",
    "src/pawlock/**/*.html",
    "src/pawlock/**/*.js",
    "deploy/**/*.yaml",
)
SHOWN = ("src/pawlock/**/*.py", *DATA)
# What only people who work on pawlock read: comments and docstrings there are reviewed, not counted here.
INSIDE = re.compile(
    r"src/pawlock/(core|primitives|runtimes|transport|topology|testing/(sim|conformance|history))/"
)
LEAST_WORDS = 3
"""A text of fewer words is a key or an option, not a sentence."""

ROW = re.compile(r"^\| `(?P<pattern>[^`]+)` \| (?P<instead>.+?) \|$", re.MULTILINE)
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2[^\n]*$", re.MULTILINE | re.DOTALL)
COMMENTED = re.compile(r"<!--.*?-->", re.DOTALL)
INLINE = re.compile(r"``[^`]+``|`[^`\n]+`|\]\([^)]+\)|https?://\S+")
ARGUMENT = re.compile(r"^ +\*{0,2}\w+:(?= )", re.MULTILINE)
"""The name of an argument or attribute in a docstring."""


@dataclass(frozen=True, slots=True)
class Word:
    """A turn to avoid.

    Attributes:
        pattern: How it is found, whole words, in any case, also across the end of a line.
        instead: What to write.
    """

    pattern: re.Pattern[str]
    instead: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where a turn to avoid stands.

    Attributes:
        path: The file, from the root.
        line: Its line.
        turn: The turn.
        instead: What to write.
    """

    path: str
    line: int
    turn: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.turn!r}: write {self.instead}"


def words(page: str) -> list[Word]:
    """Read the table of the style page.

    Raises:
        ValueError: It has no rows.
    """
    table = page.partition("## Words to avoid")[2].partition("\n## ")[0]
    found: list[Word] = []
    for row in ROW.finditer(table):
        pattern = row["pattern"].replace("/", "|").replace(" ", r"\s+")
        found.append(Word(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), row["instead"]))
    if not found:
        raise ValueError(f"no words in the table of {STYLE}")
    return found


def blank(match: re.Match[str]) -> str:
    """Keep the lines of what is left out, so that the numbers of the others stay right."""
    return "·" + "\n" * match.group().count("\n") + "·"


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    """A page without its code, and the number of its first line."""
    for pattern in (COMMENTED, FENCED, INLINE):
        text = pattern.sub(blank, text)
    yield 1, text


def prose_of_module(text: str, *, public: bool) -> Iterator[tuple[int, str]]:
    """The texts of a module that are shown, and its docstrings where users read them, each with its first line."""
    tree = ast.parse(text)
    docs = {
        id(node.body[0].value): node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        owner = docs.get(id(node))
        if owner is not None and (not public or getattr(owner, "name", "").startswith("_")):
            continue
        if len(node.value.split()) >= LEAST_WORDS:
            said = node.value if owner is None else ARGUMENT.sub(blank, node.value)
            yield node.lineno, INLINE.sub(blank, said)


def findings(path: str, text: str, avoid: list[Word]) -> Iterator[Finding]:
    """Yield each place of a file where a turn to avoid stands.

    Args:
        path: The file, from the root: it says what of it users read.
        text: What it says.
        avoid: The turns.
    """
    module = path.endswith(".py")
    parts = prose_of_module(text, public=INSIDE.match(path) is None) if module else prose_of_page(text)
    for first, prose in parts:
        for word in avoid:
            for match in word.pattern.finditer(prose):
                line = first + prose.count("\n", 0, match.start())
                yield Finding(path, line, " ".join(match.group().lower().split()), word.instead)


def check(root: Path, avoid: list[Word]) -> tuple[int, list[Finding]]:
    """How many files of a tree were read, and every finding in them."""
    paths = {path for pattern in (*PAGES, *SHOWN) for path in root.glob(pattern)} - {root / STYLE}
    found = [
        finding
        for path in sorted(paths)
        for finding in findings(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"), avoid)
    ]
    return len(paths), found


def main(arguments: list[str]) -> int:
    """Print every finding, or with --count how many each file has; 1 when there is one."""
    files, found = check(ROOT, words((ROOT / STYLE).read_text(encoding="utf-8")))
    if "--count" in arguments:
        for name, count in Counter(finding.path for finding in found).most_common():
            print(f"{count:5d} {name}")
    else:
        for finding in found:
            print(finding)
    print(f"{len(found)} findings in {files} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
