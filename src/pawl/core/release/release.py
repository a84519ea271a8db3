"""How a lease ends: it is passed on inside the client, or given back on the server. Written once for both APIs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pawl.core.keep.majority import ask_to_leave
from pawl.core.keep.outbox import leave_call
from pawl.core.lease.in_progress import Ending
from pawl.core.lease.record import HeldLease
from pawl.core.protocol.outcomes import Outcome, Released
from pawl.core.protocol.primitive import TOMB_MS
from pawl.core.protocol.runtime import Fault, FaultKind
from pawl.core.release.first_step import end, hand_on, vote_to_leave
from pawl.core.release.outcome import not_ours
from pawl.core.retry import bear, rest
from pawl.core.state.records import Retry, ServerLease
from pawl.errors import LeaseLost, NotHeld, PawlError
from pawl.model import LeaseState, LossReason, Release

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine

__all__ = ["end_block", "leave", "release", "release_or_raise", "tell", "tell_block"]

log: logging.Logger = logging.getLogger("pawl.lease")


async def release(  # noqa: C901, PLR0912 - in one piece: every release passes through it, and pays for each call
    engine: Engine, lease: HeldLease
) -> Release:
    """End a lease, or one level of a re-entered one; see ``_release``."""
    runtime, server_lease = engine.runtime, lease.server_lease
    queue, run = server_lease.local_queue, server_lease.run
    # A look first: nobody waits here, mostly, and a call costs as much.
    if (queue.local_waiters if queue is not None else run is not None) and hand_on(engine, lease):
        return Release.RELEASED
    mark = Ending()
    mark.lease = lease
    engine.activity.in_progress[mark] = runtime.who()
    try:
        line = runtime.line()
        call = None if line is None else end(engine, lease)
        if line is None or call is None:
            outcome = await _release(engine, lease)
        else:
            answer: Any
            try:
                if server_lease.quorum is None:
                    answer = line.ask(call, server_lease.options.request_timeout)
                else:
                    answer = vote_to_leave(engine, server_lease, line, call)
                if type(answer) is Released:
                    return Release.RELEASED
                if not isinstance(answer, tuple):
                    answer = await answer
                    if type(answer) is Released:
                        return Release.RELEASED
            except Fault as fault:
                answer = fault
            outcome = await leave(engine, server_lease, answer)  # pyright: ignore[reportUnknownArgumentType]
        lease.lost = outcome is Release.LOST
        return outcome
    except PawlError:
        raise
    except BaseException:
        if lease.released:
            engine.finish_release(lease)
        raise
    finally:
        engine.activity.in_progress.pop(mark, None)


async def _release(engine: Engine, lease: HeldLease) -> Release:
    """End a lease, or one level of a re-entered one.

    Returns:
        RELEASED, LOST (it was lost before) or UNKNOWN (the server did not answer while the lease lived).

    Raises:
        NotHeld: It was released before, or belongs to the parent of this process.
    """
    server_lease = lease.server_lease
    inert = lease.inert()
    if lease.take_level():
        return Release.RELEASED if lease.mine() else Release.LOST
    if not lease.take_end():
        raise NotHeld(f"release {lease.name!r}: the lease was already released", name=lease.name)
    if inert:
        raise NotHeld(f"release {lease.name!r}: the lease belongs to the parent process", name=lease.name)
    if lease.parked:
        lease.wake()
    # The server lease may go on under another owner: its loss is none of this lease's business then.
    server_lease.owner.watchers = None
    engine.forget_holder(server_lease, lease.who)
    if engine.reports.observer is None:
        return await _give_back(engine, server_lease)
    return await engine.reports.observer.ending(server_lease, _give_back(engine, server_lease))


async def _give_back(engine: Engine, server_lease: ServerLease) -> Release:
    """Pass on or leave what its owner has done with."""
    now = engine.runtime.now()
    if server_lease.state is LeaseState.RELEASED:
        # The garbage collector came to the lease before it came to the block that ends it.
        return await leave(engine, server_lease)
    if not server_lease.live or engine.expired(server_lease, now):
        if server_lease.reason is LossReason.MAX_HOLD:
            engine.leave_in_background(server_lease, server_lease.close_ms(now))
        return Release.LOST
    if engine.end_turn(server_lease, now):
        return Release.RELEASED
    if server_lease.state is LeaseState.LOST:
        return Release.LOST
    return await leave(engine, server_lease)


async def release_or_raise(engine: Engine, lease: HeldLease) -> None:
    """Release on a user's word; raises as ``tell`` does."""
    outcome = await release(engine, lease)
    if outcome is not Release.RELEASED:
        tell(lease, outcome)


