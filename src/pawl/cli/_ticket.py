"""Tickets of `pawl acquire`: where they come from, and how what they stand for is listed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pawl.cli.exits import say

if TYPE_CHECKING:
    from pawl import Client
    from pawl.core.protocol.primitive import Primitive
    from pawl.core.protocol.terms import Terms

__all__ = ["announce", "ticket_of"]


def ticket_of(given: Mapping[str, Any]) -> str:
    """The ticket of the command line, of standard input or of PAWL_TICKET."""
    ticket: str = given["ticket"] or os.environ.get("PAWL_TICKET", "")
    if ticket == "-":
        ticket = sys.stdin.read()
    if not ticket.strip():
        raise click.UsageError("no ticket: pass the ticket that `pawl acquire` printed, or set PAWL_TICKET")
    return ticket.strip()


def announce(client: Client, primitive: Primitive, options: Terms, token: str, fence: int) -> None:
    """Have `pawl ls` list what no client renews, for as long as it lives."""
    from pawl import BackendDenied
    from pawl._inside import engine_of
    from pawl.core.observe import operator
    from pawl.runtimes.threads import run

    label = f"pawl acquire, by {os.getppid()}"
    try:
        run(operator.announce(engine_of(client), primitive, options, token, fence, label))
    except BackendDenied as denied:
        say(f"the lock is yours, but `pawl ls` will not list it: {denied}", colour="yellow")
