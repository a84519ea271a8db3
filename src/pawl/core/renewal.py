"""The upkeep of a client: renews its leases in batches, tells losses on time, and leaves tokens in the background.

One upkeep per client, in a thread or a task of its own. A lease that is released while its renewal is in flight is
left alone by the answer; an answer that comes past ``valid_until`` revives nothing.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from pawl.core.backoff import full_jitter
from pawl.core.candidate import validity_of
from pawl.core.deadlock import look_for_cycles
from pawl.core.durable import check_renewals
from pawl.core.faults import passes
from pawl.core.preflight import look
from pawl.core.renewing import each_of, may_share, share, shared_call
from pawl.core.runtime import Fault, FaultKind, Reply
from pawl.core.tenure import loss_from
from pawl.core.validity import to_ms
from pawl.model import LeaseState

if TYPE_CHECKING:
    from pawl.core.engine import Departure, Engine
    from pawl.core.history import Page
    from pawl.core.runtime import Call
    from pawl.core.sessions import Book
    from pawl.core.tenure import Tenure

__all__ = ["upkeep"]

log: logging.Logger = logging.getLogger("pawl.renewal")

_BATCH = 500
_LEAST_PATIENCE = 0.005
_DEPARTURE_PATIENCE = 1.0

_RECORD_PATIENCE = 0.5

_TOLD_WITHIN = 0.1
"""Seconds by which a wait for the server may delay telling another lease's end. Less would end the waits of all
renewals before a server a little away can answer, once leases that nobody renews end all the time."""

_LOOK_AGAIN = 1.0
"""Seconds that the upkeep sleeps at most while anything is to come. The timers of a runtime stand still while the
machine is suspended, and validity does not: an end that came meanwhile is told within this time of the resume."""


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
        engine.forget_abandoned()
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
                await _depart(engine, leaving)
        except BaseException:
            _put_back(engine, due, leaving)
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
        pause = None if next_due == inf else min(_LOOK_AGAIN, max(0.0, next_due - runtime.now()))
        if not await runtime.idle(pause):
            return


def _record_due(engine: Engine, book: Book, now: float) -> Call | None:
    if book.published:
        engine.take_away(engine.runtime.notices())
    return book.due(now)


async def _look_around(engine: Engine, now: float) -> None:
    """Questions that no lease depends on; each may take until the next lease's end is to be told."""
    if engine.look_at <= now:
        engine.look_at, engine.looked = inf, True
        await look(engine, _until_next_end(engine, engine.runtime.now()))
    if engine.breaker is not None:
        await engine.breaker.look(engine, _until_next_end(engine, engine.runtime.now()))
    if engine.book is not None and engine.book.waits:
        await look_for_cycles(engine, engine.book, _until_next_end(engine, engine.runtime.now()))


def _put_back(engine: Engine, due: list[Tenure], leaving: list[Departure]) -> None:
    """Serve again what was in hand when something went wrong: it may be done by now, and twice does no harm."""
    soon = engine.runtime.now() + _LEAST_PATIENCE
    for tenure in due:
        if tenure.live:
            engine.schedule.discard(tenure)
            engine.schedule.add_once(tenure, soon)
    engine.departures.extend(leaving)
    engine.departing = 0


async def _renew(engine: Engine, due: list[Tenure], record: Call | None, pages: list[Page]) -> None:
    """Renew what is due; the session's record and the histories go along in the same write."""
    now = engine.runtime.now()
    batch: list[Tenure] = []
    for tenure in due:
        sure = tenure.state is LeaseState.HELD and now < tenure.valid_until
        if not sure and (not tenure.live or engine.expired(tenure, now)):
            continue
        if not tenure.options.renew and tenure.state is not LeaseState.SUSPECT:
            engine.replan(tenure)
        else:
            batch.append(tenure)
    if not batch and record is None and not pages:
        return
    groups, single = share(batch) if len(batch) > 1 and may_share(engine) else ([], batch)
    calls = [shared_call(group) for group in groups]
    calls += [_call(tenure) for tenure in single]
    if record is not None:
        calls.append(record)
    calls += [page.call for page in pages]
    patience = _patience(engine, batch, now)
    sent_at = engine.runtime.now()
    outcomes = await engine.runtime.call_many(calls, patience)
    _told(engine, record, pages, outcomes)
    alone: list[Tenure] = []
    for group, outcome in zip(groups, outcomes, strict=False):
        alone += await _shared(engine, group, outcome, sent_at)
    first, last = len(groups), len(groups) + len(single)
    await _settle(engine, single, calls[first:last], outcomes[first:last], sent_at)
    if alone:
        sent_at = engine.runtime.now()
        calls = [_call(tenure) for tenure in alone]
        outcomes = await engine.runtime.call_many(calls, _patience(engine, alone, sent_at))
        await _settle(engine, alone, calls, outcomes, sent_at)


def _patience(engine: Engine, batch: list[Tenure], now: float) -> float:
    patience = min(
        (min(t.options.request_timeout, t.valid_until - now) for t in batch), default=_RECORD_PATIENCE
    )
    return max(_LEAST_PATIENCE, min(patience, _until_next_end(engine, now)))


