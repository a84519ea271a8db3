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
    from pawl.core.state.client import Departure
    from pawl.core.state.history import Page
    from pawl.core.state.records import Tenure
    from pawl.core.state.session import Book

__all__ = ["until_next_need", "upkeep"]

_Answer: TypeAlias = "tuple[Tenure, Reply | Fault]"

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
    engine.upkeep_runs = True
    try:
        await _serve(engine)
    finally:
        # Somebody may cancel all tasks of a loop and go on: the next lease starts it anew.
        engine.upkeep_runs = False


async def _serve(engine: Engine) -> None:
    runtime = engine.runtime
    while True:
        _forget_abandoned(engine)
        now = runtime.now()
        due = engine.schedule.take_due(now, _BATCH)
        leaving = _leaving(engine, now)
        book = engine.book
        record = None if book is None else _record_due(engine, book, now)
        past = engine.history
        pages = [] if past is None or engine.closed else past.due(engine, now)
        try:
            if due or record or pages:
                await _renew(engine, due, record, pages)
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
            engine.schedule.sleep_until(runtime.now()),
            # A copy, made in one step: other threads append meanwhile.
            min((d.due for d in tuple(engine.departures)), default=inf),
            inf if engine.breaker is None else engine.breaker.due,
            engine.look_at,
            inf if past is None or engine.closed else past.sleep_until(engine, runtime.now()),
        )
        if engine.abandoned or engine.undelivered:
            continue
        until = None if next_due == inf else min(next_due, runtime.now() + _LOOK_AGAIN)
        if not await runtime.idle(until):
            return


def _forget_abandoned(engine: Engine) -> None:
    """Stop renewing leases whose objects are gone; they run out. Released only if no body can still run."""
    while engine.undelivered:
        # It stays until it is done: the end of the client waits for it.
        try:
            _take_back(engine, *engine.undelivered[0])
        finally:
            engine.undelivered.popleft()
    while engine.abandoned:
        tenure = engine.abandoned.popleft()
        # It goes on until it runs out, and is nobody's until then.
        who, tenure.who = tenure.who, None
        engine.forget_holder(tenure, who)
        if tenure.live and tenure.epoch == engine.epoch:
            engine.end(tenure)
            engine.count("abandoned")
            engine.count_end(tenure, "abandoned")
            engine.detach_place(tenure)
            name = tenure.primitive.name
            log_lease.warning(
                "a lease of %r was garbage-collected without release; it expires by its TTL",
                name, extra={"pawl_name": name},
            )  # fmt: skip


def _take_back(engine: Engine, tenure: Tenure, number: int) -> None:
    engine.forget_holder(tenure, tenure.who)
    if tenure.live and tenure.epoch == engine.epoch and tenure.used == number:
        engine.count_end(tenure, "background")
        if tenure.place is not None and tenure.place.turn != tenure.turn:
            # Another caller of this client went on with its token.
            engine.end(tenure)
        elif not engine.end_turn(tenure, engine.runtime.now(), number):
            engine.depart_from(tenure)


def _record_due(engine: Engine, book: Book, now: float) -> Call | None:
    if book.published:
        engine.take_away(engine.runtime.notices())
    return book.due(now)


async def _look_around(engine: Engine, now: float) -> None:
    """Questions that no lease depends on; each may take until the next lease needs the connection."""
    if engine.look_at <= now:
        engine.look_at, engine.looked = inf, True
        await look(engine, until_next_need(engine, engine.runtime.now()))
    if engine.breaker is not None:
        await engine.breaker.look(engine, until_next_need(engine, engine.runtime.now()))
    if engine.book is not None and engine.book.waits:
        await look_for_cycles(engine, engine.book, until_next_need(engine, engine.runtime.now()))


def _put_back(engine: Engine, due: list[Tenure]) -> None:
    """Serve again the leases that were in hand when something went wrong: twice does no harm."""
    soon = engine.runtime.now() + _LEAST_PATIENCE
    for tenure in due:
        if tenure.live:
            engine.schedule.discard(tenure)
            engine.schedule.add_once(tenure, soon)


