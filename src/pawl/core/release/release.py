"""How a lease ends or changes hands: release, extend, detach, adopt. Written once for both APIs."""

from __future__ import annotations

import base64
import binascii
import json
import logging
from typing import TYPE_CHECKING, NamedTuple

from pawl.core.acquire.fast import end, give_back, hand_on
from pawl.core.acquire.queue import TOMB_MS, Claim
from pawl.core.keep.majority import ask_to_leave, renew_one
from pawl.core.keep.replicas import confirm
from pawl.core.lease.base import BaseLease
from pawl.core.lease.in_progress import Ending, refuse
from pawl.core.protocol.faults import to_error
from pawl.core.protocol.names import WIRE_VERSION
from pawl.core.protocol.runtime import Call, Fault, FaultKind, Reply
from pawl.core.protocol.validity import to_ms, valid_until
from pawl.core.quorum.ballot import leave_call, validity_of
from pawl.core.release.outcome import not_ours
from pawl.core.retry import bear, rest
from pawl.core.state.records import Tenure, loss_from
from pawl.core.state.strict_handover import disband
from pawl.errors import ConfigurationError, LeaseLost, NotHeld, NotSupported, PawlError
from pawl.model import LeaseState, LossReason, Release

if TYPE_CHECKING:
    from pawl.core.acquire.acquire import NewLease, Plan
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.options import LockOptions

__all__ = [
    "Ticket",
    "adopt",
    "detach",
    "downgrade",
    "end_block",
    "extend",
    "leave",
    "query",
    "read_ticket",
    "release",
    "release_or_raise",
    "tell",
    "tell_block",
]

log: logging.Logger = logging.getLogger("pawl.lease")


async def release(engine: Engine, lease: BaseLease) -> Release:
    """End a lease, or one level of a re-entered one; see ``_release``."""
    runtime = engine.runtime
    engine.underway[mark := Ending(lease)] = runtime.who()
    try:
        tenure, place = lease._tenure, lease._tenure.place
        if (tenure.behind if place is None else place.sleepers) and hand_on(engine, lease):
            return Release.RELEASED
        line = runtime.line()
        call = None if line is None else end(engine, lease)
        if line is None or call is None:
            outcome = await _release(engine, lease)
        else:
            answer: Reply | Fault
            try:
                asked = give_back(engine, tenure, line, call)
                answer = asked if isinstance(asked, list) else await asked
                if answer[0] == b"R":
                    return Release.RELEASED
            except Fault as fault:
                answer = fault
            outcome = await leave(engine, tenure, answer)
        lease._lost = outcome is Release.LOST
        return outcome
    except PawlError:
        raise
    except BaseException:
        if lease._released:
            engine.finish_release(lease)
        raise
    finally:
        engine.underway.pop(mark, None)


async def _release(engine: Engine, lease: BaseLease) -> Release:
    """End a lease, or one level of a re-entered one.

    Returns:
        RELEASED, LOST (it was lost before) or UNKNOWN (the server did not answer while the lease lived).

    Raises:
        NotHeld: It was released before, or belongs to the parent of this process.
    """
    tenure = lease._tenure
    inert = lease._inert()
    if lease._take_level():
        return Release.RELEASED if lease._mine() else Release.LOST
    if not lease._take_end():
        raise NotHeld(f"release {lease.name!r}: the lease was already released", name=lease.name)
    if inert:
        raise NotHeld(f"release {lease.name!r}: the lease belongs to the parent process", name=lease.name)
    if lease._sleepers:
        lease._wake()
    # The tenure may go on under another owner: its loss is none of this lease's business then.
    tenure.watchers = None
    engine.forget_holder(tenure, lease._who)
    if engine.observer is None:
        return await _give_back(engine, tenure)
    return await engine.observer.ending(tenure, _give_back(engine, tenure))


async def _give_back(engine: Engine, tenure: Tenure) -> Release:
    """Pass on or leave what its owner has done with."""
    now = engine.runtime.now()
    if tenure.state is LeaseState.RELEASED:
        # The garbage collector came to the lease before it came to the block that ends it.
        return await leave(engine, tenure)
    if not tenure.live or engine.expired(tenure, now):
        if tenure.reason is LossReason.MAX_HOLD:
            engine.depart_from(tenure, tenure.close_ms(now))
        return Release.LOST
    if engine.end_turn(tenure, now):
        return Release.RELEASED
    if tenure.state is LeaseState.LOST:
        return Release.LOST
    return await leave(engine, tenure)


async def release_or_raise(engine: Engine, lease: BaseLease) -> None:
    """Release on a user's word; raises as ``tell`` does."""
    outcome = await release(engine, lease)
    if outcome is not Release.RELEASED:
        tell(lease, outcome)


