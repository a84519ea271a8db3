"""How a lock is acquired; written once for both APIs.

A caller that holds the name already gets its lease once more, or waits for itself no longer than it asked for. Else it
comes to the local queue of the name: with a turn it asks the server, and waits there; without one it sleeps until it is
given what another caller of this client held, that one's ticket, or a turn of its own.

Rules for a token on its way to a grant (each guards against an interleaving that was seen to break a lock):

1. A resend carries the same token; the scripts answer it alike.
2. ``valid_until`` of a waiting token is counted from the send of the last answered request, with the ticket's life.
3. A token that the server no longer knows is replaced by a new one; the old one is left behind with a tombstone.
4. Once a leave was sent for a token, no later outcome or message for it counts: its waiter is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pawlock.core.giving_up import end_wait, give_back, timed_out
from pawlock.core.lease import HeldLease
from pawlock.core.local_queue import LocalQueue, Waiter, WaiterState
from pawlock.core.outcomes import Busy, Dead, Full, Gone, Granted, Outcome, Queued
from pawlock.core.primitive import TOMB_MS, Primitive
from pawlock.core.records import Attempt, Hold, valid_until
from pawlock.core.reentry import taken_again
from pawlock.core.replicas import ask_with_replicas
from pawlock.core.retry import note_endless, patience
from pawlock.core.runtime import Fault, Request
from pawlock.core.wait import go_on, poll, sleep, wait_more
from pawlock.errors import ClientClosed, ClockDrift, QueueFull, ScriptError

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan
    from pawlock.core.runtime import StopSignal

__all__ = ["acquire", "own_given", "own_grant", "win"]


log: logging.Logger = logging.getLogger("pawlock.acquire")

_MOST_LATE_GRANTS = 3

T = TypeVar("T")


@overload
async def acquire(
    engine: Engine, plan: Plan, timeout: float | None, stop: StopSignal | None = None, *, nested: bool = False
) -> HeldLease: ...
@overload
async def acquire(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
    *,
    or_none: bool,
    nested: bool = False,
) -> HeldLease | None: ...
@overload
async def acquire(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
    *,
    or_none: bool,
    nested: bool = False,
    give: Callable[[HeldLease], T],
) -> T | None: ...
async def acquire(
    engine: Engine,
    plan: Plan,
    timeout: float | None,
    stop: StopSignal | None = None,
    *,
    or_none: bool = False,
    nested: bool = False,
    give: Callable[[HeldLease], Any] | None = None,
) -> Any:
    """Acquire the lock: with a single request if it is free, and nobody in this client holds or awaits it.

    Args:
        engine: The client's engine.
        plan: The lock.
        timeout: Seconds to wait; None: no limit; 0 tries once.
        stop: Ends the wait once it is set.
        or_none: Whether it ends with None, and not with an error, where the time is up and somebody else holds it.
        nested: Whether it is a step of another acquisition, which notifies observers by itself.
        give: Makes of the lease what its user gets.

    Raises:
        NotAcquired: Somebody else holds it, and the time is up; or the wait would deadlock.
        BackendError: The server could not be reached.
    """
    runtime, epoch = engine.runtime, engine.epoch
    began = runtime.now()
    # A single try waits for its answer as long as any request.
    until = None if timeout is None else began + (timeout or plan.options.answer_within)
    attempt = Attempt(runtime.who(), began, until, stop, wait=timeout != 0)
    calls, waits = engine.calls, engine.waits
    try:
        calls[attempt] = attempt.who
        # Checked after registering: a concurrent close either saw this call or has set ``closed``.
        if engine.closed or not engine.maintenance_runs:
            engine.need_maintenance(plan.primitive.name)
        mine = None if plan.counted else engine.held.get((attempt.who, plan.primitive.key))
        lease = None if mine is None else taken_again(engine, plan, mine, attempt)
        tries = lease is None and (mine is None or attempt.wait or not mine.live)
        if tries and (_begin(engine, plan, attempt) or await _slept(engine, plan, attempt)):
            if attempt.hold is None:
                hold = await win(engine, plan, attempt)
                lease = None if hold is None else own_grant(engine, plan, hold, attempt)
            else:
                # Another caller of this client gave it.
                lease = attempt.lease
        if lease is None:
            await _refuse(engine, plan, attempt, or_none=or_none, nested=nested)
            return None
        if engine.closed or engine.epoch != epoch:
            what = "process was forked" if engine.epoch != epoch else "client was closed"
            raise ClientClosed(f"the {what} during the call", name=plan.primitive.name)
        return lease if give is None else give(lease)
    except BaseException as error:
        # If it is this one, its frames have the attempt.
        attempt.wait_error = None
        # In the child of a fork all of it is the parent's.
        if engine.epoch == epoch:
            give_back(engine, plan, attempt, error)
        engine.refused(plan.primitive, began, error, nested=nested)
        raise
    finally:
        # Whatever it still has after an interruption is nobody's.
        attempt.done = True
        # Without a call, after which a signal handler may run: what its exception keeps would have the lease.
        if attempt in calls:
            del calls[attempt]
        if attempt in waits:
            del waits[attempt]


async def _refuse(engine: Engine, plan: Plan, attempt: Attempt, *, or_none: bool, nested: bool) -> None:
    """Report an acquisition whose time is up.

    Raises:
        AcquireTimeout: Unless ``or_none`` is set.
    """
    await end_wait(engine, plan, attempt)
    if not or_none:
        raise await timed_out(engine, plan, attempt.began, attempt.last)
    engine.refused(plan.primitive, attempt.began, None, nested=nested)


async def _slept(engine: Engine, plan: Plan, attempt: Attempt) -> bool:
    """Sleep in the local queue until another caller gives what it held, or it is the caller's turn; False: the time is up."""
    while await sleep(engine, plan, attempt):
        if not isinstance(attempt.given, Hold):
            attempt.waiter = attempt.given if isinstance(attempt.given, Waiter) else None
            return True
        if own_given(engine, plan, attempt.given, attempt):
            return True
        # Lost between the hand-over and now: it queues again, for the time that remains.
        attempt.given, attempt.number = None, 0
        if _begin(engine, plan, attempt):
            return True
    return False


