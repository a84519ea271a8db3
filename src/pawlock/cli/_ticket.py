"""Tickets of `pawlock acquire`: where they come from, and how what they stand for is listed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli.exits import say

if TYPE_CHECKING:
    from pawlock import Client
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.terms import Terms

__all__ = ["announce", "ticket_of"]


def ticket_of(given: Mapping[str, Any]) -> str:
    """The ticket of the command line, of standard input or of PAWLOCK_TICKET."""
    ticket: str = given["ticket"] or os.environ.get("PAWLOCK_TICKET", "")
    if ticket == "-":
        ticket = sys.stdin.read()
    if not ticket.strip():
        raise click.UsageError(
            "no ticket: pass the ticket that `pawlock acquire` printed, or set PAWLOCK_TICKET"
        )
    return ticket.strip()


def announce(client: Client, primitive: Primitive, options: Terms, token: str, fence: int) -> None:
    """Have `pawlock ls` list what no client renews, for as long as it lives."""
    from pawlock import BackendDenied
    from pawlock._inside import engine_of
    from pawlock.core.observe import operator
    from pawlock.runtimes.threads import run

    label = f"pawlock acquire, by {os.getppid()}"
    try:
        run(operator.announce(engine_of(client), primitive, options, token, fence, label))
    except BackendDenied as denied:
        say(f"the lock is yours, but `pawlock ls` will not list it: {denied}", colour="yellow")