def tell(lease: BaseLease, outcome: Release) -> None:
    """Raise what the outcome of a release means to a user who asked for it.

    Raises:
        NotHeld: It was lost or released before.
        BackendError: The server did not answer, or refused; the ttl frees the name at the latest.
    """
    if outcome is Release.LOST:
        raise NotHeld(f"release {lease.name!r}: {lease._loss().text}", name=lease.name)
    if outcome is Release.UNKNOWN:
        cls, why = lease._tenure.unsure
        text = why or f"release {lease.name!r}: the server did not answer"
        raise cls(f"{text}; the lock expires within {lease.ttl:g} s", name=lease.name)


async def end_block(engine: Engine, lease: BaseLease, error: BaseException | None) -> None:
    """Release at the end of a ``with`` block. Never hides the body's own exception.

    Raises:
        LeaseLost: The lease was lost while the body ran, and the body did not raise.
    """
    if lease._released or lease._inert():
        return
    if await release(engine, lease) is Release.LOST:
        tell_block(lease, error)


def tell_block(lease: BaseLease, error: BaseException | None) -> None:
    """Report to a ``with`` block at its end that its lease was lost; see ``end_block``."""
    lost = lease._loss()
    if isinstance(error, LeaseLost) and error.name == lease.name:
        # An inner block of a re-entered lease has reported it already.
        return
    if error is not None:
        error.add_note(str(lost))
    elif lease._tenure.options.on_exit == "raise":
        raise lost
    else:
        log.warning("%s", lost, extra={"pawl_name": lease.name})


async def leave(engine: Engine, tenure: Tenure, answer: Reply | Fault | None = None) -> Release:
    """Give the name back on the server, trying again with the same token while the lease would live.

    Args:
        engine: The client's engine.
        tenure: What is given back.
        answer: What became of the first try, where it was made already.
    """
    began, options = engine.runtime.now(), tenure.options
    close_ms = tenure.close_ms(began) if options.min_hold else 0
    unanswered, attempt = False, 0
    claim: Claim | None = None
    try:
        while True:
            if tenure.left:
                return Release.RELEASED
            try:
                if isinstance(answer, Fault):
                    raise answer
                if answer is None:
                    tomb_ms = TOMB_MS if unanswered or tenure.unanswered else 0
                    call = leave_call(engine, tenure, tomb_ms, close_ms)
                    answer = await ask_to_leave(engine, tenure, call)
                if answer[0] == b"R":
                    return Release.RELEASED
                return await not_ours(engine, tenure, answer, unanswered=unanswered, again=claim is not None)
            except Fault as fault:
                answer = None
                unanswered |= fault.maybe_applied
                claim = claim or Claim(tenure.token)
                until = _until(tenure, began, fault)
                name = tenure.primitive.name
                pause = bear(engine, fault, options, claim, until, attempt, "release", name, holds=True)
            await rest(engine, pause, tenure.primitive.name, "release")
            attempt += 1
    except PawlError as error:
        return _unknown(engine, tenure, error)
    except BaseException:
        # Cancelled or interrupted: the leave goes on without its caller.
        engine.depart_from(tenure, barred=True)
        raise


def _until(tenure: Tenure, began: float, fault: Fault) -> float:
    """Until when to try a release again: while the lease would live, and in any case for as long as one request."""
    # While the slot moves it refuses what it takes a little later; a lease handed off there may be shorter than that.
    patient = fault.kind is FaultKind.NOT_READY
    least = tenure.options.unavailable_after if patient else tenure.options.request_timeout
    return max(tenure.valid_until, began + least)


def _unknown(engine: Engine, tenure: Tenure, error: Exception) -> Release:
    name = tenure.primitive.name
    engine.count("release_unknown")
    log.warning(
        "release of %r: outcome unknown (%s); it expires by its TTL", name, error, extra={"pawl_name": name}
    )
    tenure.doubt(error)
    engine.depart_from(tenure, barred=True)
    return Release.UNKNOWN


