"""The upkeep of a client: renews its leases in batches, reports losses on time, and leaves tokens in the background.

One upkeep per client, in a thread or a task of its own. A lease that is released while its renewal is in flight is
left alone by the answer; an answer that comes past ``valid_until`` revives nothing.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from pawl.core.keep.majority import renew_votes, renewal_patience, tell_again
from pawl.core.keep.outbox import validity_of
from pawl.core.keep.renewal_groups import each_of, may_share, renewal_call, share, shared_call
from pawl.core.keep.replicas import check_renewals
from pawl.core.keep.server_check import look
from pawl.core.keep.tracking import heed_changes, track_held
from pawl.core.observe.deadlock import look_for_cycles
from pawl.core.protocol.backoff import full_jitter
from pawl.core.protocol.faults import passes
from pawl.core.protocol.runtime import Fault, FaultKind, Reply
from pawl.core.protocol.validity import to_ms
from pawl.core.quorum.votes import Duty
from pawl.core.state.records import loss_from
from pawl.model import LeaseState

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.runtime import Call
    from pawl.core.state.client import OutboxEntry
    from pawl.core.state.history import Page
    from pawl.core.state.records import ServerLease
    from pawl.core.state.session import SessionPublisher

__all__ = ["until_next_need", "upkeep"]

_Answer: TypeAlias = "tuple[ServerLease, Reply | Fault]"

log: logging.Logger = logging.getLogger("pawl.renewal")
log_lease: logging.Logger = logging.getLogger("pawl.lease")

_BATCH = 500
_LEAST_PATIENCE = 0.005
_DEPARTURE_PATIENCE = 1.0

_RECORD_PATIENCE = 0.5

_TOLD_WITHIN = 0.1
"""Seconds by which a wait for the server may delay the report of another lease's end, or its renewal. Less would end
the waits of all renewals before a server a little away can answer, once leases that nobody renews end all the time."""

_LOOK_AGAIN = 1.0
"""Seconds that the upkeep sleeps at most while anything is to come. The timers of a runtime stop while the machine is
suspended, and validity does not: an expiry during the suspension is reported within this time after the resume."""


async def upkeep(engine: Engine) -> None:
    """Serve until the client closes."""
    engine.activity.maintenance_runs = True
    try:
        await _serve(engine)
    finally:
        # Somebody may cancel all tasks of a loop and go on: the next lease starts it anew.
        engine.activity.maintenance_runs = False


async def _serve(engine: Engine) -> None:
    runtime = engine.runtime
    while True:
        _forget_abandoned(engine)
        now = runtime.now()
        if engine.leases.changes:
            heed_changes(engine, now)
        due = engine.leases.schedule.take_due(now, _BATCH)
        leaving = _leaving(engine, now)
        book = engine.reports.publisher
        record = None if book is None else _record_due(engine, book, now)
        past = engine.reports.history
        pages = [] if past is None or engine.activity.closed else past.due(engine, now)
        try:
            if due or record or pages:
                await _renew(engine, due, record, pages)
                await track_held(engine, due, until_next_need(engine, runtime.now()))
            if leaving:
                await (
                    _depart(engine, leaving)
                    if engine.quorum is None
                    else tell_again(engine, leaving, until_next_need(engine, engine.runtime.now()))
                )
        except BaseException:
            _put_back(engine, due)
            raise
        await _look_around(engine, now)
        if due or leaving or record or pages:
            continue
        next_due = min(
            inf if book is None else book.sleep_until(runtime.now()),
            engine.leases.schedule.sleep_until(runtime.now()),
            # A copy, made in one step: other threads append meanwhile.
            min((d.due for d in tuple(engine.outbox.entries)), default=inf),
            inf if engine.health.circuit_breaker is None else engine.health.circuit_breaker.due,
            engine.health.look_at,
            inf if past is None or engine.activity.closed else past.sleep_until(engine, runtime.now()),
        )
        if engine.outbox.abandoned or engine.outbox.undelivered:
            continue
        until = None if next_due == inf else min(next_due, runtime.now() + _LOOK_AGAIN)
        if not await runtime.idle(until):
            return


def _forget_abandoned(engine: Engine) -> None:
    """Stop renewing leases whose objects are gone; they run out. Released only if no body can still run."""
    while engine.outbox.undelivered:
        # It stays until it is done: the end of the client waits for it.
        try:
            _take_back(engine, *engine.outbox.undelivered[0])
        finally:
            engine.outbox.undelivered.popleft()
    while engine.outbox.abandoned:
        server_lease = engine.outbox.abandoned.popleft()
        # It goes on until it runs out, and is nobody's until then.
        who, server_lease.who = server_lease.who, None
        engine.forget_holder(server_lease, who)
        if server_lease.live and server_lease.epoch == engine.epoch:
            engine.end(server_lease)
            engine.count("abandoned")
            engine.count_end(server_lease, "abandoned")
            engine.detach_local_queue(server_lease)
            name = server_lease.primitive.name
            log_lease.warning(
                "a lease of %r was garbage-collected without release; it expires by its TTL",
                name, extra={"pawl_name": name},
            )  # fmt: skip


def _take_back(engine: Engine, server_lease: ServerLease, number: int) -> None:
    engine.forget_holder(server_lease, server_lease.who)
    if server_lease.live and server_lease.epoch == engine.epoch and server_lease.used == number:
        engine.count_end(server_lease, "background")
        if server_lease.local_queue is not None and server_lease.local_queue.turn != server_lease.turn:
            # Another caller of this client went on with its token.
            engine.end(server_lease)
        elif not engine.end_turn(server_lease, engine.runtime.now(), number):
            engine.leave_in_background(server_lease)


def _record_due(engine: Engine, book: SessionPublisher, now: float) -> Call | None:
    if book.published:
        engine.take_away(engine.runtime.notices())
    return book.due(now)


async def _look_around(engine: Engine, now: float) -> None:
    """Questions that no lease depends on; each may take until the next lease needs the connection."""
    if engine.health.look_at <= now:
        engine.health.look_at, engine.health.looked = inf, True
        await look(engine, until_next_need(engine, engine.runtime.now()))
    if engine.health.circuit_breaker is not None:
        await engine.health.circuit_breaker.look(engine, until_next_need(engine, engine.runtime.now()))
    if engine.reports.publisher is not None and engine.reports.publisher.waits:
        await look_for_cycles(engine, engine.reports.publisher, until_next_need(engine, engine.runtime.now()))


def _put_back(engine: Engine, due: list[ServerLease]) -> None:
    """Serve again the leases that were in hand when something went wrong: twice does no harm."""
    soon = engine.runtime.now() + _LEAST_PATIENCE
    for server_lease in due:
        if server_lease.live:
            engine.leases.schedule.discard(server_lease)
            engine.leases.schedule.add_once(server_lease, soon)


async def _renew(engine: Engine, due: list[ServerLease], record: Call | None, pages: list[Page]) -> None:
    """Renew what is due; the session's record and the histories go along in the same write."""
    batch = _still_held(engine, due, engine.runtime.now())
    if not batch and record is None and not pages:
        return
    groups, single = share(batch) if len(batch) > 1 and may_share(engine) else ([], batch)
    calls = [shared_call(group) for group in groups]
    calls += [renewal_call(server_lease) for server_lease in single]
    if record is not None:
        calls.append(record)
    calls += [page.call for page in pages]
    if engine.relief is not None and any(server_lease.options.renew is True for server_lease in batch):
        engine.relief.rouse()
    sent_at = engine.runtime.now()
    patience = _patience(engine, batch, sent_at)
    if engine.quorum is None:
        outcomes = await engine.runtime.call_many(calls, patience)
    else:
        outcomes = await renew_votes(engine, batch, calls, patience)
    _told(engine, record, pages, outcomes)
    first, last = len(groups), len(groups) + len(single)
    each = list(zip(single, calls[first:last], outcomes[first:last], strict=True))
    answers: list[_Answer] = [(one[0], one[2]) for one in each if one[0].options.durable is None]
    durable = [one for one in each if one[0].options.durable is not None]
    alone: list[ServerLease] = []
    for group, outcome in zip(groups, outcomes, strict=False):
        for server_lease, told in zip(group, each_of(group, outcome), strict=True):
            if told is not None:
                answers.append((server_lease, told))
            elif server_lease.live:
                alone.append(server_lease)
    # All that is known, at once: no lease waits for what follows from the answer for another.
    refused = _take(engine, answers, sent_at)
    await _ask_further(engine, alone, durable, refused, sent_at)


