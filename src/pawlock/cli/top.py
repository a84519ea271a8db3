"""`pawlock top`: held names, live."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli._common import (
    SETTINGS,
    client_of,
    json_option,
    positive,
    print_json,
    record,
    server_options,
    write,
)
from pawlock.cli._rows import cells, table
from pawlock.cli._view import KEYS, View
from pawlock.cli.exits import Exit, by_signal

if TYPE_CHECKING:
    from pawlock import Client, LockInfo

__all__ = ["top"]

_EXAMPLES = """\b
Examples:
  pawlock top
  pawlock top --sort age --filter 'order:*'
  pawlock top -n 1 --sort contention   print once, as text; works without a terminal
  pawlock top --json --interval 10     one JSON object per refresh, for a log

\b
Keys:
  n a t w c h   sort by name, age, TTL left, waiters, contention, holder; r reverses the order
  /             filter; Enter applies it, Esc clears it
  j k ↑ ↓ PgUp PgDn   move
  q             quit

\b
Exit codes:
  0    q, or -n refreshes done   69  the server is unreachable, and output is not a terminal
  130  Ctrl-C                    64  wrong usage

CONTENTION is the average number of waiters over the last 60 refreshes. Each refresh looks at all keys of the server, a
thousand at a time; on a server with many, refreshes are further apart. On a terminal, `pawlock top` keeps running while
the server is unreachable, and says so.
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
    type=click.Choice(sorted(KEYS.values())),
    default="waiters",
    help="Sort order (default: waiters).",
)
@click.option("--reverse", is_flag=True, help="Reverse the sort order.")
@click.option(
    "--interval",
    type=float,
    default=1.0,
    metavar="S",
    callback=positive,
    help="Refresh interval in seconds (default: 1).",
)
@click.option(
    "-n", "--count", type=click.IntRange(1), metavar="N", help="Print N refreshes as text, and exit."
)
@json_option("Print one JSON object per refresh, until Ctrl-C or -n.")
@server_options
def top(**given: Any) -> int:
    """Show held locks live: holders, ages, remaining TTLs, waiters, contention."""
    view = View(order=given["sort"], reverse=given["reverse"], wanted=given["wanted"])
    terminal = os.name == "posix" and sys.stdin.isatty() and sys.stdout.isatty()
    terminal = terminal and os.environ.get("TERM", "dumb") != "dumb"
    with client_of(given) as client:
        if given["as_json"] or given["count"] or not terminal:
            refreshes = given["count"] or (0 if given["as_json"] else 1)
            return _print(client, view, given, refreshes)
        return _Display(client, view, given["interval"]).run()


def _print(client: Client, view: View, given: Mapping[str, Any], refreshes: int) -> int:
    taken = 0
    while True:
        began = time.monotonic()
        view.update(client.locks())
        rows = view.rows()
        if given["as_json"]:
            shown = [{**record(info), "contention": round(view.contention.of(info), 2)} for info in rows]
            print_json({"at": round(time.time(), 3), "locks": shown})
        else:
            for line in table([cells(info) for info in rows]):
                write(line)
        taken += 1
        if taken == refreshes:
            return Exit.OK
        time.sleep(max(given["interval"], time.monotonic() - began))


class _Poller:
    """The thread that polls the server, so that keys work while it does not answer."""

    def __init__(self, client: Client, every: float, wake: Callable[[], object]) -> None:
        self.fresh: list[LockInfo] | None = None
        self.error = ""
        self.answered_at = time.monotonic()
        self._client = client
        self._every = every
        self._wake = wake
        self._over = threading.Event()

    def start(self) -> None:
        """Start polling."""
        threading.Thread(target=self._run, name="pawlock-top", daemon=True).start()

    def stop(self) -> None:
        """Stop polling."""
        self._over.set()

    def _run(self) -> None:
        from pawlock import PawlockError

        while not self._over.is_set():
            began = time.monotonic()
            try:
                self.fresh = self._client.locks()
                self.error, self.answered_at = "", time.monotonic()
            except PawlockError as error:
                self.error = " ".join(str(error).split())
            self._wake()
            took = time.monotonic() - began
            self._over.wait(max(took, self._every - took))


class _Display:
    def __init__(self, client: Client, view: View, every: float) -> None:
        from pawlock.cli._screen import Screen
        from pawlock.cli._signals import SignalPipe

        self._view = view
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGWINCH", "SIGCONT")
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        self._signals = SignalPipe([one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN])
        self._screen = Screen()
        self._late = max(3.0, 3 * every)
        self._poller = _Poller(client, every, self._signals.wake)

    def run(self) -> int:
        """Show until a key or a signal ends it."""
        self._poller.start()
        both: list[Any] = [self._signals, self._screen]
        try:
            with self._screen.open():
                while True:
                    self._screen.draw(self._view, self._status())
                    ready, _, _ = select.select(both, [], [], self._late)
                    code = self._handle_signals() if self._signals in ready else None
                    if self._screen in ready:
                        code = self._handle_keys() if code is None else code
                    if code is not None:
                        return code
                    if self._poller.fresh is not None:
                        self._view.update(self._poller.fresh)
                        self._poller.fresh = None
        finally:
            self._poller.stop()

    def _status(self) -> str:
        silent = time.monotonic() - self._poller.answered_at
        if self._poller.error:
            return f"{self._poller.error} (last answer {silent:.0f} s ago)"
        return f"server not responding for {silent:.0f} s" if silent > self._late else ""

    def _handle_signals(self) -> int | None:
        for number in self._signals.received():
            if number == signal.SIGCONT:
                self._screen.resume()
            elif number != signal.SIGWINCH:
                return by_signal(number)
        return None

    def _handle_keys(self) -> int | None:
        keys = self._screen.read()
        if keys is None:
            return by_signal(signal.SIGHUP)
        return Exit.OK if any(self._view.press(key) for key in keys) else None
