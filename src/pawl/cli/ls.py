"""`pawl ls`: all held names."""

from __future__ import annotations

from typing import Any

import click

from pawl.cli._common import (
    SETTINGS,
    chosen,
    client_of,
    json_option,
    print_json,
    record,
    server_options,
    write,
)
from pawl.cli._rows import ORDERS, cells, ordered, table
from pawl.cli.exits import Exit

__all__ = ["ls"]

_EXAMPLES = """\b
Examples:
  pawl ls                               every held name, over all clients
  pawl ls --filter 'order:*'            names (or holders) of a pattern; without * or ?, those that contain it
  pawl ls --sort waiters | head -5      where most wait
  pawl ls --json | jq '.[] | select(.age > 600) | .name'

\b
Exit codes:
  0   also when nothing is held     69  the server cannot be asked, or refuses
  64  wrong usage

The list is what clients tell of themselves, so it costs the server no scan. A name appears once it has been
held for a second. AGE is counted by the clock of this machine.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.option("--filter", "wanted", metavar="TEXT", default="", help="Only names and holders that match.")
@click.option(
    "--sort",
    type=click.Choice(sorted(ORDERS)),
    default="name",
    help="Order: by name, or what is oldest, ends soonest, has most waiters first (name).",
)
@json_option("Print one JSON array, an object for each name.")
@server_options
def ls(**given: Any) -> int:
    """List all held names: who holds each, since when, for how long yet, and how many wait.

    Columns: name, kind, holder (process and thread), host, age, what is left of the lease, fence, waiters.
    """
    with client_of(given) as client:
        infos = client.locks()
    found = ordered((info for info in infos if chosen(info, given["wanted"])), given["sort"])
    if given["as_json"]:
        print_json([record(info) for info in found], indent=2)
    else:
        for line in table([cells(info) for info in found]):
            write(line)
    return Exit.OK
