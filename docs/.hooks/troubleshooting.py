# ruff: noqa: INP001 - a hook of mkdocs, no package
"""Keep the errors of the troubleshooting page equal to the docstrings of `pawlock.errors`.

A build of the documentation ends with an error where they differ. `python docs/.hooks/troubleshooting.py` writes the
page anew. Nothing of pawlock is imported: the docstrings are read from the source.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "pawlock" / "errors.py"
PAGE = "how-to/troubleshooting.md"
BEGIN, END = "<!-- errors: begin -->", "<!-- errors: end -->"


def prose(text: str) -> str:
    """Join wrapped lines, and turn the double backticks of a docstring into those of a page."""
    return " ".join(text.split()).replace("``", "`")


def code_of(node: ast.ClassDef) -> str:
    """Find the `code` of an error class."""
    for line in node.body:
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        value = getattr(line, "value", None)
        if isinstance(target, ast.Name) and target.id == "code" and isinstance(value, ast.Constant):
            return str(value.value)
    raise ValueError(f"{node.name} has no code")


def section(node: ast.ClassDef) -> Iterator[str]:
    """Yield the lines of one error: what it says, why it comes, what helps."""
    text = (ast.get_docstring(node) or "").split("\nAttributes:")[0]
    meaning, _, rest = text.partition("Cause: ")
    cause, _, solution = rest.partition("Solution: ")
    yield f"### {node.name}"
    yield ""
    yield f"Code `{code_of(node)}`. {prose(meaning)}"
    for title, body in (("Cause", cause), ("Solution", solution)):
        if body:
            said = prose(body)
            yield ""
            yield f"**{title}:** {said}"
    yield ""


def generated() -> str:
    """Write all errors, in the order of the source, which is that of the tree."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    lines = [BEGIN, ""]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name != "PawlockError":
            lines += section(node)
    return "\n".join([*lines, END])


def renewed(page: str) -> str:
    """Put the present errors into the text of the page."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: generated(), page)


def on_page_markdown(markdown: str, *, page: object, **_: object) -> str:
    """End the build where the page is not what the docstrings say; called by mkdocs for each page."""
    if getattr(getattr(page, "file", None), "src_uri", "") == PAGE and renewed(markdown) != markdown:
        # Of the docs group, which a run as a script does without. A warning would be lost in a quiet build.
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{PAGE} differs from {SOURCE.name}: run python {Path(__file__).relative_to(ROOT)}")
    return markdown


if __name__ == "__main__":
    path = ROOT / "docs" / PAGE
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{path.relative_to(ROOT)} says what {SOURCE.name} says\n")