def _begin(engine: Engine, plan: Plan, attempt: Attempt) -> bool:
    """Come to the local queue; False: the caller must sleep, or, if it does not wait, leave."""
    with engine.guard:
        queue = engine.local_queues.get(plan.queue_key)
        if queue is None:
            attempt.queue = LocalQueue(plan.queue_key, engine.local_queues, plan.capacity, attempt)
            return True
        attempt.queue = queue
        if queue.begin(attempt):
            return True
        if attempt.wait:
            attempt.parker = engine.runtime.parker()
            attempt.lease = HeldLease(engine, None, attempt.who)
            queue.sleepers.append(attempt)
        return False


def own_grant(engine: Engine, plan: Plan, hold: Hold, attempt: Attempt) -> HeldLease:
    """Own what the server granted: register it as held, plan its renewal, and report it to observers."""
    queue, rhythm = attempt.queue, hold.rhythm
    attempt.hold, hold.who, hold.epoch = hold, attempt.who, engine.epoch
    attempt.lease = lease = HeldLease(engine, hold, attempt.who)
    with engine.guard:
        if queue is not None and plan.capacity == 1:
            hold.queue = queue
            queue.granted(hold)
        if not plan.counted:
            engine.held[attempt.who, plan.primitive.key] = hold
        if hold.confirmed and rhythm is plan.options.renewed:
            late = engine.schedule.add(hold, rhythm.every, hold.granted_at + rhythm.every)
        else:
            late = engine.plan_service(hold, hold.granted_at, confirmed=hold.confirmed)
    if late:
        engine.background.nudge()
    if engine.reports.observer is not None:
        contended = not hold.uncontended or attempt.parker is not None
        engine.reports.observer.acquired(hold, attempt.began, contended=contended)
    if queue is not None and plan.capacity > 1:
        engine.end_turn(queue, attempt)
    return lease