async def extend(engine: Engine, lease: BaseLease, ttl: float) -> None:
    """Set the remaining life of a lease to ``ttl`` seconds, and its ttl from here on.

    Raises:
        NotHeld: It is lost or released.
        ConfigurationError: It is longer than several masters keep a lease.
    """
    tenure = lease._tenure
    if engine.quorum is not None:
        engine.quorum.check_ttl(ttl, tenure.options.lock_delay)
    if not lease._mine():
        raise NotHeld(
            f"extend {lease.name!r}: {lease._lost_error().text}", name=lease.name, operation="extend"
        )
    if tenure.degraded:
        return  # It has no end but its release.
    engine.detach_place(tenure)
    end = validity_of(engine)(engine.runtime.now(), to_ms(ttl), to_ms(ttl))
    shorter = end <= tenure.valid_until
    if not shorter:
        await _raise_life(engine, lease, ttl, "extend")
    every = min(tenure.options.renew_every or ttl / 3, ttl / 3)
    with engine.guard:
        mine = not lease._released
        # Released meanwhile, it may be another owner's by now.
        if mine:
            tenure.ttl, tenure.every = ttl, every
            if shorter and end < tenure.valid_until:
                tenure.valid_until = end
    if not mine:
        raise NotHeld(f"extend {lease.name!r}: {lease._lost_error().text}", name=lease.name)
    engine.replan(tenure)


async def downgrade(engine: Engine, lease: BaseLease) -> None:
    """Go on as a reader, from the moment that this is sent, whatever comes back; later renewals carry it too.

    Raises:
        NotHeld: It is lost or released, held more than once, or a reader already.
        BackendError: The server did not say that it did it; the lease is a reader's all the same.
    """
    tenure = lease._tenure
    if not lease._mine():
        raise NotHeld(
            f"downgrade {lease.name!r}: {lease._lost_error().text}", name=lease.name, operation="downgrade"
        )
    if lease._levels > 1:
        text = f"downgrade {lease.name!r}: it is held {lease._levels} times: leave the inner blocks first"
        raise NotHeld(text, name=lease.name, operation="downgrade")
    lowered = tenure.primitive.lowered()
    if lowered is None:
        raise NotHeld(
            f"downgrade {lease.name!r}: it is not held for writing", name=lease.name, operation="downgrade"
        )
    tenure.primitive = lowered
    if not tenure.degraded:
        await _raise_life(engine, lease, tenure.ttl, "downgrade")


async def _raise_life(engine: Engine, lease: BaseLease, ttl: float, doing: str) -> None:
    tenure, runtime = lease._tenure, engine.runtime
    claim, attempt = Claim(tenure.token), 0
    while True:
        call = tenure.primitive.renew(tenure.token, to_ms(ttl) + tenure.options.delay_ms, to_ms(ttl), "")
        sent_at = runtime.now()
        try:
            reply = await renew_one(engine, tenure, call)
        except Fault as fault:
            options, until = tenure.options, tenure.valid_until
            pause = bear(engine, fault, options, claim, until, attempt, doing, lease.name, holds=True)
            await rest(engine, pause, lease.name, doing)
            attempt += 1
            continue
        if reply[0] == b"H":
            if engine.applies(tenure, reply[3], to_ms(ttl), sent_at):
                return
        elif tenure.live and not engine.expired(tenure, runtime.now()):
            engine.lose(tenure, loss_from(reply))
        raise NotHeld(f"{doing} {lease.name!r}: {lease._lost_error().text}", name=lease.name, operation=doing)


# Passing a lease to another process ---------------------------------------------------------------------------------


class Ticket(NamedTuple):
    """What another process needs to go on with a lease. Holds the token: as secret as the lease."""

    key: str
    name: str
    token: str
    fence: int
    ttl: float


_TICKET_PREFIX = f"pawl{WIRE_VERSION}."


def detach(engine: Engine, lease: BaseLease) -> str:
    """Stop caring for a lease without releasing it, and return the text with which ``adopt`` goes on.

    Raises:
        NotHeld: It is lost or released, or held more than once.
        NotSupported: It is held for an explicit owner, whom other processes join by ``owner=`` instead.
    """
    tenure = lease._tenure
    if not tenure.primitive.transferable or tenure.degraded:
        kind = tenure.degraded or tenure.primitive.kind
        said = f"a {kind} lease cannot be detached: acquire it in the other process, with its owner= if it has one"
        raise NotSupported(f"detach {lease.name!r}: {said}", name=lease.name)
    if not lease._mine():
        raise NotHeld(
            f"detach {lease.name!r}: {lease._lost_error().text}", name=lease.name, operation="detach"
        )
    if lease._levels > 1:
        times = f"it is held {lease._levels} times: leave the inner blocks first"
        raise NotHeld(f"detach {lease.name!r}: {times}", name=lease.name, operation="detach")
    if not lease._take_end():
        raise NotHeld(
            f"detach {lease.name!r}: {lease._lost_error().text}", name=lease.name, operation="detach"
        )
    lease._wake()
    # It goes on elsewhere, and is nobody's here.
    tenure.who = None
    engine.forget_holder(tenure, lease._who)
    engine.detach_place(tenure)
    engine.end(tenure)
    disband(engine, tenure)
    engine.count_end(tenure, "detached")
    ticket = Ticket(tenure.primitive.key, lease.name, tenure.token, lease.fence, tenure.ttl)
    return _TICKET_PREFIX + base64.urlsafe_b64encode(json.dumps(ticket).encode()).decode().rstrip("=")


