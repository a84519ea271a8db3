"""`pawlock audit`: what operators did."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from pawlock.cli._common import (
    SETTINGS,
    client_of,
    json_option,
    moment,
    print_json,
    readable,
    server_options,
    write,
)
from pawlock.cli.exits import Exit

__all__ = ["audit"]

_EXAMPLES = """\b
Examples:
  pawlock audit
  pawlock audit --limit 5 --json

\b
Exit codes:
  0   success, even if the audit log is empty   69  the server is unreachable or refused
  64  wrong usage
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    metavar="N",
    help="Maximum number of entries (default: 100).",
)
@json_option("Print a JSON array with one object per entry.")
@server_options
def audit(**given: Any) -> int:
    """Show the audit log: which locks operators force-released, when, why, and from whom. Newest first."""
    with client_of(given) as client:
        entries = client.audit(given["limit"])
    if given["as_json"]:
        print_json([dataclasses.asdict(entry) for entry in entries], indent=2)
        return Exit.OK
    for entry in entries:
        from_whom = f" from {readable(entry.holder)}" if entry.holder else ""
        what = f"{entry.action} {readable(entry.name)}{from_whom} ({entry.outcome})"
        write(f"{moment(entry.at)}  {what}, by {readable(entry.who)}: {readable(entry.text)}")
    return Exit.OK