def tell(lease: HeldLease, outcome: Release) -> None:
    """Raise what the outcome of a release means to a user who asked for it.

    Raises:
        NotHeld: It was lost or released before.
        BackendError: The server did not answer, or refused; the ttl frees the name at the latest.
    """
    if outcome is Release.LOST:
        raise NotHeld(f"release {lease.name!r}: {lease.loss().text}", name=lease.name)
    if outcome is Release.UNKNOWN:
        cls, why = lease.server_lease.unsure
        text = why or f"release {lease.name!r}: the server did not answer"
        raise cls(f"{text}; the lock expires within {lease.ttl:g} s", name=lease.name)


async def end_block(lease: HeldLease, error: BaseException | None) -> None:
    """Release at the end of a ``with`` block. Never hides the body's own exception.

    Raises:
        LeaseLost: The lease was lost while the body ran, and the body did not raise.
    """
    if lease.released or lease.inert():
        return
    if await release(lease.engine, lease) is Release.LOST:
        tell_block(lease, error)


def tell_block(lease: HeldLease, error: BaseException | None) -> None:
    """Report to a ``with`` block at its end that its lease was lost; see ``end_block``."""
    lost = lease.loss()
    if isinstance(error, LeaseLost) and error.name == lease.name:
        # An inner block of a re-entered lease has reported it already.
        return
    if error is not None:
        error.add_note(str(lost))
    elif lease.server_lease.options.given.on_exit == "raise":
        raise lost
    else:
        log.warning("%s", lost, extra={"pawl_name": lease.name})


async def leave(engine: Engine, server_lease: ServerLease, answer: Outcome | Fault | None = None) -> Release:
    """Give the name back on the server, trying again with the same token while the lease would live.

    Args:
        engine: The client's engine.
        server_lease: What is given back.
        answer: What became of the first try, where it was made already.
    """
    began, options = engine.runtime.now(), server_lease.options
    close_ms = server_lease.close_ms(began) if options.min_hold else 0
    unanswered, retry = False, Retry(holds=True)
    try:
        while True:
            if server_lease in engine.activity.left_at_close:
                return Release.RELEASED
            try:
                if isinstance(answer, Fault):
                    raise answer
                if answer is None:
                    tomb_ms = TOMB_MS if unanswered or server_lease.unanswered else 0
                    call = leave_call(engine, server_lease, tomb_ms, close_ms)
                    answer = await ask_to_leave(engine, server_lease, call)
                if isinstance(answer, Released):
                    return Release.RELEASED
                return await not_ours(
                    engine, server_lease, answer, unanswered=unanswered, again=retry.since is not None
                )
            except Fault as fault:
                answer = None
                unanswered |= fault.maybe_applied
                until = _until(server_lease, began, fault)
                name = server_lease.primitive.name
                pause = bear(engine, fault, retry, options, until, "release", name)
            await rest(engine, pause, server_lease.primitive.name, "release")
    except PawlError as error:
        return _unknown(engine, server_lease, error)
    except BaseException:
        # Cancelled or interrupted: the leave goes on without its caller.
        engine.leave_in_background(server_lease, barred=True)
        raise


def _until(server_lease: ServerLease, began: float, fault: Fault) -> float:
    """Until when to try a release again: while the lease would live, and in any case for as long as one request."""
    # While the slot moves it refuses what it takes a little later; a lease handed off there may be shorter than that.
    patient = fault.kind is FaultKind.NOT_READY
    least = server_lease.options.given.unavailable_after if patient else server_lease.options.request_timeout
    return max(server_lease.valid_until, began + least)


def _unknown(engine: Engine, server_lease: ServerLease, error: Exception) -> Release:
    name = server_lease.primitive.name
    engine.count("release_unknown")
    log.warning(
        "release of %r: outcome unknown (%s); it expires by its TTL", name, error, extra={"pawl_name": name}
    )
    server_lease.doubt(error)
    engine.leave_in_background(server_lease, barred=True)
    return Release.UNKNOWN


# Passing a lease to another process ---------------------------------------------------------------------------------
