# ruff: noqa: INP001 - a hook of mkdocs, no package
"""Keep the tables of options equal to what `pawlock.LockOptions` says of them.

A build of the documentation ends with an error where they differ. `python docs/.hooks/options.py` writes the page anew.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = "reference/options.md"
MARKS = {False: "options", True: "client options"}
"""What stands around the table of a lock's options, and around that of a client's."""
ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
COMPUTED = {"ticket_ttl": "3, at most ttl"}
MORE = {
    "renew": "../concepts/leases.md",
    "replicas": "../how-to/failover.md#wait-for-replicas",
    "on_unavailable": "../how-to/server-down.md",
    "fence_ttl": "../how-to/fence-your-writes.md",
    "request_timeout": "../how-to/connect.md",
}
"""Where more is said."""


def spelled(name: str, default: object) -> str:
    """Write a default as the table has it."""
    if name in COMPUTED:
        return COMPUTED[name]
    if isinstance(default, str):
        return f'`"{default}"`'
    if isinstance(default, bool) or default is None:
        return f"`{default}`"
    return f"{default:,}" if isinstance(default, int) else f"{default:g}"


def generated(*, client: bool) -> str:
    """Write a table."""
    from pawlock.core.options import LockOptions

    text = inspect.cleandoc(LockOptions.__doc__ or "")
    said = {name: re.sub(r"\s+", " ", text) for name, text in ARGUMENT.findall(text)}
    lines = [f"<!-- {MARKS[client]}: begin -->", "", "| option | default | meaning |", "|---|---|---|"]
    for field in fields(LockOptions):
        if (field.name in LockOptions.known()) is not client:
            name = field.name
            meaning = said[name].removeprefix("Of a client alone: ").replace("``", "`").replace("|", "\\|")
            meaning = meaning[0].upper() + meaning[1:]
            more = f" [More]({MORE[name]})." if name in MORE else ""
            lines.append(f"| `{name}` | {spelled(name, field.default)} | {meaning}{more} |")
    return "\n".join([*lines, "", f"<!-- {MARKS[client]}: end -->"])


def renewed(page: str) -> str:
    """Put the present tables into the text of the page."""
    for client, mark in MARKS.items():
        before, _, rest = page.partition(f"<!-- {mark}: begin -->")
        page = before + generated(client=client) + rest.partition(f"<!-- {mark}: end -->")[2]
    return page


def on_page_markdown(markdown: str, *, page: object, **_: object) -> str:
    """End the build where the page is not what the code says; called by mkdocs for each page."""
    if getattr(getattr(page, "file", None), "src_uri", "") == PAGE and renewed(markdown) != markdown:
        # Of the docs group, which a run as a script does without. A warning would be lost in a quiet build.
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{PAGE} differs from the code: run python {Path(__file__).relative_to(ROOT)}")
    return markdown


if __name__ == "__main__":
    path = ROOT / "docs" / PAGE
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
