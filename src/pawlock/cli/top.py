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
from pawlock.cli._rows import COLUMNS, ORDERS, RIGHT, cells, ordered, table
from pawlock.cli.exits import Exit, say

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions
    from rich.table import Table

    from pawlock import Client, LockInfo

__all__ = ["top"]

_LONG = 60.0
"""Seconds after which a wait is to be seen from afar; see the alert PawlockServiceLongWait."""

_PATIENCE = 2.0
"""How long what stands at a terminal may be old, and not say so: the server is asked again anyway."""

_LOUD = "bold red"
_ROOM = 36
"""Columns that names and holders need before the remaining TTL and the kind have theirs."""

_WIDEST, _WIDEST_HOLDER = 60, 32

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
    live = terminal and not given["as_json"] and not given["count"]
    with client_of(given, **({"unavailable_after": _PATIENCE} if live else {})) as client:
        if live:
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
    rows: Sequence[Mapping[str, str]] = ()
    answered = time.monotonic()
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            try:
                infos, trouble, answered = _rows(client.locks(), given), "", time.monotonic()
                # As text: during an outage it is shown as it was then.
                rows = [dict(zip(COLUMNS, cells(info), strict=True)) for info in infos]
            except PawlockError as error:
                began = time.monotonic()  # that took no time of the server's
                trouble = f"last answer {began - answered:.0f} s ago: {error}"
            live.update(_table(infos, rows, trouble, live.console.size), refresh=True)
            _pause(given, began)


def _widths(width: int) -> dict[str, int]:
    """The columns that a terminal has room for, the same at each refresh whatever is in them.

    The fence says nothing here, and is as wide as what does: `pawlock show` has it.
    """
    widths = {"NAME": 0, "WAIT": 7, "WAITERS": 7, "HOLDER": 0, "AGE": 7, "TTL LEFT": 8, "KIND": 9}
    room = 0
    for least in ("", "TTL LEFT", "KIND"):
        widths.pop(least, None)
        room = width - sum(widths.values()) - 2 * (len(widths) - 1)
        if room >= _ROOM:
            break
    holder = min(room // 2, _WIDEST_HOLDER)
    return {**widths, "NAME": min(room - holder, _WIDEST), "HOLDER": holder}


def _table(
    infos: Sequence[LockInfo], rows: Sequence[Mapping[str, str]], trouble: str, size: ConsoleDimensions
) -> Table:
    from rich.table import Table
    from rich.text import Text

    waiting = sum(info.waiting for info in infos)
    longest = max((info.longest_wait or 0.0 for info in infos), default=0.0)
    most = f", longest {duration(longest)}" if waiting else ""
    title = " ".join(trouble.split()) or f"{len(infos)} held, {waiting} waiting{most}; Ctrl-C quits"
    line = Text(title, _LOUD if trouble or longest >= _LONG else "")
    line.truncate(size.width, overflow="ellipsis")
    made = Table(title=line, title_justify="left", title_style="", box=None, pad_edge=False)
    columns = _widths(size.width)
    for name, width in columns.items():
        made.add_column(name, justify="right" if name in RIGHT else "left", no_wrap=True, width=width)
    shown = min(len(rows), max(size.height - 2, 1))
    for info, row in zip(infos[:shown], rows, strict=False):
        style = "dim" if trouble else _LOUD if (info.longest_wait or 0.0) >= _LONG else ""
        text = {**row, "HOLDER": _cut(row["HOLDER"], columns["HOLDER"])}
        made.add_row(*(Text(text[name]) for name in columns), style=style)
    return made


def _cut(holder: str, width: int) -> str:
    """The name of a holder is cut, and not how many more there are."""
    who, plus, more = holder.rpartition(" +")
    room = width - len(plus + more)
    return holder if len(holder) <= width or not more.isdecimal() else f"{who[: room - 1]}…{plus}{more}"
