"""A token on its way to a grant: ask, queue, wait, ask again.

Rules (each guards against an interleaving that was seen to break a lock):

1. A resend carries the same token; the scripts answer it alike.
2. ``valid_until`` of a waiting token is counted from the send of the last answered request, with the ticket's life.
3. A hand-off message counts as HELD only if its expiry is not below that of the last QUEUED outcome; otherwise it is a
   hint: ask.
4. A token that the server no longer knows is replaced by a new one; the old one is left behind with a tombstone.
5. Once a leave was sent for a token, no later outcome or message for it counts: its waiter is gone.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, cast

from pawlock.core.keep.replicas import ask_with_replicas
from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.faults import to_error
from pawlock.core.protocol.outcomes import Busy, Dead, Full, Gone, Granted, Outcome, Queued
from pawlock.core.protocol.primitive import TOMB_MS, Leaving
from pawlock.core.protocol.runtime import DEAF, Fault, FaultKind, Wakeup
from pawlock.core.protocol.validity import valid_until
from pawlock.core.retry import (
    ENDLESS,
    NO_SIGN_WITHIN,
    STOP_POLL,
    check_stop,
    explained,
    note_endless,
    patience,
    pause_after,
    rest,
)
from pawlock.core.state.records import Blocker, Ticket, WaiterState
from pawlock.errors import ClockDrift, QueueFull, ScriptError
from pawlock.model import Grant

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.primitive import PolledPrimitive, Primitive
    from pawlock.core.protocol.terms import Terms
    from pawlock.core.state.records import Waiter

__all__ = ["ENDLESS", "poll", "read_answer", "win"]

log: logging.Logger = logging.getLogger("pawlock.acquire")


_MOST_LATE_GRANTS = 3
_FOREIGN_POLL = 0.05

_DEAF_POLL = 0.05


async def win(
    engine: Engine,
    primitive: Primitive,
    options: Terms,
    waiter: Waiter,
    until: float | None,
    *,
    wait: bool,
) -> Grant | None:
    """Drive a waiter to its grant.

    Args:
        engine: The client's engine.
        primitive: What to send.
        options: The lock's options.
        waiter: The waiter, with ``busy`` False; on None or an error the caller must pass it on or leave it.
        until: When to give up, on the runtime's clock; None never.
        wait: False to try once and not queue.

    Returns:
        The grant, or None if somebody else holds the name and the time is up.
    """
    while True:
        if not waiter.answered:
            answer = await _ask(engine, primitive, options, waiter, until, wait=wait)
            if answer is None:
                return None
            grant = _read(engine, primitive, options, waiter, *answer)
            if grant is not None:
                return grant
        waiter.answered = False
        if waiter.busy:
            if not wait or not await poll(
                engine, primitive, waiter, until, share=1 + engine.runtime.random()
            ):
                return None
            continue
        if waiter.wait_error is not None:
            raise waiter.wait_error
        if waiter.queued:
            grant = await _listen(engine, primitive, options, waiter, until)
            if grant is not None or (until is not None and engine.runtime.now() >= until):
                return grant


async def poll(
    engine: Engine, primitive: Primitive, waiter: Waiter, until: float | None, *, share: float
) -> bool:
    """Rest before the next try for a key that other programs share; False if there is none, or the time is up.

    Args:
        engine: The client's engine.
        primitive: What is asked for.
        waiter: Who asks.
        until: When to give up; None: never.
        share: For how many of the shortest pauses to rest.
    """
    runtime, pause = engine.runtime, _FOREIGN_POLL * share
    left = inf if until is None else until - runtime.now()
    if not primitive.polls or left <= 0:
        return False
    if waiter.blocker.holder_ms >= 0:
        pause = min(pause, (waiter.blocker.holder_ms + 1) / 1000)
    tries = left > _FOREIGN_POLL
    # The last question comes early enough for its answer.
    pause = min(pause, left - _FOREIGN_POLL) if tries else left
    hears = cast("PolledPrimitive", primitive).hears
    try:
        await (runtime.sleep(pause) if hears is None else runtime.hear(hears, pause))
    except Fault as fault:
        raise to_error(fault, primitive.name, "acquire") from fault
    check_stop(waiter.stop, primitive.name)
    if waiter.wait_error is not None:
        raise waiter.wait_error
    return tries


def _next_call(
    engine: Engine, primitive: Primitive, options: Terms, waiter: Waiter, *, wait: bool
) -> Request:
    channel = engine.runtime.channel()
    if waiter.queued or waiter.late_grants:
        return primitive.renew(waiter.token, options.ttl_ms, options.ticket_ms, channel)
    if waiter.old is not None:
        old = Leaving(waiter.old.token, TOMB_MS if waiter.old.unanswered else 0)
        return primitive.swap(
            old, waiter.token, options.ttl_ms, options.ticket_ms,
            block=options.block, channel=channel, max_waiters=options.max_waiters,
        )  # fmt: skip
    return primitive.acquire(
        waiter.token, options.ttl_ms, options.ticket_ms,
        wait=wait, block=options.block, channel=channel, max_waiters=options.max_waiters,
    )  # fmt: skip


def read_answer(engine: Engine, primitive: Primitive, options: Terms, waiter: Waiter) -> Grant | None:
    """Read the answer that a waiter brings along; ``win`` goes on from there if it is no grant."""
    if waiter.answer is None:
        return None
    (outcome, sent_at), waiter.answer = waiter.answer, None
    waiter.answered = True
    return _read(engine, primitive, options, waiter, outcome, sent_at)


async def _ask(
    engine: Engine,
    primitive: Primitive,
    options: Terms,
    waiter: Waiter,
    until: float | None,
    *,
    wait: bool,
) -> tuple[Outcome, float] | None:
    """Ask until there is an answer; it, and when it was asked for. None: the time is up, and somebody else held it."""
    runtime, retry, was_held = engine.runtime, waiter.failing(), waiter.busy or waiter.queued
    if waiter.busy:
        _begin_try(engine, primitive, waiter)
    retry.attempt = 0
    call: Request | None = None
    while True:
        asked_at = runtime.now()
        budget = patience(asked_at, options, until)
        try:
            if not runtime.channel():
                await runtime.ready(budget)
            call = _next_call(engine, primitive, options, waiter, wait=wait)
            waiter.asks()
            sent_at = runtime.now()
            if not options.replicas:
                outcome = await runtime.call(call, budget)
            else:
                outcome = await ask_with_replicas(engine, primitive, options, waiter, call, budget)
        except Fault as fault:
            if fault.maybe_applied:
                waiter.missed()
                if was_held and until is not None and until - asked_at < NO_SIGN_WITHIN:
                    # It was held a moment ago, and the time is up before an answer can be expected: no outage.
                    await rest(engine, max(0.0, until - runtime.now()), primitive.name, "acquire")
                    return None
            elif fault.kind is FaultKind.WRONG_KEY and not waiter.unanswered and not waiter.queued:
                # Types are checked before anything is written: there is nothing to take back.
                waiter.become(WaiterState.NEW)
            why = await explained(engine, call, fault) if call is not None else fault
            pause = pause_after(
                engine, why, retry, options, until, f"acquire {primitive.kind}", primitive.name, asked_at
            )
        else:
            engine.note_answer()
            retry.over()
            return outcome, sent_at
        await rest(engine, pause, primitive.name, "acquire")


def _begin_try(engine: Engine, primitive: Primitive, waiter: Waiter) -> None:
    """Take a new token: without a queue each try has one of its own. What the one before may have left ends."""
    if waiter.unanswered:
        engine.post(primitive.leave(waiter.token, TOMB_MS, 0))
    waiter.restart(engine.runtime.new_token())


def _read(
    engine: Engine,
    primitive: Primitive,
    options: Terms,
    waiter: Waiter,
    outcome: Outcome,
    sent_at: float,
) -> Grant | None:
    if isinstance(outcome, Granted):
        return _held(engine, primitive, options, waiter, outcome, sent_at)
    if isinstance(outcome, Queued):
        waiter.old = None
        if engine.reports.observer is not None and not waiter.queued:
            engine.reports.observer.queued(primitive, outcome.rank)
        waiter.become(WaiterState.QUEUED)
        ticket_until = valid_until(sent_at, options.ticket_ms, options.ticket_ms)
        waiter.ticket = Ticket(outcome.rank, outcome.expires_ms, ticket_until)
        known = waiter.blocker
        # Not ``_replace``: every wait on the server comes here, and it costs three calls.
        waiter.blocker = Blocker(
            known.holder, outcome.holder_ms, outcome.foreign, known.endless, known.outcomes
        )
        note_endless(engine, primitive, waiter)
        return None
    if isinstance(outcome, Busy):
        waiter.become(WaiterState.BUSY)
        waiter.blocker = waiter.blocker._replace(
            holder=outcome.holder or None,
            holder_ms=outcome.holder_ms,
            foreign=outcome.foreign,
            outcomes=outcome.outcomes,
        )
        note_endless(engine, primitive, waiter)
        return None
    if isinstance(outcome, Full):
        queue = f"{outcome.waiters} waiters in the queue"
        text = f"acquire {primitive.name!r}: {queue}, and max_waiters is {options.max_waiters}"
        raise QueueFull(text, name=primitive.name)
    if isinstance(outcome, (Gone, Dead)):
        # The ticket lapsed, or the server lost it: a new token at the tail. The old one must never be granted.
        log.info(
            "ticket of %r was dropped, queueing again", primitive.name, extra={"pawlock_name": primitive.name}
        )
        engine.count("requeued")
        engine.post(primitive.leave(waiter.token, TOMB_MS if waiter.unanswered else 0, 0))
        waiter.restart(engine.runtime.new_token())
        return None
    refusal = primitive.refusal(outcome)
    if refusal is not None:
        if not waiter.unanswered:
            # The server stored nothing for it.
            waiter.become(WaiterState.NEW)
        raise refusal
    raise ScriptError(
        f"acquire {primitive.name!r}: a reply that is not from a pawlock script: {outcome!r:.100}"
    )


def _held(
    engine: Engine,
    primitive: Primitive,
    options: Terms,
    waiter: Waiter,
    granted: Granted,
    sent_at: float,
) -> Grant | None:
    waiter.old = None
    found = granted.left_ms <= options.ticket_ms or (waiter.unanswered and not options.given.renew)
    if granted.fence <= 0:
        # The grant was made unseen, and its fence went with the server's fence key: nobody may own it.
        engine.post(primitive.leave(waiter.token, TOMB_MS, 0))
        waiter.restart(engine.runtime.new_token())
        return None
    if found and granted.left_ms < options.ttl_ms and not waiter.late_grants:
        # An earlier copy was granted, and lives as its ticket, or since then with nobody to renew it: raise it once.
        waiter.late_grants = 1
        return None
    valid = engine.validity(sent_at, granted.left_ms, options.ttl_ms)
    if valid > engine.runtime.now():
        return Grant(granted.fence, valid, True, granted.quorum)
    waiter.late_grants += 1
    if waiter.late_grants > _MOST_LATE_GRANTS:
        text = f"{waiter.late_grants} grants in a row had expired when they arrived"
        raise ClockDrift(f"acquire {primitive.name!r}: {text}", name=primitive.name)
    return None


async def _listen(
    engine: Engine, primitive: Primitive, options: Terms, waiter: Waiter, until: float | None
) -> Grant | None:
    runtime = engine.runtime
    timeout = _patience(engine, options, waiter)
    if until is not None:
        timeout = min(timeout, max(0.0, until - runtime.now()))
    end = runtime.now() + timeout
    while True:
        left = end - runtime.now()
        pause = max(0.0, left if waiter.stop is None else min(left, STOP_POLL))
        try:
            wakeup = await runtime.wait_wakeup(waiter.token, pause)
        except Fault as fault:
            raise to_error(fault, primitive.name, "acquire") from fault
        if wakeup is not None:
            return _check(engine, options, waiter, wakeup)
        check_stop(waiter.stop, primitive.name)
        if waiter.stop is None or left <= STOP_POLL or runtime.channel() == "":
            return None


def _check(engine: Engine, options: Terms, waiter: Waiter, wakeup: Wakeup) -> Grant | None:
    ticket = waiter.ticket
    if ticket is None or wakeup.expires_ms < ticket.expires_ms:
        return None
    margin = options.ticket_ttl / 4
    if ticket.valid_until <= engine.runtime.now() + margin:
        return None
    # Asking now raises the ticket's short life to the ttl, which without renewal nobody else would.
    return Grant(wakeup.fence, ticket.valid_until, False) if not options.confirms else None


def _patience(engine: Engine, options: Terms, waiter: Waiter) -> float:
    """How long to listen before asking: a third of the ticket; the head also wakes when the holder's lease ends."""
    timeout = options.ticket_ttl / 3
    if waiter.rank == 0:
        left_ms = waiter.blocker.holder_ms
        if waiter.blocker.foreign:
            timeout = min(timeout, _FOREIGN_POLL * (1 + engine.runtime.random()))
        if left_ms >= 0:
            timeout = min(timeout, (left_ms + 1) / 1000)
    if engine.runtime.channel() == DEAF:
        timeout = min(timeout, _DEAF_POLL * (1 + engine.runtime.random()))
    return timeout
