"""`pawl force-release`: take a lock from whoever holds it."""

from __future__ import annotations

import dataclasses
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import click

from pawl.cli._common import (
    SETTINGS,
    age_of,
    client_of,
    duration,
    json_option,
    print_json,
    readable,
    server_options,
    write,
)
from pawl.cli.exits import Exit

if TYPE_CHECKING:
    from pawl import LockInfo

__all__ = ["force_release"]

_DECLINED = 1
_EXAMPLES = """\b
Examples:
  pawl force-release order:42
  pawl force-release --yes --reason 'holder hangs, INC-17' order:42

\b
Exit codes:
  0   it was taken, or nobody held it   69  the server cannot be asked, or refuses
  1   you said no                       64  wrong usage; without a terminal: no --yes or no --reason
  130 Ctrl-C; nothing was done

The fence rises, so what checks fences refuses the old holder. The old holder is told and stops, but what it does
until then is not undone. Who did it, when and why stands in the audit trail: `pawl audit`.
"""


@click.command("force-release", epilog=_EXAMPLES, context_settings=SETTINGS)
@click.argument("name", metavar="NAME")
@click.option("--reason", metavar="TEXT", help="Why; for the audit trail. Asked for on a terminal.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option("Print one JSON object.")
@server_options
def force_release(**given: Any) -> int:
    """Take the lock NAME from whoever holds it, and give it to the next waiter."""
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    if not asks and not given["yes"]:
        raise click.UsageError("there is no terminal to ask on: add --yes to take it from its holder")
    if not asks and not given["reason"]:
        raise click.UsageError("say why with --reason: it stands in the audit trail")
    from pawl import Forced
    from pawl.core.template import escape

    name = escape(given["name"])
    with client_of(given) as client:
        if not given["yes"]:
            info = client.inspect(name, waiters=0)
            if not info.held:
                free = Forced(given["name"], released=False, holder="", fence=None, held_as=info.held_as)
                return _told(dataclasses.asdict(free), given)
            if _ask(f"{_question(info)} [y/N]: ").lower() not in ("y", "yes"):
                return _DECLINED
        reason = given["reason"] or _ask("Why: ")
        forced = client.force_release(name, reason=reason)
    return _told(dataclasses.asdict(forced), given)


def _ask(question: str) -> str:
    """Ask on the terminal. Unlike `input`, it misses no Ctrl-C that comes just before it begins to read."""
    ring, bell = socket.socketpair()
    with ring, bell:
        bell.setblocking(False)
        before = signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
        try:
            sys.stderr.write(question)
            sys.stderr.flush()
            while True:
                # A signal that raises does so here; after any other one, wait on.
                ready, _, _ = select.select([sys.stdin, ring], [], [])
                if sys.stdin in ready:
                    break
                ring.recv(64)
        finally:
            signal.set_wakeup_fd(before)
    return sys.stdin.readline().strip()


def _question(info: LockInfo) -> str:
    holder = readable(info.holder) or "a program that is not pawl"
    age = "" if info.since is None else f" for {duration(age_of(info))}"
    waiting = f", {info.queue_length} waiting" if info.queue_length else ""
    return f"{readable(info.name)!r} is held by {holder}{age}{waiting}. Take it away?"


def _told(forced: dict[str, Any], given: dict[str, Any]) -> int:
    if given["as_json"]:
        print_json(forced)
    elif forced["released"]:
        holder = readable(forced["holder"]) or "a program that is not pawl"
        write(f"{readable(given['name'])!r} was taken from {holder}; its fence is {forced['fence']} now")
    elif forced["held_as"]:
        kind = forced["held_as"]
        write(f"{readable(given['name'])!r} is free as a lock; the {kind} of that name is held, and stays so")
    else:
        write(f"{readable(given['name'])!r} is free")
    return Exit.OK