def _still_held(engine: Engine, due: list[ServerLease], now: float) -> list[ServerLease]:
    """Those that are to be renewed; the ends of the others are reported."""
    batch: list[ServerLease] = []
    for server_lease in due:
        sure = server_lease.state is LeaseState.HELD and now < server_lease.valid_until
        if not sure and (not server_lease.live or engine.expired(server_lease, now)):
            continue
        if not server_lease.options.renew and server_lease.state is not LeaseState.SUSPECT:
            engine.replan(server_lease)
        else:
            batch.append(server_lease)
    return batch


async def _ask_further(
    engine: Engine,
    alone: list[ServerLease],
    durable: list[tuple[ServerLease, Call, Reply | Fault]],
    refused: list[tuple[ServerLease, Reply]],
    sent_at: float,
) -> None:
    """What needs another question, the most urgent first.

    Args:
        engine: The client's engine.
        alone: Leases that are to be asked for by themselves.
        durable: Leases of which replicas are to have the renewal, with what was asked and answered.
        refused: Leases that the server does not know.
        sent_at: When the first question was sent.
    """
    if alone:
        asked_at = engine.runtime.now()
        calls = [renewal_call(server_lease) for server_lease in alone]
        outcomes = await engine.runtime.call_many(calls, _patience(engine, alone, asked_at))
        refused += _take(engine, list(zip(alone, outcomes, strict=True)), asked_at)
    if durable:
        batch, outcomes = [one[0] for one in durable], [one[2] for one in durable]
        patience = _patience(engine, batch, engine.runtime.now())
        await check_renewals(engine, batch, [one[1] for one in durable], outcomes, patience)
        refused += _take(engine, list(zip(batch, outcomes, strict=True)), sent_at)
    if refused:
        await _ask_whether_taken(engine)
        for server_lease, reply in refused:
            _answered(engine, server_lease, reply, sent_at)


