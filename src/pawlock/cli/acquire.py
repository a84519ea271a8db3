"""`pawlock acquire`: take a lock in a script, and go on without this process."""

from __future__ import annotations

import shlex
from typing import Any

import click

from pawlock.cli._common import (
    SETTINGS,
    client_of,
    given_name,
    json_option,
    name_argument,
    print_json,
    seconds,
    server_options,
    write,
)
from pawlock.cli._nested import refuse_nested
from pawlock.cli._ticket import announce
from pawlock.cli.exits import Exit

__all__ = ["acquire"]

_EXAMPLES = """\b
Examples:
  vars=$(pawlock acquire --ttl 600 deploy) || exit   75: held by another client
  eval "$vars"                                    sets PAWLOCK_TICKET, PAWLOCK_FENCE, PAWLOCK_LOCK_NAME
  ./deploy.sh --fence "$PAWLOCK_FENCE"
  pawlock renew || exit                              76: lost; else --ttl seconds from now again
  pawlock release                                    reads PAWLOCK_TICKET
\b
  a=$(pawlock acquire -t --ttl 60 a)                 only the ticket, to hold several locks
  b=$(pawlock acquire -t --ttl 60 b)
  pawlock release "$a"; pawlock release "$b"

\b
Exit codes:
  0   lock acquired                       69  the server is unreachable or refused
  75  still held: -n, or -w has elapsed   64  wrong usage

The lease is not renewed: it expires after --ttl seconds, whether or not the work is done. To run a single command,
prefer `pawlock run`: it renews the lease, and ends the command if the lock is lost. Keep the ticket as secret as a
password.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@name_argument
@click.option("-n", "--nonblock", is_flag=True, help="Do not wait: exit 75 if the lock is held.")
@click.option("-w", "--wait", type=float, metavar="S", callback=seconds, help="Wait at most S seconds.")
@click.option("--ttl", type=float, metavar="S", callback=seconds, help="Lock TTL in seconds (default: 30).")
@click.option("-t", "--ticket", "bare", is_flag=True, help="Print only the ticket.")
@json_option("Print one JSON object.")
@server_options
def acquire(**given: Any) -> int:
    """Acquire the lock NAME for a script, and print a ticket for `pawlock release`.

    Prints shell assignments for `eval`, including the fencing token, which increases with every new holder.
    """
    if given["nonblock"] and given["wait"] is not None:
        raise click.UsageError("-n and -w cannot be used together")
    if given["bare"] and given["as_json"]:
        raise click.UsageError("-t and --json cannot be used together")
    from pawlock.core.lease.base import record_of

    timeout = 0.0 if given["nonblock"] else given["wait"]
    options = {} if given["ttl"] is None else {"ttl": given["ttl"]}
    with client_of(given) as client:
        lock = client.lock(given_name(given["name"]), **options)
        if timeout != 0:
            refuse_nested(client, "lock", given["name"])
        lease = lock.acquire() if timeout is None else lock.acquire(timeout=timeout)
        with lease:  # until the ticket is made, whatever goes wrong gives it back
            # One that was handed over has the short life of a place in the queue.
            lease.extend(lease.ttl)
            server_lease = record_of(lease).server_lease
            announce(client, server_lease.primitive, server_lease.options, server_lease.token, lease.fence)
            fence, ttl = lease.fence, lease.ttl
            ticket = lease.detach()
        try:
            _print({"name": given["name"], "ticket": ticket, "fence": fence, "ttl": ttl}, given)
        except BaseException:
            # Nobody has the ticket, so nobody could release it.
            client.adopt(ticket).release()
            raise
    return Exit.OK


def _print(made: dict[str, Any], given: dict[str, Any]) -> None:
    if given["as_json"]:
        print_json(made)
    elif given["bare"]:
        write(made["ticket"])
    else:
        words = {
            "PAWLOCK_LOCK_NAME": made["name"],
            "PAWLOCK_FENCE": str(made["fence"]),
            "PAWLOCK_TICKET": made["ticket"],
        }
        write("\n".join(f"export {key}={shlex.quote(word)}" for key, word in words.items()))
