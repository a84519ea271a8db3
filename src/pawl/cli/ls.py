"""`pawl ls`: all held names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pawl.cli._common import (
    SETTINGS,
    chosen,
    client_of,
    json_option,
    print_json,
    readable,
    record,
    server_options,
    where,
    write,
)
from pawl.cli._rows import COLUMNS, ORDERS, cells, ordered, table
from pawl.cli.exits import Exit, say

if TYPE_CHECKING:
    from pawl import LockInfo

__all__ = ["ls"]

_EXAMPLES = """\b
Examples:
  pawl ls                               every held name, over all clients
  pawl ls --filter 'order:*'            names (or holders) of a pattern; without * or ?, those that contain it
  pawl ls --filter web-3:              what a machine holds; also a whole holder, or a part, as it is printed
  pawl ls --all-namespaces              of every namespace; asks the server for all of its keys, bit by bit
  pawl ls --sort waiters | head -5      where most wait
  pawl ls --json | jq '.[] | select(.age > 600) | .name'

\b
Exit codes:
  0   also when nothing is held     69  the server cannot be asked, or refuses
  64  wrong usage

The list is what clients tell of themselves, so it costs the server no scan. A name appears once it has been
held for a second. AGE is counted by the clock of this machine. That nothing is held is said on standard error.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.option(
    "--filter", "wanted", metavar="TEXT", default="", help="Only names and holders, as printed, that match."
)
@click.option(
    "--sort",
    type=click.Choice(sorted(ORDERS)),
    default="name",
    help="Order: by name, or what is oldest, ends soonest, has most waiters first (name).",
)
@click.option("--all-namespaces", "everywhere", is_flag=True, help="Those of every namespace of the server.")
@json_option("Print one JSON array, an object for each name.")
@server_options
def ls(**given: Any) -> int:
    """List all held names: who holds each, since when, for how long yet, and how many wait.

    Columns: name, kind, holder (host, process and thread), age, what is left of the lease, fence, waiters.
    """
    if given["everywhere"]:
        if given["namespace"] is not None:
            raise click.UsageError("--namespace and --all-namespaces exclude each other")
        return _everywhere(given)
    with client_of(given) as client:
        infos = client.locks()
        place = f"namespace {client._settings.namespace!r} ({where(given['url'])})"
    found = ordered((info for info in infos if chosen(info, given["wanted"])), given["sort"])
    if given["as_json"]:
        print_json([record(info) for info in found], indent=2)
    else:
        for line in table([cells(info) for info in found]):
            write(line)
    if given["as_json"]:
        return Exit.OK
    if not infos:
        say(f"nothing is held in {place}; --all-namespaces looks everywhere")
    elif not found:
        say(f"no name or holder matches {given['wanted']!r}; {len(infos)} are held in {place}")
    return Exit.OK


def _everywhere(given: dict[str, Any]) -> int:
    from pawl.cli._spaces import spaces

    rows: list[tuple[str, LockInfo]] = []
    for namespace in spaces(given["url"]):
        with client_of({**given, "namespace": namespace}) as client:
            infos = client.locks()
        rows += [
            (namespace, info)
            for info in ordered((info for info in infos if chosen(info, given["wanted"])), given["sort"])
        ]
    if given["as_json"]:
        print_json([{"namespace": namespace, **record(info)} for namespace, info in rows], indent=2)
    else:
        for line in table(
            [(readable(namespace) or "''", *cells(info)) for namespace, info in rows], ("NAMESPACE", *COLUMNS)
        ):
            write(line)
    if not rows and not given["as_json"]:
        say(f"nothing is held in any namespace of {where(given['url'])}")
    return Exit.OK
