"""How a lease ends: it is passed on inside the client, or given back on the server. Written once for both APIs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.outcomes import Outcome, Released
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.release.decision import Step, decide, stop_and_request
from pawlock.core.release.outcome import not_ours
from pawlock.core.retry import pause_after, rest
from pawlock.core.state.records import Retry, ServerLease
from pawlock.errors import BackendError, ClientClosed, LeaseLost, NotHeld, NotSupported
from pawlock.model import Release

if TYPE_CHECKING:
    from collections.abc import Sequence

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


async def release(  # noqa: C901, PLR0912 - in one piece: every release passes through it, and pays for each call
    engine: Engine, lease: HeldLease
) -> Release:
    """End a lease, or one level of a re-entered one.

    Returns:
        RELEASED, LOST (it was lost before) or UNKNOWN (the server did not answer while the lease lived).

    Raises:
        NotHeld: It was released before, or belongs to the parent of this process.
    """
    server_lease, observer = lease.server_lease, engine.reports.observer
    queue, levels = server_lease.local_queue, lease.levels
    granted_at = 0.0 if observer is None else server_lease.owner.granted_at
    calls, call = engine.activity.calls, object()
    # The outcome for observers; None: nothing has ended.
    ended: Release | str | None = None
    refused = False
    try:
        # Fast path: usually there are no local waiters.
        waited_for = queue is not None and bool(queue.local_waiters)
        calls[call] = engine.runtime.who()
        step = decide(engine, lease, waited_for=waited_for)
        if type(step) is Step:
            if step is Step.HANDED_OVER:
                ended = Release.RELEASED
                return ended
            if step is Step.NOT_HANDED_OVER or step is Step.SEND:
                step = stop_and_request(engine, server_lease, step)
            if type(step) is Step and step is not Step.SEND:
                refused = step is Step.ALREADY_RELEASED or step is Step.FORKED
                outcome = _nothing_to_send(lease, step)
                ended = None if step is Step.REENTRANT else outcome
                return outcome
        answer: Any = None
        connection = engine.runtime.connection()
        if connection is not None and type(step) is not Step:
            try:
                answer = connection.ask(step, server_lease.options.request_timeout)
                if type(answer) is not Released and not isinstance(answer, tuple):
                    answer = await answer
                if type(answer) is Released:  # pyright: ignore[reportUnknownArgumentType]
                    ended = Release.RELEASED
                    return ended
            except Fault as fault:
                answer = fault
        ended = await leave(engine, server_lease, answer)  # pyright: ignore[reportUnknownArgumentType]
        lease.lost = ended is Release.LOST
        return ended
    except BaseException:
        if lease.released and not refused:
            engine.finish_release(lease)
            ended = "background"
        elif not refused and lease.levels == levels:
            abandon(lease)
        raise
    finally:
        if call in calls:
            del calls[call]
        if observer is not None and ended is not None:
            observer.released(server_lease.primitive, granted_at, str(ended))


def _nothing_to_send(lease: HeldLease, step: Step) -> Release:
    """The outcome of a release that sends nothing."""
    if step is Step.ALREADY_RELEASED:
        raise NotHeld(f"release {lease.name!r}: the lease was already released", name=lease.name)
    if step is Step.FORKED:
        raise NotHeld(f"release {lease.name!r}: the lease belongs to the parent process", name=lease.name)
    lease.lost = step is Step.LOST or (step is Step.REENTRANT and not lease.is_held())
    return Release.LOST if lease.lost else Release.RELEASED


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
    report_losses_at_exit([lease.loss()], lease.server_lease.options.given.on_exit, error)


def report_losses_at_exit(losses: Sequence[LeaseLost], on_exit: str, error: BaseException | None) -> None:
    """Report to a ``with`` block at its end that these were lost; the first is named."""
    lost = losses[0]
    if isinstance(error, LeaseLost) and error.name in {loss.name for loss in losses}:
        # An inner block of a re-entered lease has reported it already.
        return
    if error is not None:
        error.add_note(str(lost))
    elif on_exit == "raise":
        raise lost
    else:
        log.warning("%s", lost, extra={"pawlock_name": lost.name})


async def leave(engine: Engine, server_lease: ServerLease, answer: Outcome | Fault | None = None) -> Release:
    """Give the name back on the server, trying again with the same token until the lease would have expired.

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
            asked_at = engine.runtime.now()
            try:
                if isinstance(answer, Fault):
                    raise answer
                if answer is None:
                    tomb_ms = TOMB_MS if unanswered or server_lease.unanswered else 0
                    call = server_lease.primitive.leave(server_lease.token, tomb_ms, close_ms)
                    answer = await engine.runtime.call(call, options.request_timeout)
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
                pause = pause_after(engine, fault, retry, options, until, "release", name, asked_at)
            await rest(engine, pause, server_lease.primitive.name, "release")
    except (BackendError, NotSupported, ClientClosed) as error:
        return _unknown(engine, server_lease, error)


def _until(server_lease: ServerLease, began: float, fault: Fault) -> float:
    """Until when to try a release again: the lease's expiry, and in any case for as long as one request."""
    # During a slot migration the node rejects requests that it accepts moments later, and a handed-off lease may be
    # shorter than that: so retry for ``unavailable_after``.
    patient = fault.kind is FaultKind.NOT_READY
    least = server_lease.options.given.unavailable_after if patient else server_lease.options.request_timeout
    return max(server_lease.valid_until, began + least)


def _unknown(engine: Engine, server_lease: ServerLease, error: Exception) -> Release:
    name = server_lease.primitive.name
    engine.count("release_unknown")
    text = "release of %r: outcome unknown (%s); it expires by its TTL"
    log.warning(text, name, str(error), extra={"pawlock_name": name})
    server_lease.note_release_error(error)
    engine.leave_in_background(server_lease, barred=True)
    return Release.UNKNOWN
