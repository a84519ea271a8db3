"""`pawlock ls`: all held names."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

import click

from pawlock._inside import settings_of
from pawlock.cli._common import (
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
from pawlock.cli._rows import COLUMNS, ORDERS, cells, ordered, table
from pawlock.cli.exits import Exit, say

if TYPE_CHECKING:
    from pawlock import Client, LockInfo

__all__ = ["Progress", "ls"]

_SHOW_AFTER = 0.5

_EXAMPLES = """\b
Examples:
  pawlock ls                            all held locks, of all clients
  pawlock ls --filter 'order:*'         names or holders that match a pattern
  pawlock ls --filter web-3:            names or holders that contain a text: all locks of one host
  pawlock ls --all-namespaces           all namespaces
  pawlock ls --sort waiters | head -5   the most contended locks
  pawlock ls --json | jq '.[] | select(.age > 600) | .name'

\b
Exit codes:
  0   success, even if no lock is held   69  the server is unreachable or refused
  64  wrong usage

Scans the keys of the server, a thousand at a time, so that other clients are not blocked; on a terminal, a long scan
shows its progress. AGE uses the clock of this machine. If no lock is held, a note goes to standard error.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.option(
    "--filter",
    "wanted",
    metavar="TEXT",
    default="",
    help="Only locks whose name or holder, as printed, matches.",
)
@click.option(
    "--sort",
    type=click.Choice(sorted(ORDERS)),
    default="name",
    help="Sort order: name, or oldest, expiring soonest, most waiters, longest wait first (default: name).",
)
@click.option("--all-namespaces", "everywhere", is_flag=True, help="List every namespace of the server.")
@json_option("Print a JSON array with one object per lock.")
@server_options
def ls(**given: Any) -> int:
    """List all held locks with their holders, ages and number of waiters.

    Columns: name, kind, holder (host, process and thread), age, remaining TTL, waiters, longest wait, fencing token.
    """
    if given["everywhere"] and given["namespace"] is not None:
        raise click.UsageError("--namespace and --all-namespaces cannot be used together")
    with client_of(given) as client, Progress() as progress:
        if given["everywhere"]:
            return _everywhere(_held_everywhere(client, progress), progress, given)
        infos = client.locks(progress=progress)
        place = f"namespace {settings_of(client).namespace!r} ({where(given['url'])})"
    found = ordered((info for info in infos if chosen(info, given["wanted"])), given["sort"])
    if given["as_json"]:
        print_json([record(info) for info in found], indent=2)
    else:
        for line in table([cells(info) for info in found]):
            write(line)
    if given["as_json"]:
        return Exit.OK
    if not infos:
        say(f"no lock is held in {place}: {progress}; --all-namespaces lists every namespace")
    elif not found:
        say(f"no name or holder matches {given['wanted']!r}; {len(infos)} are held in {place}")
    return Exit.OK


def _held_everywhere(client: Client, progress: Progress) -> dict[str, list[LockInfo]]:
    from pawlock._inside import engine_of
    from pawlock._seen import with_sleepers
    from pawlock.core import operator
    from pawlock.core.names import check_namespace
    from pawlock.runtimes.threads import run

    settings, engine = settings_of(client), engine_of(client)
    spaces: dict[str, list[LockInfo]] = {}
    for namespace, info in run(operator.held(engine, settings.options, progress, everywhere=True)):
        spaces.setdefault(namespace, []).append(info)
    return {
        namespace: run(with_sleepers(engine, infos, settings.engine.names(check_namespace(namespace))))
        for namespace, infos in spaces.items()
    }


def _everywhere(spaces: dict[str, list[LockInfo]], progress: Progress, given: dict[str, Any]) -> int:
    rows = [
        (namespace, info)
        for namespace, held in spaces.items()
        for info in ordered((info for info in held if chosen(info, given["wanted"])), given["sort"])
    ]
    if given["as_json"]:
        print_json([{"namespace": namespace, **record(info)} for namespace, info in rows], indent=2)
    else:
        for line in table(
            [(readable(namespace) or "''", *cells(info)) for namespace, info in rows], ("NAMESPACE", *COLUMNS)
        ):
            write(line)
    if not rows and not given["as_json"]:
        say(f"no lock is held in any namespace of {where(given['url'])}: {progress}")
    return Exit.OK


class Progress:
    """Shows the progress of a long scan on a terminal, and clears it at the end."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._shown = False
        self._total = 0

    def __str__(self) -> str:
        return f"looked at {'all ' * (self._total > 0)}{self._total:,} keys of the server at {time.strftime('%H:%M:%S')}"

    def __call__(self, scanned: int, total: int) -> None:
        """Show how many keys were scanned."""
        self._total = total
        if sys.stderr.isatty() and time.monotonic() - self._since >= _SHOW_AFTER:
            self._shown = True
            sys.stderr.write(f"\r{scanned:,} of {total:,} keys")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
