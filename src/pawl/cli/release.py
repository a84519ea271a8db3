"""`pawl release`: give back what `pawl acquire` took."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from pawl.cli._common import SETTINGS, client_of, json_option, print_json, server_options
from pawl.cli.exits import Exit

__all__ = ["release"]

_EXAMPLES = """\b
Examples:
  pawl release                          the ticket in PAWL_TICKET, as `eval` of `pawl acquire` sets it
  pawl release "$ticket"
  pawl release - < ticket               from standard input, which `ps` does not show

\b
Exit codes:
  0   it was given back                 69  the server cannot be asked, or refuses
  76  it was not ours any more          64  wrong usage, or no ticket

A ticket serves once. It may be one that a program got from `lease.detach()`.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.argument("ticket", metavar="[TICKET]", required=False)
@json_option("Print one JSON object.")
@server_options
def release(**given: Any) -> int:
    """Give back the lock that `pawl acquire` took; its next waiter is served at once."""
    ticket = given["ticket"] or os.environ.get("PAWL_TICKET", "")
    if ticket == "-":
        ticket = sys.stdin.read()
    if not ticket.strip():
        raise click.UsageError("no ticket: give what `pawl acquire` printed, or set PAWL_TICKET")
    with client_of(given) as client:
        lease = client.adopt(ticket.strip())
        name, fence = lease.name, lease.fence
        lease.release()
    if given["as_json"]:
        print_json({"name": name, "fence": fence, "released": True})
    return Exit.OK