async def _renew(engine: Engine, due: list[Tenure], record: Call | None, pages: list[Page]) -> None:
    """Renew what is due; the session's record and the histories go along in the same write."""
    batch = _still_held(engine, due, engine.runtime.now())
    if not batch and record is None and not pages:
        return
    groups, single = share(batch) if len(batch) > 1 and may_share(engine) else ([], batch)
    calls = [shared_call(group) for group in groups]
    calls += [renewal_call(tenure) for tenure in single]
    if record is not None:
        calls.append(record)
    calls += [page.call for page in pages]
    if engine.relief is not None and any(tenure.options.renew is True for tenure in batch):
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
    alone: list[Tenure] = []
    for group, outcome in zip(groups, outcomes, strict=False):
        for tenure, told in zip(group, each_of(group, outcome), strict=True):
            if told is not None:
                answers.append((tenure, told))
            elif tenure.live:
                alone.append(tenure)
    # All that is known, at once: no lease waits for what follows from the answer for another.
    refused = _take(engine, answers, sent_at)
    await _ask_further(engine, alone, durable, refused, sent_at)


def _still_held(engine: Engine, due: list[Tenure], now: float) -> list[Tenure]:
    """Those that are to be renewed; the ends of the others are reported."""
    batch: list[Tenure] = []
    for tenure in due:
        sure = tenure.state is LeaseState.HELD and now < tenure.valid_until
        if not sure and (not tenure.live or engine.expired(tenure, now)):
            continue
        if not tenure.options.renew and tenure.state is not LeaseState.SUSPECT:
            engine.replan(tenure)
        else:
            batch.append(tenure)
    return batch