def read_ticket(text: object) -> Ticket:
    """The content of a ticket.

    Raises:
        ConfigurationError: It is not one, or of another wire version.
    """
    if not isinstance(text, str) or not text.startswith(_TICKET_PREFIX):
        raise ConfigurationError(
            "invalid ticket: pass the text that detach() of this version of pawl returned"
        )
    body = text[len(_TICKET_PREFIX) :]
    try:
        ticket = Ticket(*json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))
    except (ValueError, TypeError, binascii.Error) as error:
        raise ConfigurationError("the ticket is damaged: pass the text of detach() unchanged") from error
    if type(ticket.name) is not str:
        raise ConfigurationError("the ticket is damaged: pass the text of detach() unchanged")
    return ticket


async def adopt(engine: Engine, plan: Plan, ticket: Ticket, new_lease: NewLease) -> BaseLease:
    """Go on with a lease that another process detached, if it still lives.

    Raises:
        NotHeld: It ran out, or somebody else has it.
        BackendError: The server could not be asked.
    """
    engine.underway[id(ticket)] = engine.runtime.who()
    try:
        return await _adopt(engine, plan, ticket, new_lease)
    finally:
        engine.underway.pop(id(ticket), None)


async def _adopt(engine: Engine, plan: Plan, ticket: Ticket, new_lease: NewLease) -> BaseLease:
    runtime = engine.runtime
    engine.check_open(ticket.name)
    began = runtime.now()
    token = runtime.new_token()
    call = plan.primitive.adopt(ticket.token, token, plan.options.life_ms)
    claim = Claim(token)
    engine.asking[claim] = plan.primitive, runtime.who()
    try:
        reply, sent_at = await query(engine, call, plan.options, ticket.name, "adopt")
        await _confirm(engine, plan, reply)
        return _own_adopted(engine, plan, ticket, new_lease, claim, reply, sent_at, began)
    except NotHeld:
        raise
    except BaseException:
        # Whether it was adopted is not known: then by nobody, so that the name is not held for nobody.
        engine.depart(plan.primitive, token, TOMB_MS)
        raise
    finally:
        if claim in engine.asking:
            del engine.asking[claim]


def _own_adopted(
    engine: Engine,
    plan: Plan,
    ticket: Ticket,
    new_lease: NewLease,
    claim: Claim,
    reply: Reply,
    sent_at: float,
    began: float,
) -> BaseLease:
    runtime = engine.runtime
    until = (
        valid_until(sent_at, reply[3] - plan.options.delay_ms, plan.options.ttl_ms)
        if reply[0] == b"H"
        else 0.0
    )
    if until <= runtime.now():
        raise NotHeld(
            f"adopt {ticket.name!r}: the lease was already adopted, has expired, or was force-released",
            name=ticket.name,
            operation="adopt",
        )
    who = runtime.who()
    tenure = Tenure(plan.primitive, plan.options, claim.token, ticket.fence, until, runtime.now())
    tenure.who = who
    lease = new_lease(engine, tenure, ticket.fence, who, 1)
    if not plan.counted:
        engine.held[who, plan.primitive.key] = tenure
    engine.keep(tenure, confirmed=True)
    if engine.observer is not None:
        engine.observer.acquired(tenure, began, contended=False)
    if engine.closed:
        refuse(engine, lease)
    lease._given = True
    return lease


async def _confirm(engine: Engine, plan: Plan, reply: Reply) -> None:
    if reply[0] == b"H":
        try:
            await confirm(engine, plan.primitive, plan.options)
        except Fault as fault:
            raise to_error(fault, plan.primitive.name, "adopt") from fault


async def query(
    engine: Engine, call: Call, options: LockOptions, name: str, doing: str
) -> tuple[Reply, float]:
    """Run an idempotent call, again after passing faults, for at most ``unavailable_after``.

    Returns:
        The reply, and when its request was sent.
    """
    runtime, claim, attempt = engine.runtime, Claim(""), 0
    while True:
        sent_at = runtime.now()
        try:
            return await runtime.call(call, options.request_timeout), sent_at
        except Fault as fault:
            pause = bear(engine, fault, options, claim, None, attempt, doing, name)
        await rest(engine, pause, name, doing)
        attempt += 1
