"""`pawlock release`: release a lock that `pawlock acquire` acquired."""

from __future__ import annotations

from typing import Any

import click

from pawlock.cli._common import SETTINGS, client_of, json_option, print_json, server_options
from pawlock.cli._ticket import ticket_of
from pawlock.cli.exits import Exit

__all__ = ["release"]

_EXAMPLES = """\b
Examples:
  pawlock release              the ticket in PAWLOCK_TICKET, set by `eval` of `pawlock acquire`
  pawlock release "$ticket"
  pawlock release - < ticket   from standard input, which `ps` does not show

\b
Exit codes:
  0   released                   69  the server is unreachable or refused
  76  the lease was lost before  64  wrong usage, or no ticket

A ticket can be used once. Tickets from `lease.detach()` work as well.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.argument("ticket", metavar="[TICKET]", required=False)
@json_option("Print one JSON object.")
@server_options
def release(**given: Any) -> int:
    """Release a lock that `pawlock acquire` acquired; the next waiter gets it immediately."""
    ticket = ticket_of(given)
    with client_of(given) as client:
        lease = client.adopt(ticket)
        name, fence = lease.name, lease.fence
        lease.release()
    if given["as_json"]:
        print_json({"name": name, "fence": fence, "released": True})
    return Exit.OK
