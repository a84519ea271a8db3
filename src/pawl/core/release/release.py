"""How a lease ends: it is passed on inside the client, or given back on the server. Written once for both APIs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pawl.core.keep.majority import ask_to_leave
from pawl.core.keep.outbox import leave_call
from pawl.core.lease.base import BaseLease
from pawl.core.lease.in_progress import Ending
from pawl.core.protocol.primitive import TOMB_MS
from pawl.core.protocol.runtime import Fault, FaultKind, Reply
from pawl.core.release.fast import end, give_back, hand_on
from pawl.core.release.outcome import not_ours
from pawl.core.retry import bear, rest
from pawl.core.state.records import Claim, Tenure
from pawl.errors import LeaseLost, NotHeld, PawlError
from pawl.model import LeaseState, LossReason, Release

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine

__all__ = ["end_block", "leave", "release", "release_or_raise", "tell", "tell_block"]

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


# Passing a lease to another process ---------------------------------------------------------------------------------
