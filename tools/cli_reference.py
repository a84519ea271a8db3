"""Write docs/reference/cli.md anew from the help texts of `pawlock`; a test holds the two equal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from pawlock.cli.main import group  # noqa: E402  # of this checkout

PAGE = ROOT / "docs" / "reference" / "cli.md"
_WIDTH = 100
_ALIKE = re.compile(
    r"^ +(-h, --help +Show this|--url URL +Server URL \(default|--namespace TEXT +Key prefix of the locks \(default: pawlock)"
)
"""Options that the introduction explains for all commands."""
_INTRODUCTION = """\
# CLI reference

`pip install "pawlock[cli]"` installs the command `pawlock`; `python -m pawlock` is the same. At work: [run a command
under a lock](../how-to/run-a-command.md), [inspect locks](../how-to/look-at-locks.md), [check a
server](../how-to/server-down.md#check-a-server-with-pawlock-doctor). This page is the output of `pawlock COMMAND
--help`, without the options that all commands have: `-h`, `--url URL` (else `PAWLOCK_URL`, else the embedded server of
this machine), and `--namespace TEXT` (the key prefix of the locks; else `PAWLOCK_NAMESPACE`, else `pawlock`).

An error is one line on standard error with a stable code, which [errors](errors.md) explains, and often with a fix.
`--json` prints output for programs. Colours are used only on terminals, and never if `NO_COLOR` is set. Every TIME is
in seconds, or a number with a unit: `500ms`, `90`, `90s`, `5m`, `1.5h`, `30d`, `2w`.

Common exit codes:

| code | meaning |
|---|---|
| 0 | success |
| 64 | wrong usage; nothing was sent |
| 69 | the server is unreachable or refused |
| 74 | standard output cannot be written |
| 75 | held by another client |
| 76 | the lease was lost |
| 128 + n | ended by signal n: 130 is Ctrl-C; 141 means that the reader of the output has closed it |
"""


def commands(
    command: click.Command, path: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Yield each command below one, with its help text."""
    context = click.Context(
        command,
        info_name=path.rpartition(" ")[2],
        parent=parent,
        terminal_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from commands(found, f"{path} {name}", context)
    else:
        lines = command.get_help(context).splitlines()
        yield path, "\n".join(line.rstrip() for line in lines if not _ALIKE.match(line))


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    parts += [f"## {path}\n\n```text\n{text}\n```\n" for path, text in commands(group, "pawlock")]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