async def _shared(
    engine: Engine, group: list[Tenure], outcome: Reply | Fault, sent_at: float
) -> list[Tenure]:
    """Take the answer for a group into account; give those that are to be asked for by themselves."""
    each = each_of(group, outcome)
    known = [(tenure, one) for tenure, one in zip(group, each, strict=True) if one is not None]
    await _take(engine, [tenure for tenure, _ in known], [one for _, one in known], sent_at)
    return [tenure for tenure, one in zip(group, each, strict=True) if one is None and tenure.live]


async def _settle(
    engine: Engine, batch: list[Tenure], calls: list[Call], outcomes: list[Reply | Fault], sent_at: float
) -> None:
    """Take the answers into account, one for each."""
    if any(tenure.options.durable is not None for tenure in batch):
        await check_renewals(engine, batch, calls, outcomes, _patience(engine, batch, engine.runtime.now()))
    await _take(engine, batch, outcomes, sent_at)


async def _take(engine: Engine, batch: list[Tenure], outcomes: list[Reply | Fault], sent_at: float) -> None:
    rest = _confirmed(engine, batch, outcomes, sent_at)
    if any(type(outcome) is list and outcome[0] == b"U" for _, outcome in rest):
        await _ask_whether_taken(engine)
    for tenure, outcome in rest:
        if isinstance(outcome, Fault):
            _failed(engine, tenure, outcome)
        else:
            _answered(engine, tenure, outcome, sent_at)


async def _ask_whether_taken(engine: Engine) -> None:
    """Learn of leases that an operator took: to a renewal they look like any that the server does not know."""
    engine.take_away(engine.runtime.notices())
    if engine.book is not None:
        patience = min(_RECORD_PATIENCE, _until_next_end(engine, engine.runtime.now()))
        (outcome,) = await engine.runtime.call_many([engine.book.setup.calls.taken()], patience)
        if not isinstance(outcome, Fault):
            engine.take_away([bytes(tag).decode() for tag in outcome[3]])


def _call(tenure: Tenure) -> Call:
    options = tenure.options
    if options.renew and tenure.hold_limit is None and tenure.ttl == options.ttl:
        return tenure.primitive.renew(tenure.token, options.life_ms, options.ticket_ms, "")
    ticket_ttl = min(options.ticket_ttl or tenure.ttl, tenure.ttl)
    return tenure.primitive.renew(tenure.token, _life_ms(tenure), to_ms(ticket_ttl), "")


def _confirmed(
    engine: Engine, batch: list[Tenure], outcomes: list[Reply | Fault], sent_at: float
) -> list[tuple[Tenure, Reply | Fault]]:
    """Take all plain yeses into account in one step, for a hundred thousand leases are renewed here; give the rest."""
    plain: list[Tenure] = []
    rest: list[tuple[Tenure, Reply | Fault]] = []
    now, valid_until = engine.runtime.now(), validity_of(engine)
    with engine.guard:
        for tenure, outcome in zip(batch, outcomes, strict=True):
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


def _life_ms(tenure: Tenure) -> int:
    """What to ask for: one millisecond, which raises nothing, where a lease is only to be confirmed."""
    at_limit = tenure.hold_limit is not None and tenure.valid_until >= tenure.hold_limit
    return 1 if at_limit or not tenure.options.renew else to_ms(tenure.ttl) + tenure.options.delay_ms


def _until_next_end(engine: Engine, now: float) -> float:
    return max(_TOLD_WITHIN, engine.schedule.first_deadline() - now)


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
        level, "renewal of %r failed (%s); %.1f s of the lease are left", name, fault.text, tenure.valid_until - now,
        extra={"pawl_name": name, "pawl_fault": str(fault.kind)},
    )  # fmt: skip
    pause = full_jitter(
        tenure.failures, engine.runtime.random(), base=tenure.every / 16, cap=min(1.0, tenure.every)
    )
    if engine.schedule.add_once(tenure, min(now + max(pause, 0.005), tenure.valid_until)):
        engine.runtime.nudge()


def _leaving(engine: Engine, now: float) -> list[Departure]:
    taken: list[Departure] = []
    # The end of a close empties it from another thread.
    with suppress(IndexError):
        for _ in range(len(engine.departures)):
            departure = engine.departures.popleft()
            if departure.due <= now and len(taken) < _BATCH:
                taken.append(departure)
            else:
                engine.departures.append(departure)
    engine.departing = len(taken)
    return taken


async def _depart(engine: Engine, leaving: list[Departure]) -> None:
    patience = min(_DEPARTURE_PATIENCE, _until_next_end(engine, engine.runtime.now()))
    outcomes = await engine.runtime.call_many([d.call for d in leaving], patience)
    now = engine.runtime.now()
    for departure, outcome in zip(leaving, outcomes, strict=True):
        if not isinstance(outcome, Fault):
            engine.count("departed")
            continue
        departure.attempt += 1
        departure.due = now + full_jitter(departure.attempt, engine.runtime.random())
        # A refusal that cannot pass is the same next time, and the end of the client would wait for it.
        if now < departure.until and (passes(outcome.kind) or outcome.kind is FaultKind.OUT_OF_MEMORY):
            engine.departures.append(departure)
        else:
            engine.count("departure_given_up")
            log.warning("a token could not be left (%s); its ttl ends it", outcome.text)
    engine.departing = 0
