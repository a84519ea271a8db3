"""A token on its way to a grant: ask, queue, wait, ask again; and the sleep of those who have no turn to ask.

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
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import DEAF, Fault, FaultKind, Wakeup
from pawlock.core.protocol.validity import valid_until
from pawlock.core.retry import (
    NO_SIGN_WITHIN,
    STOP_POLL,
    check_stop,
    explained,
    note_endless,
    patience,
    pause_after,
    rest,
)
from pawlock.core.state.records import Attempt, ServerLease, Waiter, WaiterState
from pawlock.errors import ClockDrift, QueueFull, ScriptError

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.primitive import PolledPrimitive, Primitive
    from pawlock.core.state.plan import Plan

__all__ = ["sleep", "win"]

log: logging.Logger = logging.getLogger("pawlock.acquire")


_MOST_LATE_GRANTS = 3
_FOREIGN_POLL = 0.05

_DEAF_POLL = 0.05


async def sleep(engine: Engine, plan: Plan, attempt: Attempt) -> bool:
    """Sleep in the local queue until something is given; False: the caller does not wait, or its time is up.

    Raises:
        NotAcquired: The caller was asked to stop.
        ClientClosed: The client was closed.
    """
    queue, parker, runtime = attempt.queue, attempt.parker, engine.runtime
    if queue is None or parker is None or not attempt.wait:
        return False
    _note_wait(engine, plan, attempt)
    while attempt.given is None:
        engine.check_open(plan.primitive.name)
        check_stop(attempt.stop, plan.primitive.name)
        if attempt.wait_error is not None:
            raise attempt.wait_error
        left = inf if attempt.until is None else attempt.until - runtime.now()
        if left <= 0:
            with engine.guard:
                if queue.leave(attempt):
                    attempt.queue = None
                    return False
            continue
        recheck = STOP_POLL if attempt.stop is not None else runtime.recheck_after
        pause = left if recheck is None else min(left, recheck)
        resting = parker.rest(None if pause == inf else pause)
        woken = resting if isinstance(resting, bool) else await resting
        if not woken and attempt.given is None:
            with engine.guard:
                healed = queue.heal()
            for place in healed:
                place.unpark()
    engine.check_open(plan.primitive.name)
    return True


def _note_wait(engine: Engine, plan: Plan, attempt: Attempt) -> None:
    """Have who looks for deadlocks see a wait that begins now."""
    if attempt not in engine.waits:
        engine.waits[attempt] = plan.primitive, attempt.who, attempt.began
        engine.watch()


async def win(engine: Engine, plan: Plan, attempt: Attempt) -> ServerLease | None:
    """Drive the waiter of an attempt to its grant.

    Args:
        engine: The client's engine.
        plan: The lock.
        attempt: Whose; with its waiter.

    Returns:
        What was granted, or None if somebody else holds the name and the time is up.
    """
    runtime, options, waiter, until = (
        engine.runtime,
        plan.options,
        attempt.waiter or Waiter(""),
        attempt.until,
    )
    if attempt.parker is not None and plan.primitive.polls:
        # Another of this client had it just now: who asks at once would always be sooner than those who poll.
        await _poll(engine, plan, attempt, waiter, share=runtime.random())
    before = waiter.state
    while True:
        sent_at = asked_at = runtime.now()
        call = None
        if waiter.state is WaiterState.BUSY:
            _begin_try(engine, plan.primitive, waiter)
        budget = options.request_timeout if until is None else patience(sent_at, options, until)
        try:
            attempt.channel = runtime.channel()
            if not attempt.channel:
                await runtime.ready(budget)
                attempt.channel, sent_at = runtime.channel(), runtime.now()
            call = _next_call(plan, attempt, waiter)
            if not options.replicas:
                outcome = await runtime.call(call, budget)
            else:
                outcome = await ask_with_replicas(engine, plan.primitive, options, waiter, call, budget)
        except Fault as fault:
            if not await _go_on(engine, plan, attempt, waiter, fault, call, asked_at, before):
                return None
            continue
        if engine.health.down_since is not None:
            engine.note_answer()
        waiter.retry = None
        read = _granted if isinstance(outcome, Granted) else _read
        hold = read(engine, plan, waiter, outcome, sent_at) or await _wait(engine, plan, attempt, waiter)
        if hold is not True:
            return hold or None
        before = waiter.state


async def _wait(engine: Engine, plan: Plan, attempt: Attempt, waiter: Waiter) -> ServerLease | bool:
    """Wait for a grant, or until it is time to ask again; False: the time is up, and somebody else holds it."""
    if attempt.wait_error is not None:
        raise attempt.wait_error
    if waiter.state is WaiterState.BUSY:
        return await _poll(engine, plan, attempt, waiter, share=1 + engine.runtime.random())
    if waiter.state is WaiterState.QUEUED:
        hold = await _listen(engine, plan, attempt, waiter)
        return hold or engine.runtime.now() < (attempt.until or inf)
    return True


async def _poll(engine: Engine, plan: Plan, attempt: Attempt, waiter: Waiter, *, share: float) -> bool:
    """Rest before the next try for a key that other programs share; False if there is none, or the time is up.

    Args:
        engine: The client's engine.
        plan: The lock.
        attempt: Who waits.
        waiter: What it asks for.
        share: For how many of the shortest pauses to rest.
    """
    runtime, primitive, pause = engine.runtime, plan.primitive, _FOREIGN_POLL * share
    left = inf if attempt.until is None else attempt.until - runtime.now()
    if not (primitive.polls and attempt.wait) or left <= 0:
        return False
    _note_wait(engine, plan, attempt)
    if waiter.holder_ms >= 0:
        pause = min(pause, (waiter.holder_ms + 1) / 1000)
    tries = left > _FOREIGN_POLL
    # The last question comes early enough for its answer.
    pause = min(pause, left - _FOREIGN_POLL) if tries else left
    hears = cast("PolledPrimitive", primitive).hears
    try:
        await (runtime.sleep(pause) if hears is None else runtime.hear(hears, pause))
    except Fault as fault:
        raise to_error(fault, primitive.name, "acquire") from fault
    check_stop(attempt.stop, primitive.name)
    if attempt.wait_error is not None:
        raise attempt.wait_error
    return tries


def _next_call(plan: Plan, attempt: Attempt, waiter: Waiter) -> Request:
    """What is to be sent next, and note that it leaves."""
    options, queued = plan.options, waiter.state is WaiterState.QUEUED
    if not queued:
        waiter.state = WaiterState.ASKED
    if queued or waiter.late_grants:
        return plan.primitive.renew(waiter.token, options.ttl_ms, options.ticket_ms, attempt.channel)
    return plan.primitive.acquire(
        waiter.token, options.ttl_ms, options.ticket_ms,
        wait=attempt.wait, block=options.block, channel=attempt.channel, max_queue=options.max_waiters,
    )  # fmt: skip


async def _go_on(
    engine: Engine,
    plan: Plan,
    attempt: Attempt,
    waiter: Waiter,
    fault: Fault,
    call: Request | None,
    asked_at: float,
    before: WaiterState,
) -> bool:
    """Rest after a question without an answer; False: it was held ``before``, and there is no time for another."""
    primitive, until = plan.primitive, attempt.until
    _note_fault(waiter, fault)
    was_held = before is WaiterState.BUSY or before is WaiterState.QUEUED
    if was_held and fault.maybe_applied and until is not None and until - asked_at < NO_SIGN_WITHIN:
        # It was held a moment ago, and the time is up before an answer can be expected: no outage.
        await rest(engine, max(0.0, until - engine.runtime.now()), primitive.name, "acquire")
        return False
    why = await explained(engine, call, fault) if call is not None else fault
    retry, doing = waiter.failing(), f"acquire {primitive.kind}"
    pause = pause_after(engine, why, retry, plan.options, until, doing, primitive.name, asked_at)
    await rest(engine, pause, primitive.name, "acquire")
    return True


def _begin_try(engine: Engine, primitive: Primitive, waiter: Waiter) -> None:
    """Take a new token: without a queue each try has one of its own. What the one before may have left ends."""
    if waiter.unanswered:
        engine.post(primitive.leave(waiter.token, TOMB_MS, 0))
    waiter.restart(engine.runtime.new_token())


def _note_fault(waiter: Waiter, fault: Fault) -> None:
    if fault.maybe_applied:
        waiter.unanswered = True
    elif fault.kind is FaultKind.WRONG_KEY and waiter.state is WaiterState.ASKED and not waiter.unanswered:
        # Types are checked before anything is written: there is nothing to take back.
        waiter.state = WaiterState.NEW


def _read(engine: Engine, plan: Plan, waiter: Waiter, outcome: Outcome, sent_at: float) -> ServerLease | None:
    primitive, options = plan.primitive, plan.options
    if isinstance(outcome, Queued):
        if engine.reports.observer is not None and waiter.state is not WaiterState.QUEUED:
            engine.reports.observer.queued(primitive, outcome.rank)
        waiter.state, waiter.rank, waiter.expires_ms = WaiterState.QUEUED, outcome.rank, outcome.expires_ms
        waiter.valid_until = valid_until(sent_at, options.ticket_ms, options.ticket_ms)
        waiter.holder_ms, waiter.foreign = outcome.holder_ms, outcome.foreign
        note_endless(engine, primitive, waiter)
        return None
    if isinstance(outcome, Busy):
        waiter.state, waiter.holder, waiter.outcomes = (
            WaiterState.BUSY,
            outcome.holder or None,
            outcome.outcomes,
        )
        waiter.holder_ms, waiter.foreign = outcome.holder_ms, outcome.foreign
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
    if primitive.refusal(outcome) is not None and not waiter.unanswered:
        # The server stored nothing for it.
        waiter.state = WaiterState.NEW
    raise primitive.refusal(outcome) or ScriptError(
        f"acquire {primitive.name!r}: a reply that is not from a pawlock script: {outcome!r:.100}"
    )


def _granted(
    engine: Engine, plan: Plan, waiter: Waiter, granted: Granted, sent_at: float
) -> ServerLease | None:
    options, left_ms = plan.options, granted.left_ms
    if granted.fence <= 0:
        # The grant was made unseen, and its fence went with the server's fence key: nobody may own it.
        engine.post(plan.primitive.leave(waiter.token, TOMB_MS, 0))
        waiter.restart(engine.runtime.new_token())
        return None
    if (
        left_ms < options.ttl_ms
        and (left_ms <= options.ticket_ms or (waiter.unanswered and not options.renew))
        and not waiter.late_grants
    ):
        # An earlier copy was granted, and lives as its ticket, or since then with nobody to renew it: raise it once.
        waiter.late_grants = 1
        return None
    quorum = granted.quorum
    if quorum is not None:
        sent_at = quorum[0]
    valid, now = engine.validity(sent_at, left_ms, options.ttl_ms), engine.runtime.now()
    if valid > now:
        hold = ServerLease(plan.primitive, options, waiter, granted.fence, valid, now)
        if quorum is not None:
            hold.quorum = quorum[1]
        return hold
    waiter.late_grants += 1
    if waiter.late_grants > _MOST_LATE_GRANTS:
        text = f"{waiter.late_grants} grants in a row had expired when they arrived"
        raise ClockDrift(f"acquire {plan.primitive.name!r}: {text}", name=plan.primitive.name)
    return None


async def _listen(engine: Engine, plan: Plan, attempt: Attempt, waiter: Waiter) -> ServerLease | None:
    runtime, name, stop = engine.runtime, plan.primitive.name, attempt.stop
    _note_wait(engine, plan, attempt)
    timeout = _patience(engine, plan, waiter)
    if attempt.until is not None:
        timeout = min(timeout, max(0.0, attempt.until - runtime.now()))
    end = runtime.now() + timeout
    while True:
        left = end - runtime.now()
        pause = max(0.0, left if stop is None else min(left, STOP_POLL))
        try:
            wakeup = await runtime.wait_wakeup(waiter.token, pause)
        except Fault as fault:
            raise to_error(fault, name, "acquire") from fault
        if wakeup is not None:
            return _check(engine, plan, waiter, wakeup)
        check_stop(stop, name)
        if stop is None or left <= STOP_POLL or runtime.channel() == "":
            return None


def _check(engine: Engine, plan: Plan, waiter: Waiter, wakeup: Wakeup) -> ServerLease | None:
    options, now = plan.options, engine.runtime.now()
    # Asking raises the ticket's short life to the ttl, which without renewal nobody else would.
    if options.confirms or wakeup.expires_ms < waiter.expires_ms:
        return None
    if waiter.valid_until <= now + options.ticket / 4:
        return None
    hold = ServerLease(plan.primitive, options, waiter, wakeup.fence, waiter.valid_until, now)
    hold.confirmed = False
    return hold


def _patience(engine: Engine, plan: Plan, waiter: Waiter) -> float:
    """How long to listen before asking: a third of the ticket; the head also wakes when the holder's lease ends."""
    timeout = plan.options.ticket / 3
    if waiter.rank == 0:
        left_ms = waiter.holder_ms
        if waiter.foreign:
            timeout = min(timeout, _FOREIGN_POLL * (1 + engine.runtime.random()))
        if left_ms >= 0:
            timeout = min(timeout, (left_ms + 1) / 1000)
    if engine.runtime.channel() == DEAF:
        timeout = min(timeout, _DEAF_POLL * (1 + engine.runtime.random()))
    return timeout