def own_given(engine: Engine, plan: Plan, hold: Hold, attempt: Attempt) -> HeldLease | None:
    """Own what another caller of this client passed on; None: it was lost on the way."""
    now = engine.runtime.now()
    lease: HeldLease = attempt.lease
    lease.hold, lease.number, lease.fence = hold, attempt.number, hold.fence + attempt.number
    attempt.hold = hold
    # From here on this plan says who may re-enter and who is notified of a loss.
    hold.primitive, hold.options, hold.who = plan.primitive, plan.options, attempt.who
    engine.held[attempt.who, plan.primitive.key] = hold
    # In this order: a loss from here on finds the lease.
    lease.released = False
    if not hold.live or now >= hold.valid_until:
        lease.released = True
        engine.forget_holder(hold, attempt.who)
        engine.expired(hold, now)
        attempt.hold = None
        return None
    engine.reports.counters["handed_over"] += 1
    if plan.options.max_hold is not None:
        engine.limit_hold(hold, now + plan.options.max_hold)
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(hold, attempt.began, contended=True)
        engine.reports.observer.counted("handed_over")
    return lease


async def win(engine: Engine, plan: Plan, attempt: Attempt) -> Hold | None:
    """Ask the server until it is granted; None if somebody else holds the name and the time is up."""
    runtime, options, until = engine.runtime, plan.options, attempt.until
    waiter = attempt.waiter or _with_waiter(engine, plan, attempt)
    if attempt.parker is not None and plan.primitive.polls:
        # Another of this client had it just now: who asks at once would always be sooner than those who poll.
        await poll(engine, plan, attempt, waiter, share=runtime.random())
    before = waiter.state
    while True:
        sent_at = asked_at = runtime.now()
        call = None
        if waiter.state is WaiterState.BUSY:
            _begin_try(engine, plan.primitive, waiter)
        budget = options.answer_within if until is None else patience(sent_at, options.answer_within, until)
        try:
            attempt.channel = runtime.channel()
            if not attempt.channel:
                await runtime.ready(patience(sent_at, options.connect_timeout or budget, until))
                attempt.channel, sent_at = runtime.channel(), runtime.now()
            call = _next_call(plan, attempt, waiter)
            if not options.replicas:
                outcome = await runtime.call(call, budget)
            else:
                outcome = await ask_with_replicas(engine, plan.primitive, options, waiter, call, budget)
        except Fault as fault:
            if not await go_on(engine, plan, attempt, waiter, fault, call, asked_at, before):
                return None
            continue
        if engine.health.down_since is not None:
            engine.note_answer()
        waiter.retry = None
        read = _granted if isinstance(outcome, Granted) else _read
        hold = read(engine, plan, waiter, outcome, sent_at) or await wait_more(engine, plan, attempt, waiter)
        if hold is not True:
            return hold or None
        before = waiter.state


def _with_waiter(engine: Engine, plan: Plan, attempt: Attempt) -> Waiter:
    """Give an attempt a token to ask with."""
    token = engine.runtime.new_token()
    attempt.waiter = waiter = Waiter(plan.shown(token) if plan.identity else token)
    return waiter


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


def _begin_try(engine: Engine, primitive: Primitive, waiter: Waiter) -> None:
    """Take a new token: without a queue each try has one of its own. What the one before may have left ends."""
    if waiter.unanswered:
        engine.post(primitive.leave(waiter.token, TOMB_MS, 0))
    waiter.restart(engine.runtime.new_token())


def _read(engine: Engine, plan: Plan, waiter: Waiter, outcome: Outcome, sent_at: float) -> Hold | None:
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


def _granted(engine: Engine, plan: Plan, waiter: Waiter, granted: Granted, sent_at: float) -> Hold | None:
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
    # Of several servers alone: when they were asked, once there were connections to them, and how they granted it.
    quorum = getattr(granted, "quorum", None)
    if quorum is not None:
        sent_at = quorum[0]
    valid, now = engine.validity(sent_at, left_ms, options.ttl_ms), engine.runtime.now()
    if valid > now:
        hold = Hold(plan.primitive, options, waiter, granted.fence, valid, now)
        if quorum is not None:
            hold.quorum = quorum[1]
        return hold
    waiter.late_grants += 1
    if waiter.late_grants > _MOST_LATE_GRANTS:
        text = f"{waiter.late_grants} grants in a row had expired when they arrived"
        raise ClockDrift(f"acquire {plan.primitive.name!r}: {text}", name=plan.primitive.name)
    return None
