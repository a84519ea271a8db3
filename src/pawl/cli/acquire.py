"""`pawl acquire`: take a lock in a script, and go on without this process."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from pawl.cli._common import SETTINGS, client_of, json_option, print_json, seconds, server_options, write
from pawl.cli._nested import refuse_nested
from pawl.cli.exits import Exit, say

if TYPE_CHECKING:
    from pawl import Client, Lease

__all__ = ["acquire"]

_EXAMPLES = """\b
Examples:
  vars=$(pawl acquire --ttl 600 deploy) || exit     75: somebody else has it
  eval "$vars"                                      sets PAWL_TICKET, PAWL_FENCE, PAWL_LOCK_NAME
  ./deploy.sh --fence "$PAWL_FENCE"
  pawl release                                      reads PAWL_TICKET
\b
  a=$(pawl acquire -t --ttl 60 a)                   the ticket alone, for several locks at a time
  b=$(pawl acquire -t --ttl 60 b)
  pawl release "$a"; pawl release "$b"

\b
Exit codes:
  0   it is yours                                   69  the server cannot be asked, or refuses
  75  held by another: -n, or -w is over            64  wrong usage

Nobody renews the lease: it ends after --ttl seconds, done or not. Where the work is one command, `pawl run`
is better: it renews, and ends the command when the lock is lost. The ticket is as secret as a password.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.argument("name", metavar="NAME")
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait: exit 75 if another holds the lock.")
@click.option("-w", "--wait", type=float, metavar="S", callback=seconds, help="Wait for at most S seconds.")
@click.option("--ttl", type=float, metavar="S", callback=seconds, help="The life of the lease (30 seconds).")
@click.option("-t", "--ticket", "bare", is_flag=True, help="Print the ticket alone.")
@json_option("Print one JSON object.")
@server_options
def acquire(**given: Any) -> int:
    """Take the lock NAME for a script, and print a ticket with which `pawl release` gives it back.

    Prints lines for the shell's `eval`, with the fence: a number that only rises from one holder to the next.
    """
    if given["nonblock"] and given["wait"] is not None:
        raise click.UsageError("-n and -w exclude each other")
    if given["bare"] and given["as_json"]:
        raise click.UsageError("-t and --json exclude each other")
    from pawl.core.template import escape

    timeout = 0.0 if given["nonblock"] else given["wait"]
    options = {} if given["ttl"] is None else {"ttl": given["ttl"]}
    with client_of(given) as client:
        lock = client.lock(escape(given["name"]), **options)
        if timeout != 0:
            refuse_nested(client, "lock", given["name"])
        lease = lock.acquire() if timeout is None else lock.acquire(timeout=timeout)
        with lease:  # until the ticket is made, whatever goes wrong gives it back
            # One that was handed over has the short life of a place in the queue.
            lease.extend(lease.ttl)
            _announce(client, lease)
            fence, ttl = lease.fence, lease.ttl
            ticket = lease.detach()
        try:
            _print({"name": given["name"], "ticket": ticket, "fence": fence, "ttl": ttl}, given)
        except BaseException:
            # Nobody has the ticket, so nobody could release it.
            client.adopt(ticket).release()
            raise
    return Exit.OK


def _announce(client: Client, lease: Lease) -> None:
    from pawl import BackendDenied
    from pawl.core import admin
    from pawl.runtimes.threads import run

    try:
        run(admin.announce(client._engine, lease, f"pawl acquire, by {os.getppid()}"))
    except BackendDenied as denied:
        say(f"it is yours, but `pawl ls` will not list it: {denied}", colour="yellow")


def _print(made: dict[str, Any], given: dict[str, Any]) -> None:
    if given["as_json"]:
        print_json(made)
    elif given["bare"]:
        write(made["ticket"])
    else:
        words = {
            "PAWL_LOCK_NAME": made["name"],
            "PAWL_FENCE": str(made["fence"]),
            "PAWL_TICKET": made["ticket"],
        }
        write("\n".join(f"export {key}={shlex.quote(word)}" for key, word in words.items()))
