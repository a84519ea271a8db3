"""`pawlock top`: held names, live."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli._common import (
    SETTINGS,
    as_seconds,
    chosen,
    client_of,
    duration,
    json_option,
    print_json,
    record,
    server_options,
    write,
)
from pawlock.cli._rows import COLUMNS, ORDERS, cells, ordered, table
from pawlock.cli.exits import Exit, say

if TYPE_CHECKING:
    from rich.table import Table

    from pawlock import Client, LockInfo

__all__ = ["top"]

_LONG = 60.0
"""Seconds after which a wait is to be seen from afar; see the alert PawlockServiceLongWait."""

_EXAMPLES = """\b
Examples:
  pawlock top
  pawlock top --sort age --filter 'order:*'
  pawlock top -n 1 --sort waiters   print once, as text; works without a terminal
  pawlock top --json --interval 10s one JSON object per refresh, for a log

\b
Exit codes:
  0    -n refreshes done   69  the server is unreachable, and output is not a terminal
  130  Ctrl-C              64  wrong usage

Each refresh scans all keys of the server, a thousand at a time; with many keys, refreshes are further apart. On a terminal,
`pawlock top` keeps running while the server is unreachable, and says so.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.option(
    "--filter",
    "wanted",
    metavar="TEXT",
    default="",
    help="Only locks whose name or holder, as printed, matches.",
)
@click.option("--sort", type=click.Choice(sorted(ORDERS)), default="wait", help="Sort order (default: wait).")
@click.option("--reverse", is_flag=True, help="Reverse the sort order.")
@click.option(
    "--interval",
    callback=as_seconds(0.05, 86400),
    default="1s",
    metavar="TIME",
    help="Refresh interval (default: 1s).",
)
@click.option(
    "-n", "--count", type=click.IntRange(1), metavar="N", help="Print N refreshes as text, and exit."
)
@json_option("Print one JSON object per refresh, until Ctrl-C or -n.")
@server_options
def top(**given: Any) -> int:
    """Show held locks live, until Ctrl-C: holders, ages, remaining TTLs, waiters."""
    terminal = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    with client_of(given) as client:
        if terminal and not given["as_json"] and not given["count"]:
            return _show(client, given)
        left = given["count"] or (0 if given["as_json"] else 1)
        while True:
            began = time.monotonic()
            found = _rows(client.locks(), given)
            if given["as_json"]:
                print_json({"at": round(time.time(), 3), "locks": [record(info) for info in found]})
            else:
                write("\n".join(table([cells(info) for info in found])))
            left -= 1
            if left == 0:
                return Exit.OK
            _pause(given, began)


def _pause(given: Mapping[str, Any], began: float) -> None:
    """Wait for the interval, and for at least as long as the scan took."""
    time.sleep(max(given["interval"], time.monotonic() - began))


def _rows(infos: Sequence[LockInfo], given: Mapping[str, Any]) -> list[LockInfo]:
    wanted = (info for info in infos if chosen(info, given["wanted"]))
    return ordered(wanted, given["sort"], reverse=given["reverse"])


def _show(client: Client, given: Mapping[str, Any]) -> int:
    try:
        from rich.live import Live
    except ImportError:
        say('`pawlock top` at a terminal needs rich: pip install "pawlock[cli]"', colour="red")
        return Exit.UNAVAILABLE
    from pawlock import PawlockError

    infos: Sequence[LockInfo] = ()
    answered = time.monotonic()
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            try:
                infos, trouble, answered = client.locks(), "", time.monotonic()
            except PawlockError as error:
                began = time.monotonic()  # that took no time of the server's
                trouble = f"{error} (last answer {began - answered:.0f} s ago)"
            live.update(_table(_rows(infos, given), trouble, live.console.height), refresh=True)
            _pause(given, began)


def _table(infos: Sequence[LockInfo], trouble: str, height: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    waiting = sum(info.waiting for info in infos)
    longest = max((info.longest_wait or 0.0 for info in infos), default=0.0)
    most = f", for up to {duration(longest)}" if waiting else ""
    title = trouble or f"pawlock top: {len(infos)} held, {waiting} waiting{most}; Ctrl-C quits"
    loud = "bold red" if trouble or longest >= _LONG else ""
    made = Table(title=Text(" ".join(title.split()), loud), title_justify="left", box=None, pad_edge=False)
    # The fence says nothing here, and is as wide as what does: `pawlock show` has it.
    shown = infos[: max(height - 2, 1)]
    rows = [cells(info)[:-1] for info in shown]
    for at, column in enumerate(COLUMNS[:-1]):
        # On a narrow terminal names are cut, numbers never.
        right = column not in {"NAME", "KIND", "HOLDER"}
        least = max(len(row[at]) for row in (COLUMNS, *rows)) if right else None
        made.add_column(column, justify="right" if right else "left", no_wrap=True, min_width=least)
    for info, row in zip(shown, rows, strict=True):
        made.add_row(*map(Text, row), style="red" if (info.longest_wait or 0.0) >= _LONG else "")
    return made
