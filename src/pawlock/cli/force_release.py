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

if TYPE_CHECKING:
    from pawlock import LockInfo

__all__ = ["force_release"]

_DECLINED = 1
_EXAMPLES = """\b
Examples:
  pawlock force-release order:42
  pawlock force-release --yes --reason 'holder hangs, INC-17' order:42

\b
Exit codes:
  0   released, or it was free   69  the server is unreachable or refused
  1   declined                   64  wrong usage; not a terminal and no --yes or no --reason
  130 Ctrl-C; nothing was done   75  it changed hands each time that it was to be taken

The previous holder keeps running until it notices the loss; its fencing token becomes stale, so guarded writes refuse
it. Writes it already made are not undone. The audit log records who did it, when and why: `pawlock show`.
"""


@click.command("force-release", epilog=_EXAMPLES, context_settings=SETTINGS)
@name_argument
@click.option("--reason", metavar="TEXT", help="Reason for the audit log; prompted for on a terminal.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option("Print one JSON object.")
@server_options
def force_release(**given: Any) -> int:
    """End the current lease of the lock NAME, and grant the lock to the next waiter."""
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    if not asks and not given["yes"]:
        raise click.UsageError("not a terminal: pass --yes and --reason to confirm")
    if not asks and not given["reason"]:
        raise click.UsageError("not a terminal: pass --reason, which is recorded in the audit log")
    from pawlock import Forced

    name = given_name(given["name"])
    with client_of(given) as client:
        if not given["yes"]:
            info = client.inspect(name, waiters=0)
            if not info.held:
                free = Forced(given["name"], released=False, holder="", fence=None, held_as=info.held_as)
                return _print_result(dataclasses.asdict(free), given)
            if _ask(f"{_question(info)} [y/N]: ").lower() not in ("y", "yes"):
                return _DECLINED
        reason = given["reason"] or _ask("Reason: ")
        forced = client.force_release(name, reason=reason)
    return _print_result(dataclasses.asdict(forced), given)


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


def _question(info: LockInfo) -> str:
    holder = readable(info.holder) or "a program that is not pawlock"
    age = "" if info.since is None else f" for {duration(age_of(info))}"
    waiting = f", {info.queue_length} waiting" if info.queue_length else ""
    return f"{readable(info.name)!r} is held by {holder}{age}{waiting}. Force release?"


def _print_result(forced: dict[str, Any], given: dict[str, Any]) -> int:
    if given["as_json"]:
        print_json(forced)
    elif forced["released"]:
        holder = readable(forced["holder"]) or "a program that is not pawlock"
        write(
            f"{readable(given['name'])!r} was force-released from {holder}; its fencing token is now {forced['fence']}"
        )
    elif forced["held_as"]:
        kind = forced["held_as"]
        write(f"{readable(given['name'])!r} is free as a lock; the {kind} of that name is still held")
    elif forced["holder"]:
        write(
            f"{readable(given['name'])!r} was not taken: it changed hands each time, and is now held by"
            f" {readable(forced['holder'])}; run it again"
        )
        return Exit.CONFLICT
    else:
        write(f"{readable(given['name'])!r} is free")
    return Exit.OK