def _patience(engine: Engine, batch: list[ServerLease], now: float) -> float:
    patience = min(
        (min(renewal_patience(engine, t, now), t.valid_until - now) for t in batch),
        default=_RECORD_PATIENCE,
    )
    return max(_LEAST_PATIENCE, min(patience, until_next_need(engine, now)))


def _take(engine: Engine, answers: list[_Answer], sent_at: float) -> list[tuple[ServerLease, Reply]]:
    """Take answers into account; give the leases that the server does not know, which need another question."""
    refused: list[tuple[ServerLease, Reply]] = []
    for server_lease, outcome in _confirmed(engine, answers, sent_at):
        if isinstance(outcome, Fault):
            _failed(engine, server_lease, outcome)
        elif outcome[0] == b"U":
            refused.append((server_lease, outcome))
        else:
            _answered(engine, server_lease, outcome, sent_at)
    return refused


async def _ask_whether_taken(engine: Engine) -> None:
    """Learn of leases that an operator took: to a renewal they look like any that the server does not know."""
    engine.take_away(engine.runtime.notices())
    if engine.reports.publisher is not None:
        patience = min(_RECORD_PATIENCE, until_next_need(engine, engine.runtime.now()))
        (outcome,) = await engine.runtime.call_many([engine.reports.publisher.setup.calls.taken()], patience)
        if not isinstance(outcome, Fault):
            engine.take_away([bytes(tag).decode() for tag in outcome[3]])


