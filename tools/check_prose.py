"""Hold what users read to the style page: `python tools/check_prose.py [--count]`.

It reads the documentation, the README and its neighbours, notes for the change log, docstrings of public modules, and
the texts that the package shows (errors, logs, help, metrics, the live page). Code and inline code are left out.
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
STYLE = ROOT / "docs" / "contributing" / "style.md"
PAGES = ("docs/**/*.md", "*.md", "changelog.d/*.md", "deploy/**/*.md", "examples/**/*.md")
SHOWN = ("src/pawl/**/*.py", "src/pawl/**/*.html", "src/pawl/**/*.js")
# What only people who work on pawl read: comments and docstrings there are reviewed, not counted here.
INSIDE = re.compile(
    r"src/pawl/(core|primitives|runtimes|transport|topology|testing/(sim|conformance|history))/"
)
LEAST_WORDS = 3
"""A text of fewer words is a key or an option, not a sentence."""

ROW = re.compile(r"^\| `(?P<pattern>[^`]+)` \| (?P<instead>.+?) \|$", re.MULTILINE)
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2[^\n]*$", re.MULTILINE | re.DOTALL)
COMMENTED = re.compile(r"<!--.*?-->", re.DOTALL)
INLINE = re.compile(r"``[^`]+``|`[^`\n]+`|\]\([^)]+\)|https?://\S+")


@dataclass(frozen=True, slots=True)
class Word:
    """A turn to avoid.

    Attributes:
        pattern: How it is found, whole words, in any case.
        instead: What to write.
    """

    pattern: re.Pattern[str]
    instead: str


def words(page: str) -> list[Word]:
    """Read the table of the style page.

    Raises:
        ValueError: It has no rows.
    """
    table = page.partition("## Words to avoid")[2].partition("\n## ")[0]
    found = [
        Word(re.compile(rf"\b(?:{row['pattern'].replace('/', '|')})\b", re.IGNORECASE), row["instead"])
        for row in ROW.finditer(table)
    ]
    if not found:
        raise ValueError(f"no words in the table of {STYLE.name}")
    return found


def blank(match: re.Match[str]) -> str:
    """Keep the lines of what is left out, so that the numbers of the others stay right."""
    return "\n" * match.group().count("\n") + "·"


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page without its code."""
    for pattern in (COMMENTED, FENCED, INLINE):
        text = pattern.sub(blank, text)
    yield from enumerate(text.splitlines(), 1)


def prose_of_module(text: str, *, public: bool) -> Iterator[tuple[int, str]]:
    """The texts of a module that are shown, and its docstrings where users read them."""
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
            for offset, line in enumerate(INLINE.sub(blank, node.value).split("\n")):
                yield node.lineno + offset, line


def findings(path: Path, text: str, avoid: list[Word]) -> Iterator[tuple[str, str]]:
    """Yield each place where a turn to avoid stands: the turn, and a line that says what to write."""
    where = path.relative_to(ROOT).as_posix()
    public = INSIDE.match(where) is None
    lines = prose_of_module(text, public=public) if path.suffix == ".py" else prose_of_page(text)
    for number, line in lines:
        for word in avoid:
            for match in word.pattern.finditer(line):
                turn = match.group().lower()
                yield turn, f"{where}:{number}: {turn!r}: write {word.instead}: {line.strip()[:90]}"


def main(arguments: list[str]) -> int:
    """Print every finding, or with --count how many each file has; 1 when there is one."""
    avoid = words(STYLE.read_text(encoding="utf-8"))
    paths = {path for pattern in (*PAGES, *SHOWN) for path in ROOT.glob(pattern)} - {STYLE}
    counts: Counter[str] = Counter()
    for path in sorted(paths):
        for _turn, line in findings(path, path.read_text(encoding="utf-8"), avoid):
            counts[path.relative_to(ROOT).as_posix()] += 1
            if "--count" not in arguments:
                print(line)
    for name, count in counts.most_common() if "--count" in arguments else ():
        print(f"{count:5d} {name}")
    print(f"{counts.total()} findings in {len(counts)} of {len(paths)} files")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
