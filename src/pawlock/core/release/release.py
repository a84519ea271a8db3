"""How a lease ends: it is passed on inside the client, or given back on the server. Written once for both APIs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.outcomes import Released
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.release.outcome import not_ours
from pawlock.core.retry import pause_after, rest
from pawlock.core.state.local_queue import Place
from pawlock.core.state.records import Retry, ServerLease
from pawlock.errors import BackendError, ClientClosed, LeaseLost, NotHeld, NotSupported
from pawlock.model import LeaseState, LossReason, Release

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine

__all__ = [
    "abandon",
    "end_block",
    "leave",
    "raise_outcome",
    "release",
    "release_or_raise",
    "report_loss_at_exit",
    "report_losses_at_exit",
]

log: logging.Logger = logging.getLogger("pawlock.lease")

_NOBODY: Sequence[Place] = ()


async def release(engine: Engine, lease: HeldLease) -> Release:
    """End a lease, or one level of a re-entered one.

    Returns:
        RELEASED, LOST (it was lost before) or UNKNOWN (the server did not answer while the lease lived).

    Raises:
        NotHeld: It was released before, or belongs to the parent of this process.
    """
    if lease.levels > 1 and lease.take_level():
        return Release.RELEASED if lease.is_held() else Release.LOST
    hold, calls, call, observer = lease.server_lease, engine.calls, object(), engine.reports.observer
    granted_at = hold.granted_at
    # The outcome for observers; None: nothing has ended.
    ended: Release | str | None = None
    try:
        calls[call] = lease.who
        ended = _end_here(engine, lease)
        if ended is None:
            try:
                ended = await leave(engine, hold)
            finally:
                # Not before: who asked sooner would queue behind its own client.
                if hold.queue is not None:
                    engine.detach_local_queue(hold)
        if ended is Release.LOST:
            lease.lost = True
        return ended
    except NotHeld:
        raise
    except BaseException:
        if lease.released:
            engine.finish_release(lease)
            ended = "background"
        else:
            abandon(lease)
        raise
    finally:
        if call in calls:
            del calls[call]
        if observer is not None and ended is not None:
            observer.released(hold.primitive, granted_at, str(ended))


def _end_here(engine: Engine, lease: HeldLease) -> Release | None:
    """End a lease inside the client: it was lost, or another caller goes on with what it held; None: neither.

    Raises:
        NotHeld: It was released before, or belongs to the parent of this process.
    """
    hold, now, held = lease.server_lease, engine.runtime.now(), engine.held
    key, queue, woken = (lease.who, hold.primitive.key), hold.queue, _NOBODY
    with engine.guard:
        if lease.released or hold.epoch != engine.epoch:
            why = "was already released" if lease.released else "belongs to the parent process"
            lease.released = True
            raise NotHeld(f"release {lease.name!r}: the lease {why}", name=lease.name)
        lease.released = True
        # The hold may go on under another owner, so this one must no longer be notified of its loss.
        hold.watchers = None
        if held.get(key) is hold:
            del held[key]
        lost = hold.state is LeaseState.LOST or now >= hold.valid_until
        if not lost:
            if queue is not None and queue.sleepers:
                woken = queue.pass_on(hold, now)
            if not woken:
                # Renewed no more, and to be left on the server.
                hold.state = LeaseState.RELEASED
                engine.schedule.discard(hold)
                if queue is not None and not queue.sleepers:
                    # Whoever sleeps there asks once it is left.
                    queue.end(hold)
                    hold.queue = None
    if lease.parked:
        lease.wake()
    for place in woken:
        place.unpark()
    if lost:
        return _end_lost(engine, hold, now)
    return Release.RELEASED if woken else None


def _end_lost(engine: Engine, hold: ServerLease, now: float) -> Release:
    engine.expired(hold, now)
    if hold.reason is LossReason.MAX_HOLD:
        engine.leave_in_background(hold, hold.close_ms(now))
    return Release.LOST


def abandon(lease: HeldLease) -> None:
    """End in the background what was to be released, where that was interrupted before it began.

    Of a re-entered lease only one level ends: ending more could leave the outer section unprotected.
    """
    if not lease.take_level() and not lease.inert() and lease.take_end():
        lease.engine.finish_release(lease)
        lease.engine.count_end(lease.server_lease, "background")


async def release_or_raise(engine: Engine, lease: HeldLease) -> None:
    """Release on user request; raises as ``raise_outcome`` does."""
    outcome = await release(engine, lease)
    if outcome is not Release.RELEASED:
        raise_outcome(lease, outcome)


def raise_outcome(lease: HeldLease, outcome: Release, names: str = "") -> None:
    """Raise what the outcome of a release means to a user who asked for it.

    Args:
        lease: What was released.
        outcome: What came of it.
        names: The names that were released together; ``""``: this one alone.

    Raises:
        NotHeld: It was lost or released before.
        BackendError: The server did not answer, or refused; the ttl frees the name at the latest.
    """
    doing = f"release {(names or lease.name)!r}"
    if outcome is Release.LOST:
        raise NotHeld(f"{doing}: {lease.loss().text}", name=lease.name)
    if outcome is Release.UNKNOWN:
        cls, why = lease.server_lease.unsure
        which = repr(lease.name) if names else "the lock"
        text = f"{why or f'{doing}: the server did not answer'}; {which} expires within {lease.ttl:g} s"
        raise cls(text, name=lease.name)


async def end_block(lease: HeldLease, error: BaseException | None) -> None:
    """Release at the end of a ``with`` block. Never hides the body's own exception.

    Raises:
        LeaseLost: The lease was lost while the body ran, and the body did not raise.
    """
    if lease.released or lease.inert():
        return
    if await release(lease.engine, lease) is Release.LOST:
        report_loss_at_exit(lease, error)


def report_loss_at_exit(lease: HeldLease, error: BaseException | None) -> None:
    """Report to a ``with`` block at its end that its lease was lost; see ``end_block``."""
    report_losses_at_exit([lease.loss()], lease.server_lease.options.on_exit, error)


def report_losses_at_exit(losses: list[LeaseLost], on_exit: str, error: BaseException | None) -> None:
    """Report to a ``with`` block at its end that these were lost; the first is named."""
    if isinstance(error, LeaseLost) and error.name in {loss.name for loss in losses}:
        # An inner block of a re-entered lease has reported it already.
        return
    if error is not None:
        error.add_note(str(losses[0]))
    elif on_exit == "raise":
        # Out of the list: its frames have that.
        raise losses.pop(0)
    else:
        log.warning("%s", losses[0], extra={"pawlock_name": losses[0].name})


async def leave(engine: Engine, server_lease: ServerLease) -> Release:
    """Give the name back on the server, trying again with the same token until the lease would have expired."""
    began, options, runtime = engine.runtime.now(), server_lease.options, engine.runtime
    close_ms = server_lease.close_ms(began) if options.min_hold else 0
    tomb_ms = TOMB_MS if server_lease.unanswered else 0
    asked_at, unanswered, retry = began, False, None
    try:
        while True:
            call = server_lease.primitive.leave(server_lease.token, tomb_ms, close_ms)
            try:
                answer = await runtime.call(call, options.request_timeout)
                if type(answer) is Released:
                    return Release.RELEASED
                again = retry is not None and retry.since is not None
                return await not_ours(engine, server_lease, answer, unanswered=unanswered, again=again)
            except Fault as fault:
                retry = retry or Retry(holds=True)
                if fault.maybe_applied:
                    unanswered, tomb_ms = True, TOMB_MS
                until = _until(server_lease, began, fault)
                name = server_lease.primitive.name
                pause = pause_after(engine, fault, retry, options, until, "release", name, asked_at)
            await rest(engine, pause, server_lease.primitive.name, "release")
            asked_at = runtime.now()
    except (BackendError, NotSupported, ClientClosed) as error:
        return _unknown(engine, server_lease, error)


def _until(server_lease: ServerLease, began: float, fault: Fault) -> float:
    """Until when to try a release again: the lease's expiry, and in any case for as long as one request."""
    # During a slot migration the node rejects requests that it accepts moments later, and a handed-off lease may be
    # shorter than that: so retry for ``unavailable_after``.
    patient = fault.kind is FaultKind.NOT_READY
    least = server_lease.options.unavailable_after if patient else server_lease.options.request_timeout
    return max(server_lease.valid_until, began + least)


def _unknown(engine: Engine, server_lease: ServerLease, error: Exception) -> Release:
    name = server_lease.primitive.name
    engine.count("release_unknown")
    text = "release of %r: outcome unknown (%s); it expires by its TTL"
    log.warning(text, name, str(error), extra={"pawlock_name": name})
    server_lease.note_release_error(error)
    engine.leave_in_background(server_lease, barred=True)
    return Release.UNKNOWN