def _confirmed(engine: Engine, answers: list[_Answer], sent_at: float) -> list[_Answer]:
    """Take all plain yeses into account in one step, for a hundred thousand leases are renewed here; give the rest."""
    plain: list[ServerLease] = []
    rest: list[_Answer] = []
    now, valid_until = engine.runtime.now(), validity_of(engine)
    with engine.guard:
        for server_lease, outcome in answers:
            options = server_lease.options
            if (
                type(outcome) is list
                and outcome[0] == b"H"
                and server_lease.state is LeaseState.HELD
                and now < server_lease.valid_until
                and server_lease.hold_limit is None
                and options.renew
                and server_lease.ttl == options.ttl
            ):
                until = valid_until(sent_at, outcome[3] - options.delay_ms, options.ttl_ms)
                server_lease.valid_until = max(server_lease.valid_until, until)
                server_lease.failures = 0
                plain.append(server_lease)
            else:
                rest.append((server_lease, outcome))
    engine.leases.schedule.add_again(plain, now)
    engine.reports.counters["renewed"] += len(plain)
    if engine.reports.observer is not None:
        for _ in plain:
            engine.reports.observer.counted("renewed")
    return rest


def _told(engine: Engine, record: Call | None, pages: list[Page], outcomes: list[Reply | Fault]) -> None:
    """What became of the session's record and of the histories, the last of all that was sent."""
    if engine.reports.history is not None and pages:
        engine.reports.history.answered(pages, outcomes[-len(pages) :], engine.runtime.now())
    if record is not None and engine.reports.publisher is not None:
        engine.reports.publisher.answered(outcomes[-len(pages) - 1])


def until_next_need(engine: Engine, now: float) -> float:
    """Seconds for which a wait for the server may keep the leases that are not in hand waiting."""
    return max(_TOLD_WITHIN, engine.leases.schedule.first_need() - now)


def _answered(engine: Engine, server_lease: ServerLease, reply: Reply, sent_at: float) -> None:
    if not server_lease.live:
        return
    if reply[0] == b"H":
        if engine.applies(server_lease, reply[3], to_ms(server_lease.ttl), sent_at):
            engine.count("renewed")
            engine.replan(server_lease)
        return
    if engine.expired(server_lease, engine.runtime.now()):
        return
    # The server does not know the holder (any more): somebody took it, or the server lost it.
    engine.lose(server_lease, loss_from(reply))


def _failed(engine: Engine, server_lease: ServerLease, fault: Fault) -> None:
    now = engine.runtime.now()
    if engine.expired(server_lease, now) or not engine.suspect(server_lease):
        return
    name = server_lease.primitive.name
    level = logging.WARNING if server_lease.failures == 1 else logging.DEBUG
    log.log(
        level, "renewal of %r failed (%s); the lease expires in %.1f s",
        name, fault.text, server_lease.valid_until - now,
        extra={"pawl_name": name, "pawl_fault": str(fault.kind)},
    )  # fmt: skip
    pause = full_jitter(
        server_lease.failures,
        engine.runtime.random(),
        base=server_lease.every / 16,
        cap=min(1.0, server_lease.every),
    )
    if engine.leases.schedule.add_once(server_lease, min(now + max(pause, 0.005), server_lease.valid_until)):
        engine.runtime.nudge()


def _leaving(engine: Engine, now: float) -> list[OutboxEntry | Duty]:
    # A copy, made in one step: other threads add and remove meanwhile.
    return [departure for departure in tuple(engine.outbox.entries) if departure.due <= now][:_BATCH]


async def _depart(engine: Engine, leaving: list[OutboxEntry | Duty]) -> None:
    outbox = [departure for departure in leaving if not isinstance(departure, Duty)]
    patience = min(_DEPARTURE_PATIENCE, until_next_need(engine, engine.runtime.now()))
    outcomes = await engine.runtime.call_many([d.call for d in outbox], patience)
    now = engine.runtime.now()
    for departure, outcome in zip(outbox, outcomes, strict=True):
        if not isinstance(outcome, Fault):
            engine.outbox.entries.pop(departure, None)
            engine.count("departed")
            continue
        departure.attempt += 1
        departure.due = now + full_jitter(departure.attempt, engine.runtime.random())
        # A refusal that cannot pass is the same next time, and the end of the client would wait for it.
        if now >= departure.until or not (passes(outcome.kind) or outcome.kind is FaultKind.OUT_OF_MEMORY):
            engine.outbox.entries.pop(departure, None)
            engine.count("departure_given_up")
            log.warning("a lease could not be released (%s); it expires by its TTL", outcome.text)
