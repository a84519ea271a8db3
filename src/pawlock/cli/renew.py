"""`pawlock renew`: extend a lock that `pawlock acquire` acquired."""

from __future__ import annotations

from typing import Any

import click

from pawlock._inside import plan_behind
from pawlock.cli._common import SETTINGS, client_of, json_option, print_json, seconds, server_options
from pawlock.cli._ticket import announce, ticket_of
from pawlock.cli.exits import Exit

__all__ = ["renew"]

_EXAMPLES = """\b
Examples:
  pawlock renew                       the ticket in PAWLOCK_TICKET, set by `eval` of `pawlock acquire`
  pawlock renew --ttl 600 "$ticket"
  pawlock renew - < ticket            from standard input, which `ps` does not show
\b
  pawlock renew || exit               between two steps of a script: 76 if the lock was lost

\b
Exit codes:
  0   extended                   69  the server is unreachable or refused
  76  the lease was lost before  64  wrong usage, or no ticket

The ticket and the fencing token stay the same, and a TTL that is shorter than what is left shortens nothing. To hold
a lock while a single command runs, prefer `pawlock run`, which renews by itself.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.argument("ticket", metavar="[TICKET]", required=False)
@click.option(
    "--ttl",
    type=float,
    metavar="S",
    callback=seconds,
    help="Seconds from now (default: the TTL of the ticket).",
)
@json_option("Print one JSON object.")
@server_options
def renew(**given: Any) -> int:
    """Extend a lock that `pawlock acquire` acquired; the ticket stays valid."""
    from pawlock._template import escape
    from pawlock.core.release.transfer import read_ticket

    text = ticket_of(given)
    ticket = read_ticket(text)
    ttl = ticket.ttl if given["ttl"] is None else given["ttl"]
    name = ticket.source or escape(ticket.name)
    with client_of(given) as client:
        left = client.extend(name, text, ttl)
        # It may live longer than this renewal asked for.
        lives = max(ttl, client.inspect(name, waiters=0).ttl_left or 0.0)
        plan = plan_behind(client.lock(name, ttl=lives))
        announce(client, plan.primitive, plan.options, ticket.token, ticket.fence)
    if given["as_json"]:
        print_json({"name": ticket.name, "fence": ticket.fence, "remaining": round(left, 3)})
    return Exit.OK
