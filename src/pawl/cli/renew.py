"""`pawl renew`: extend a lock that `pawl acquire` acquired."""

from __future__ import annotations

from typing import Any

import click

from pawl._inside import plan_behind
from pawl.cli._common import SETTINGS, client_of, json_option, print_json, seconds, server_options
from pawl.cli._ticket import announce, ticket_of
from pawl.cli.exits import Exit

__all__ = ["renew"]

_EXAMPLES = """\b
Examples:
  pawl renew                       the ticket in PAWL_TICKET, set by `eval` of `pawl acquire`
  pawl renew --ttl 600 "$ticket"
  pawl renew - < ticket            from standard input, which `ps` does not show
\b
  pawl renew || exit               between two steps of a script: 76 if the lock was lost

\b
Exit codes:
  0   extended                   69  the server is unreachable or refused
  76  the lease was lost before  64  wrong usage, or no ticket

The ticket and the fencing token stay the same, and a TTL that is shorter than what is left shortens nothing. To hold
a lock while a single command runs, prefer `pawl run`, which renews by itself.
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
    """Extend a lock that `pawl acquire` acquired; the ticket stays valid."""
    from pawl._template import escape
    from pawl.core.release.transfer import read_ticket

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
