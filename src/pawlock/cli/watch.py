"""`pawlock watch`: a line for each change of a name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli._common import (
    SETTINGS,
    client_of,
    duration,
    json_option,
    name_argument,
    positive,
    print_json,
    readable,
    record,
    server_options,
    write,
)
from pawlock.cli.exits import Exit
from pawlock.cli.show import find

if TYPE_CHECKING:
    from pawlock import LockInfo

__all__ = ["changes", "watch"]

_EXAMPLES = """\b
Examples:
  pawlock watch order:42
  pawlock watch --json order:42 | jq -r 'select(.event == "held") | .holder'
  pawlock watch --interval 0.1 --count 20 order:42

\b
Events:
  held      acquired by a client; also the first line if it is held
  free      released or expired; also the first line if it is free
  waiters   the number of waiters changed

\b
Exit codes:
  0    --count lines printed   69  the server is unreachable or refused
  130  Ctrl-C                  64  wrong usage

The lock is checked every --interval seconds. A hold that begins and ends between two checks is not printed, but a
higher fencing token shows that there was one.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@name_argument
@click.option(
    "--interval",
    type=float,
    default=0.5,
    metavar="S",
    callback=positive,
    help="Seconds between two checks (default: 0.5).",
)
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="Exit after N lines.")
@json_option("Print one JSON object per line.")
@server_options
def watch(**given: Any) -> int:
    """Print a line whenever a lock changes hands or its queue changes, until Ctrl-C."""
    printed = 0
    before: dict[str, LockInfo] = {}
    with client_of(given) as client:
        while True:
            began = time.monotonic()
            now = {info.kind: info for info in find(client, given["name"], 0)}
            for event, info in changes(before, now):
                _print_event(event, info, as_json=given["as_json"])
                printed += 1
                if printed == given["count"]:
                    return Exit.OK
            before = now
            time.sleep(max(0.0, given["interval"] - (time.monotonic() - began)))


def changes(before: dict[str, LockInfo], now: dict[str, LockInfo]) -> list[tuple[str, LockInfo]]:
    """What changed between two checks.

    Args:
        before: What there was, by kind; empty at the first look.
        now: What there is.

    Returns:
        An event and the record that it is about, for each change.
    """
    found: list[tuple[str, LockInfo]] = []
    for kind, info in now.items():
        old = before.get(kind)
        if old is None or _grant(old) != _grant(info):
            if info.held or old is not None or not before:
                found.append(("held" if info.held else "free", info))
        elif old.queue_length != info.queue_length:
            found.append(("waiters", info))
    from dataclasses import replace

    # What is neither held nor waited for any more is not looked at: it is free.
    gone = [old for kind, old in before.items() if kind not in now and old.held]
    found += [
        ("free", replace(old, held=False, holder="", holders=(), ttl_left=0.0, since=None)) for old in gone
    ]
    return found


def _grant(info: LockInfo) -> object:
    return info.held, info.fence, info.holder, sorted(one.holder for one in info.holders)


def _print_event(event: str, info: LockInfo, *, as_json: bool) -> None:
    at = time.time()
    if as_json:
        print_json({"at": round(at, 3), "event": event, **record(info)})
        return
    clock = f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at * 1000) % 1000:03}"
    holders = ", ".join(one.holder for one in info.holders) or info.holder or "a program that is not pawlock"
    words = {
        "held": f"held by {readable(holders)}, fence {info.fence}, {duration(info.ttl_left)} left",
        "free": f"free, fence {info.fence}",
        "waiters": f"{info.queue_length} waiting",
    }
    extra = f", {info.queue_length} waiting" if event == "held" and info.queue_length else ""
    write(f"{clock}  {readable(info.name)} ({info.kind})  {words[event]}{extra}")
