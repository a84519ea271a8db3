"""`pawlock force-release`: end the lease of another client."""

from __future__ import annotations

import dataclasses
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli._common import (
    SETTINGS,
    age_of,
    client_of,
    duration,
    given_name,
    json_option,
    name_argument,
    print_json,
    readable,
    server_options,
    write,
)
from pawlock.cli.exits import Exit
from pawlock.cli.show import find
from pawlock.primitives.registry import beside_locks

if TYPE_CHECKING:
    from pawlock import Client, LockInfo

__all__ = ["force_release"]

_DECLINED = 1
_STRANGER = "a program that is not pawlock"
_KINDS = ("lock", *beside_locks())
_EXAMPLES = """\b
Examples:
  pawlock force-release order:42
  pawlock force-release --yes --reason 'holder hangs, INC-17' order:42
  pawlock force-release --kind semaphore --holder web-3:4711/worker-2 exports

\b
Exit codes:
  0   released                   69  the server is unreachable or refused
  1   declined                   64  wrong usage; not a terminal and no --yes or no --reason
  130 Ctrl-C; nothing was done   76  nothing was released: nobody holds it, or it changed hands each time

The previous holder keeps running until it notices the loss; its fencing token becomes stale, so guarded writes refuse
it. Writes it already made are not undone. The audit log records who did it, when and why: `pawlock show`. Who it was is the
user that called sudo (SUDO_USER), else USER, and the host; or --by.
"""


@click.command("force-release", epilog=_EXAMPLES, context_settings=SETTINGS)
@name_argument
@click.option("--kind", type=click.Choice(_KINDS), help="Kind of the lease (default: the kind that is held).")
@click.option(
    "--holder",
    metavar="TEXT",
    default="",
    help="Holder to release, as `show` prints it (default: all holders).",
)
@click.option("--reason", metavar="TEXT", help="Reason for the audit log; prompted for on a terminal.")
@click.option("--by", metavar="TEXT", default="", help="Who does it, for the audit log (default: user@host).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print one JSON object.")
@server_options
def force_release(**given: Any) -> int:
    """End the current lease of NAME, of whatever kind, and grant it to the next waiter."""
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    if not asks and not given["yes"]:
        raise click.UsageError("not a terminal: pass --yes and --reason to confirm")
    if not asks and not given["reason"]:
        raise click.UsageError("not a terminal: pass --reason, which is recorded in the audit log")
    with client_of(given) as client:
        kind, info = _found(client, given)
        if not (given["yes"] or info is None or _agreed(info, kind, given["holder"])):
            return _DECLINED
        reason = given["reason"]
        if not reason:
            reason = "nobody held it" if info is None else _ask("Reason: ")
        whose, by = given["holder"], given["by"]
        forced = client.force_release(given_name(given["name"]), kind, reason=reason, holder=whose, by=by)
    if given["as_json"]:
        print_json(dataclasses.asdict(forced))
    else:
        more = f", {forced.count} leases" if forced.count > 1 else ""
        write(
            f"{readable(forced.name)!r} was force-released from {readable(forced.holder) or _STRANGER}{more}; its fencing"
            f" token is now {forced.fence}"
        )
    return Exit.OK


def _found(client: Client, given: dict[str, Any]) -> tuple[Any, LockInfo | None]:
    """The kind that holds the name, and its state; None if nobody holds it."""
    held = {info.kind.partition(".")[0]: info for info in find(client, given["name"], 0) if info.held}
    kind = given["kind"] or next(iter(held), "lock")
    if not given["kind"] and len(held) > 1:
        raise click.UsageError(f"it is held as {' and '.join(held)}: choose one with --kind")
    return kind, held.get(kind)


def _ask(question: str) -> str:
    """Ask on the terminal. Unlike `input`, it misses no Ctrl-C that comes just before it begins to read."""
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            sys.stderr.write(question)
            sys.stderr.flush()
            while True:
                # A signal that raises does so here; after any other one, wait on.
                ready, _, _ = select.select([sys.stdin, reader], [], [])
                if sys.stdin in ready:
                    break
                reader.recv(64)
        finally:
            signal.set_wakeup_fd(before)
    return sys.stdin.readline().strip()


def _agreed(info: LockInfo, kind: str, holder: str) -> bool:
    who = holder or readable(info.holder) or _STRANGER
    if not holder and kind in ("semaphore", "rwlock") and info.count > 1:
        who = f"{info.count} holders"
    age = "" if info.since is None else f" for {duration(age_of(info))}"
    waiting = f", {info.waiting} waiting for up to {duration(info.longest_wait)}" if info.longest_wait else ""
    what = "" if kind == "lock" else f" as {kind}"
    question = f"{readable(info.name)!r} is held{what} by {who}{age}{waiting}. Force release? [y/N]: "
    return _ask(question).lower() in ("y", "yes")
