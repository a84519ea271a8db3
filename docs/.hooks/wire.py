# ruff: noqa: INP001 - a hook of mkdocs, no package
"""Keep the scripts of a lock on the wire page equal to the headers of the .lua files.

A build of the documentation ends with an error where they differ. `python docs/.hooks/wire.py` writes the page anew.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MUTEX = ROOT / "src" / "pawlock" / "primitives" / "mutex"
PAGE = "reference/wire.md"
BEGIN, END = "<!-- scripts: begin -->", "<!-- scripts: end -->"
FIELD = re.compile(r"^-- (keys|args|returns|invariant):[ \t]*(\S.*)$")


def header(text: str) -> dict[str, str]:
    """Read what the comment above a script says: what it does, and its four fields."""
    fields = {"does": ""}
    current = "does"
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if found := FIELD.match(line):
            current = found[1]
            fields[current] = found[2]
        elif not line.startswith("--@"):
            fields[current] = f"{fields[current]} {line[2:].strip()}".strip()
    return fields


def generated() -> str:
    """Write the scripts of a mutex, one after the other."""
    lines = [BEGIN, ""]
    for path in sorted(MUTEX.glob("[a-z]*.lua")):
        fields = header(path.read_text(encoding="ascii"))
        lines += [f"**`{path.stem}.lua`**: {fields['does']}", ""]
        lines += [f"- keys: {fields['keys']}", f"- arguments: {fields['args']}"]
        lines += [f"- replies: `{fields['returns']}`", ""]
    return "\n".join([*lines, END])


def renewed(page: str) -> str:
    """Put the present scripts into the text of the page."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: generated(), page)


def on_page_markdown(markdown: str, *, page: object, **_: object) -> str:
    """End the build where the page is not what the headers say; called by mkdocs for each page."""
    if getattr(getattr(page, "file", None), "src_uri", "") == PAGE and renewed(markdown) != markdown:
        # Of the docs group, which a run as a script does without. A warning would be lost in a quiet build.
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{PAGE} differs from the scripts: run python {Path(__file__).relative_to(ROOT)}")
    return markdown


if __name__ == "__main__":
    path = ROOT / "docs" / PAGE
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{path.relative_to(ROOT)} says what the scripts say\n")
