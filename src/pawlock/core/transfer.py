"""How a lease passes to another process: detached there, adopted here."""

from __future__ import annotations

import base64
import json
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, NamedTuple

from pawlock.core.acquire import own_grant
from pawlock.core.extend import check_held_once
from pawlock.core.faults import to_error
from pawlock.core.key import Key
from pawlock.core.lease import HeldLease
from pawlock.core.local_queue import Waiter
from pawlock.core.names import WIRE_VERSION
from pawlock.core.outcomes import Granted
from pawlock.core.primitive import TOMB_MS
from pawlock.core.records import Attempt, Hold, valid_until
from pawlock.core.replicas import confirm
from pawlock.core.retry import query
from pawlock.core.runtime import Fault
from pawlock.errors import ClientClosed, ConfigurationError, NotHeld, NotSupported

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan

__all__ = ["Ticket", "adopt", "detach", "is_ticket", "read_ticket"]


class Ticket(NamedTuple):
    """What another process needs to go on with a lease. Holds the token: as secret as the lease."""

    key: str
    name: str
    token: str
    fence: int
    ttl: float
    source: Key | None = None
    """What was given in place of a name, if that is shared with other programs."""


_TICKET_PREFIX = f"pawlock{WIRE_VERSION}."


def detach(engine: Engine, lease: HeldLease) -> str:
    """Stop renewing a lease without releasing it, and return the text with which ``adopt`` goes on.

    Raises:
        NotHeld: It is lost or released, or held more than once.
        NotSupported: Its kind cannot go on elsewhere.
    """
    hold = lease.hold
    if not hold.primitive.transferable:
        kind = hold.primitive.kind
        said = f"a {kind} lease cannot be detached: acquire it in the other process"
        raise NotSupported(f"detach {lease.name!r}: {said}", name=lease.name)
    check_held_once(lease, "detach")
    primitive = hold.primitive
    ticket = Ticket(primitive.key, lease.name, hold.token, lease.fence, hold.rhythm.ttl)
    words: list[object] = list(ticket[:5])
    source: Key | None = getattr(primitive, "source", None)
    if source is not None:
        words.append(astuple(source))
    text = base64.urlsafe_b64encode(json.dumps(words).encode()).decode().rstrip("=")
    if not lease.take_end():
        raise lease.not_held("detach")
    # It goes on elsewhere, and is nobody's here.
    engine.drop(hold, lease.who)
    lease.wake()
    hold.who = None
    engine.count_end(hold, "detached")
    return _TICKET_PREFIX + text


def is_ticket(text: object) -> bool:
    """Whether it looks like the text of ``detach``; ``read_ticket`` says whether it is sound."""
    return isinstance(text, str) and text.startswith(_TICKET_PREFIX)


def read_ticket(text: object) -> Ticket:
    """The content of a ticket.

    Raises:
        ConfigurationError: It is not one, or of another wire version.
    """
    if not isinstance(text, str) or not text.startswith(_TICKET_PREFIX):
        what = "invalid ticket: pass the text that detach() of this version of pawlock returned"
        raise ConfigurationError(what)
    body = text[len(_TICKET_PREFIX) :]
    try:
        words = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        ticket = Ticket(*words[:5], *[_source(word) for word in words[5:]])
        if type(ticket.name) is str:
            return ticket
    except (ValueError, TypeError, KeyError):
        pass
    raise ConfigurationError("the ticket is damaged: pass the text of detach() unchanged")


def _source(word: Any) -> Key:
    key, wire, wake, fence = word
    return Key(key, wire, None if wake is None else tuple(wake), fence)


async def adopt(engine: Engine, plan: Plan, ticket: Ticket) -> HeldLease:
    """Go on with a lease that another process detached, if it still lives.

    Raises:
        NotHeld: It ran out, or somebody else has it.
        BackendError: The server could not be reached.
    """
    runtime, waiter = engine.runtime, Waiter(engine.runtime.new_token())
    engine.check_open(ticket.name)
    if not engine.maintenance_runs:
        engine.need_maintenance(ticket.name, "adopt")
    began, epoch = runtime.now(), engine.epoch
    attempt = Attempt(runtime.who(), began, None, None, wait=False)
    call = plan.primitive.adopt(ticket.token, waiter.token, plan.options.ttl_ms)
    engine.calls[attempt] = attempt.who
    try:
        outcome, sent_at = await query(engine, call, plan.options, ticket.name, "adopt")
        until = 0.0
        if isinstance(outcome, Granted):
            await confirm(engine, plan.primitive, plan.options, waiter.token)
            until = valid_until(sent_at, outcome.left_ms, plan.options.ttl_ms)
        if until <= runtime.now():
            text = f"adopt {ticket.name!r}: the lease was already adopted, has expired, or was force-released"
            raise NotHeld(text, name=ticket.name, operation="adopt")
        if engine.closed or engine.epoch != epoch:
            what = "process was forked" if engine.epoch != epoch else "client was closed"
            raise ClientClosed(f"the {what} during the call", name=ticket.name)
        hold = Hold(plan.primitive, plan.options, waiter, ticket.fence, until, runtime.now())
        return own_grant(engine, plan, hold, attempt)
    except NotHeld:
        raise
    except BaseException as error:
        # Whether it was adopted is not known: then by nobody, so that the name is not held for nobody.
        if engine.epoch == epoch:
            engine.post(plan.primitive.leave(waiter.token, TOMB_MS, 0))
        if isinstance(error, Fault):
            raise to_error(error, ticket.name, "adopt") from error
        raise
    finally:
        engine.calls.pop(attempt, None)
