"""A lease that is ended or extended by whoever knows its token: without the lease object, from any process.

Whose token it is. A client hands a lease on to its next waiter without the server, under the same server token. A token
stands for one lease alone because a lease whose ``token`` was read is not handed on (see ``HeldLease.token``), and a
detached lease has no waiters here.

How it ends. The token is replaced by one of this client, as by ``adopt``, and that one is released as any lease is.
Both requests may be repeated after a lost reply, and a late copy of either finds nothing to change. If this process
dies in between, the name is free after one ttl.

How it is extended. The script only raises the expiry, so the lease's own client, which may renew it as well, never
believes in more than the server has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.extend import extend
from pawlock.core.lease import HeldLease, release_or_raise
from pawlock.core.outcomes import Granted
from pawlock.core.records import valid_until
from pawlock.core.retry import query
from pawlock.core.transfer import Ticket, adopt, is_ticket, read_ticket
from pawlock.errors import ConfigurationError, NotHeld, NotSupported

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan

__all__ = ["extend_by_token", "release_by_token"]


async def release_by_token(engine: Engine, plan: Plan, text: object) -> None:
    """End the lease that a token or a ticket stands for, with all its levels.

    Raises:
        NotHeld: It ended before.
        BackendError: The server did not answer, or refused.
    """
    token = _token_of(engine, plan, text, "release")
    lease = _lease_here(engine, plan, token)
    if lease is None:
        ticket = Ticket(plan.primitive.key, plan.primitive.name, token, 0, plan.options.ttl)
        try:
            lease = await adopt(engine, plan, ticket)
        except NotHeld as error:
            raise _not_held(plan, "release") from error
    while lease.take_level():
        pass
    await release_or_raise(engine, lease)


async def extend_by_token(engine: Engine, plan: Plan, text: object) -> float:
    """Raise the remaining life of the lease that a token or a ticket stands for to the plan's ttl.

    Returns:
        Seconds for which it is held at least, by the local clock.

    Raises:
        NotHeld: It ended before.
        BackendError: The server did not answer, or refused.
    """
    token, options = _token_of(engine, plan, text, "extend"), plan.options
    lease = _lease_here(engine, plan, token)
    if lease is not None:
        await extend(engine, lease, options.ttl)
        return lease.remaining()
    call = plan.primitive.renew(token, options.ttl_ms, 0, "")
    outcome, sent_at = await query(engine, call, options, plan.primitive.name, "extend")
    if isinstance(outcome, Granted):
        left = valid_until(sent_at, outcome.left_ms, options.ttl_ms) - engine.runtime.now()
        if left > 0:
            return left
    raise _not_held(plan, "extend")


def _token_of(engine: Engine, plan: Plan, text: object, doing: str) -> str:
    name = plan.primitive.name
    if not plan.primitive.transferable:
        text = "a lease of independent masters (Redlock) is ended and extended by its own client"
        raise NotSupported(f"{doing} {name!r}: {text}: their votes are counted there", name=name)
    engine.check_open(name)
    token = text
    if is_ticket(text):
        ticket = read_ticket(text)
        token = ticket.token
        if ticket.key != plan.primitive.key:
            what = f"the ticket is of {ticket.name!r}, or of another namespace"
            raise ConfigurationError(f"{doing} {name!r}: {what}")
    if not isinstance(token, str) or "@" not in token:
        what = "not a token: pass lease.token, or the text that lease.detach() returned"
        raise ConfigurationError(f"{doing} {name!r}: {what}")
    return token


def _lease_here(engine: Engine, plan: Plan, token: str) -> HeldLease | None:
    """The lease of that token, if this client holds it."""
    # A list in one step: other threads acquire meanwhile.
    for (_, key), hold in list(engine.held.items()):
        if key == plan.primitive.key and hold.token == token and hold.lease is not None:
            lease = hold.lease()
            return lease if isinstance(lease, HeldLease) else None
    return None


def _not_held(plan: Plan, doing: str) -> NotHeld:
    name = plan.primitive.name
    text = f"{doing} {name!r}: no lease with this token holds it: it was released, has expired, or was taken away"
    return NotHeld(text, name=name, operation=doing)