async def _ask_further(
    engine: Engine,
    alone: list[Tenure],
    durable: list[tuple[Tenure, Call, Reply | Fault]],
    refused: list[tuple[Tenure, Reply]],
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
        calls = [renewal_call(tenure) for tenure in alone]
        outcomes = await engine.runtime.call_many(calls, _patience(engine, alone, asked_at))
        refused += _take(engine, list(zip(alone, outcomes, strict=True)), asked_at)
    if durable:
        batch, outcomes = [one[0] for one in durable], [one[2] for one in durable]
        patience = _patience(engine, batch, engine.runtime.now())
        await check_renewals(engine, batch, [one[1] for one in durable], outcomes, patience)
        refused += _take(engine, list(zip(batch, outcomes, strict=True)), sent_at)
    if refused:
        await _ask_whether_taken(engine)
        for tenure, reply in refused:
            _answered(engine, tenure, reply, sent_at)


def _patience(engine: Engine, batch: list[Tenure], now: float) -> float:
    patience = min(
        (min(renewal_patience(engine, t, now), t.valid_until - now) for t in batch),
        default=_RECORD_PATIENCE,
    )
    return max(_LEAST_PATIENCE, min(patience, until_next_need(engine, now)))


def _take(engine: Engine, answers: list[_Answer], sent_at: float) -> list[tuple[Tenure, Reply]]:
    """Take answers into account; give the leases that the server does not know, which need another question."""
    refused: list[tuple[Tenure, Reply]] = []
    for tenure, outcome in _confirmed(engine, answers, sent_at):
        if isinstance(outcome, Fault):
            _failed(engine, tenure, outcome)
        elif outcome[0] == b"U":
            refused.append((tenure, outcome))
        else:
            _answered(engine, tenure, outcome, sent_at)
    return refused


async def _ask_whether_taken(engine: Engine) -> None:
    """Learn of leases that an operator took: to a renewal they look like any that the server does not know."""
    engine.take_away(engine.runtime.notices())
    if engine.book is not None:
        patience = min(_RECORD_PATIENCE, until_next_need(engine, engine.runtime.now()))
        (outcome,) = await engine.runtime.call_many([engine.book.setup.calls.taken()], patience)
        if not isinstance(outcome, Fault):
            engine.take_away([bytes(tag).decode() for tag in outcome[3]])


def _confirmed(engine: Engine, answers: list[_Answer], sent_at: float) -> list[_Answer]:
    """Take all plain yeses into account in one step, for a hundred thousand leases are renewed here; give the rest."""
    plain: list[Tenure] = []
    rest: list[_Answer] = []
    now, valid_until = engine.runtime.now(), validity_of(engine)
    with engine.guard:
        for tenure, outcome in answers:
            options = tenure.options
            if (
                type(outcome) is list
                and outcome[0] == b"H"
                and tenure.state is LeaseState.HELD
                and now < tenure.valid_until
                and tenure.hold_limit is None
                and options.renew
                and tenure.ttl == options.ttl
            ):
                until = valid_until(sent_at, outcome[3] - options.delay_ms, options.ttl_ms)
                tenure.valid_until = max(tenure.valid_until, until)
                tenure.failures = 0
                plain.append(tenure)
            else:
                rest.append((tenure, outcome))
    engine.schedule.add_again(plain, now)
    engine.counters["renewed"] += len(plain)
    if engine.observer is not None:
        for _ in plain:
            engine.observer.counted("renewed")
    return rest


def _told(engine: Engine, record: Call | None, pages: list[Page], outcomes: list[Reply | Fault]) -> None:
    """What became of the session's record and of the histories, the last of all that was sent."""
    if engine.history is not None and pages:
        engine.history.answered(pages, outcomes[-len(pages) :], engine.runtime.now())
    if record is not None and engine.book is not None:
        engine.book.answered(outcomes[-len(pages) - 1])


def until_next_need(engine: Engine, now: float) -> float:
    """Seconds for which a wait for the server may keep the leases that are not in hand waiting."""
    return max(_TOLD_WITHIN, engine.schedule.first_need() - now)


def _answered(engine: Engine, tenure: Tenure, reply: Reply, sent_at: float) -> None:
    if not tenure.live:
        return
    if reply[0] == b"H":
        if engine.applies(tenure, reply[3], to_ms(tenure.ttl), sent_at):
            engine.count("renewed")
            engine.replan(tenure)
        return
    if engine.expired(tenure, engine.runtime.now()):
        return
    # The server does not know the holder (any more): somebody took it, or the server lost it.
    engine.lose(tenure, loss_from(reply))


def _failed(engine: Engine, tenure: Tenure, fault: Fault) -> None:
    now = engine.runtime.now()
    if engine.expired(tenure, now) or not engine.suspect(tenure):
        return
    name = tenure.primitive.name
    level = logging.WARNING if tenure.failures == 1 else logging.DEBUG
    log.log(
        level, "renewal of %r failed (%s); the lease expires in %.1f s", name, fault.text, tenure.valid_until - now,
        extra={"pawl_name": name, "pawl_fault": str(fault.kind)},
    )  # fmt: skip
    pause = full_jitter(
        tenure.failures, engine.runtime.random(), base=tenure.every / 16, cap=min(1.0, tenure.every)
    )
    if engine.schedule.add_once(tenure, min(now + max(pause, 0.005), tenure.valid_until)):
        engine.runtime.nudge()


def _leaving(engine: Engine, now: float) -> list[Departure | Duty]:
    # A copy, made in one step: other threads add and remove meanwhile.
    return [departure for departure in tuple(engine.departures) if departure.due <= now][:_BATCH]


async def _depart(engine: Engine, leaving: list[Departure | Duty]) -> None:
    departures = [departure for departure in leaving if not isinstance(departure, Duty)]
    patience = min(_DEPARTURE_PATIENCE, until_next_need(engine, engine.runtime.now()))
    outcomes = await engine.runtime.call_many([d.call for d in departures], patience)
    now = engine.runtime.now()
    for departure, outcome in zip(departures, outcomes, strict=True):
        if not isinstance(outcome, Fault):
            engine.departures.pop(departure, None)
            engine.count("departed")
            continue
        departure.attempt += 1
        departure.due = now + full_jitter(departure.attempt, engine.runtime.random())
        # A refusal that cannot pass is the same next time, and the end of the client would wait for it.
        if now >= departure.until or not (passes(outcome.kind) or outcome.kind is FaultKind.OUT_OF_MEMORY):
            engine.departures.pop(departure, None)
            engine.count("departure_given_up")
            log.warning("a lease could not be released (%s); it expires by its TTL", outcome.text)
