"""What one thread of a client does in the background, in both APIs, over connections of its own.

It renews leases, sends what is in the outbox until it is answered, and ends what finalisers left of objects that users
dropped. Users' functions are called, and waiters of the client woken, where the client's users run
(``Runtime.run_in_owner``): an event loop may be blocked meanwhile, and nothing here waits for it.

Renewals go in batches: several in one script, whose keys must all lie on one server, and in a cluster in one slot, so
there each lease is renewed by itself. A lease that is released while its renewal is in flight is left alone by the
answer; an answer that comes past ``valid_until`` revives nothing.
"""

from __future__ import annotations

import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeAlias, cast

from pawlock.core.faults import is_transient
from pawlock.core.lease import HeldLease, abandon
from pawlock.core.outcomes import Granted, Outcome
from pawlock.core.records import Schedule, loss_reasons
from pawlock.core.replicas import renew_with_replicas
from pawlock.core.retry import full_jitter, note_failure
from pawlock.core.runtime import Fault, FaultKind, Request
from pawlock.core.server_check import look
from pawlock.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawlock.core.engine import Engine, Renewed
    from pawlock.core.primitive import TogetherPrimitive
    from pawlock.core.records import Hold

__all__ = ["forget_finalised", "maintain", "renew_due", "send_due"]


_LOOK_AGAIN = 1.0
"""Seconds that the loop sleeps at most while anything is to come. The timers of a runtime stop while the machine is
suspended, and validity does not: an expiry during the suspension is reported within this time after the resume. So soon
it is noticed, too, that an event loop was closed."""


async def maintain(engine: Engine) -> None:
    """Serve until the client closes, or nobody can use it any more."""
    engine.maintenance_runs = True
    try:
        await _serve(engine)
    finally:
        engine.maintenance_runs = False


async def _serve(engine: Engine) -> None:
    background, watcher, heal_at = engine.background, engine.reports.watcher, -inf
    while True:
        over = engine.client() is None or engine.runtime.gone()
        if over:
            # Nobody holds anything any more; what was given up before is still to be sent.
            engine.schedule = Schedule(engine.guard)
            if not engine.outbox:
                background.abandon()
                return
        forget_finalised(engine)
        await renew_due(engine, background.now())
        await send_due(engine, background.now())
        if engine.health.look_at <= background.now():
            # Once, some time after the first lease: whether the server's settings break a promise.
            engine.health.look_at, engine.health.looked = inf, True
            await look(engine, engine.schedule.spare(background.now()))
        until = inf
        if watcher is not None:
            await watcher.ask(engine, background.now())
            until = watcher.sleep_until(engine, background.now())
        # What the finalisers appended meanwhile is seen here, or they nudge.
        now = background.now()
        # And where the last of the outbox went just now, the end above.
        if engine.abandoned or engine.dropped_levels or (over and not engine.outbox):
            until = now
        dues = [entry.due for entry in tuple(engine.outbox)]
        until = min(until, engine.health.look_at, engine.schedule.sleep_until(now), *dues)
        # In this order: a wait that begins in between wakes it.
        engine.awake = False
        engine.awake = until < inf or bool(engine.waits)
        if engine.waits and now >= heal_at:
            heal_at = now + _LOOK_AGAIN
            engine.runtime.run_in_owner(engine.heal)
        # What is due already is served next: then it does not sleep.
        if not await background.idle(min(until, background.now() + _LOOK_AGAIN) if engine.awake else None):
            # Where the close was broken off, for instance by the end of its loop, there is something left.
            await send_due(engine, background.now())
            return


log: logging.Logger = logging.getLogger("pawlock.renewal")
_lease_log: logging.Logger = logging.getLogger("pawlock.lease")

_BATCH = 500
_PATIENCE = 1.0


async def send_due(engine: Engine, now: float) -> None:
    """Send what is due, once."""
    # A copy, made in one step: other threads add and remove meanwhile.
    due = [entry for entry in tuple(engine.outbox) if entry.due <= now][:_BATCH]
    if not due:
        return
    background, patience = engine.background, min(engine.within(_PATIENCE), engine.schedule.spare(now))
    outcomes = await background.call_many([entry.call for entry in due], patience)
    now = background.now()
    for entry, outcome in zip(due, outcomes, strict=True):
        if not isinstance(outcome, Fault):
            engine.note_answer()
            engine.outbox.pop(entry, None)
            engine.count("departed")
            continue
        entry.attempt += 1
        entry.due = now + full_jitter(entry.attempt, background.random())
        # A refusal that cannot pass is the same next time, and the end of the client would wait for it.
        if now >= entry.until or not (is_transient(outcome.kind) or outcome.kind is FaultKind.OUT_OF_MEMORY):
            engine.outbox.pop(entry, None)
            engine.count("departure_given_up")
            text = "a lease could not be released (%s); it expires by its TTL"
            engine.runtime.run_in_owner(partial(log.warning, text, outcome.text))


def forget_finalised(engine: Engine) -> None:
    """End what finalisers appended to the outbox: where the others wait who go on then."""
    run_in_owner = engine.runtime.run_in_owner
    while engine.dropped_levels:
        lease = engine.dropped_levels.popleft()
        if isinstance(lease, HeldLease):
            run_in_owner(partial(abandon, lease))
    while engine.abandoned:
        run_in_owner(partial(_forget, engine, engine.abandoned.popleft()))


def _forget(engine: Engine, hold: Hold) -> None:
    # It goes on until it runs out, and is nobody's until then.
    who, hold.who = hold.who, None
    if hold.epoch == engine.epoch and engine.drop(hold, who):
        engine.count("abandoned")
        engine.count_end(hold, "abandoned")
        name = hold.primitive.name
        text = "a lease of %r was garbage-collected without release; it expires by its TTL"
        _lease_log.warning(text, name, extra={"pawlock_name": name})


_Answer: TypeAlias = "tuple[Hold, Outcome | Fault]"
_Refused: TypeAlias = "tuple[Hold, Outcome]"


_TOGETHER = 16
"""So many in one script: it stops the server for no longer than a few single ones do."""

_LEAST_PATIENCE = 0.005
_RECORD_PATIENCE = 0.5
_OF_ALL = {
    FaultKind.UNREACHABLE,
    FaultKind.UNANSWERED,
    FaultKind.NOT_READY,
    FaultKind.READ_ONLY,
    FaultKind.CLOSED,
}
"""Faults that say nothing of any one name."""


async def renew_due(engine: Engine, now: float) -> None:
    """Renew what is due."""
    due = engine.schedule.take_due(now, _BATCH)
    try:
        await _renew(engine, _still_held(engine, due, now))
    except BaseException:
        # Something went wrong: what was in hand is served again, and twice does no harm.
        soon = engine.background.now() + _LEAST_PATIENCE
        with engine.guard:
            for hold in due:
                if hold.live:
                    engine.schedule.discard(hold)
                    engine.schedule.add_once(hold, soon)
        raise


def _still_held(engine: Engine, due: list[Hold], now: float) -> list[Hold]:
    """Those that are to be renewed; the ends of the others are reported."""
    batch: list[Hold] = []
    for hold in due:
        sure = hold.state is LeaseState.HELD and now < hold.valid_until
        if not sure and (not hold.live or engine.expired(hold, now)):
            continue
        if hold.is_dropped:
            engine.abandoned.append(hold)
        elif hold.options.renew or hold.state is LeaseState.SUSPECT:
            batch.append(hold)
        else:
            engine.replan(hold)
    return batch


async def _renew(engine: Engine, batch: list[Hold]) -> None:
    # All that is known, at once: no lease waits for what follows from the answer for another.
    refused = await _ask(engine, _grouped(engine, [one for one in batch if not one.options.replicas]), batch)
    if replicated := [one for one in batch if one.options.replicas]:
        asked_at = engine.background.now()
        calls = [_call([one]) for one in replicated]
        patience = _patience(engine, replicated, asked_at)
        outcomes = await renew_with_replicas(engine.background, replicated, calls, patience)
        refused += _take(engine, list(zip(replicated, outcomes, strict=True)), asked_at)
    if refused:
        most = min(engine.within(_RECORD_PATIENCE), engine.schedule.spare(engine.background.now()))
        reasons = await loss_reasons(engine.background, refused, most)
        for (hold, _), reason in zip(refused, reasons, strict=True):
            _refused(engine, hold, reason)


def _grouped(engine: Engine, batch: list[Hold]) -> list[list[Hold]]:
    """Divide what is due into groups, each for one call."""
    together: list[Hold] = []
    groups: list[list[Hold]] = []
    may_share = engine.reports.observer is None and not engine.background.several
    for one in batch:
        plain = one.state is LeaseState.HELD and one.rhythm is one.options.renewed
        if may_share and plain and getattr(one.primitive, "renews_together", False):
            together.append(one)
        else:
            groups.append([one])
    return [together[at : at + _TOGETHER] for at in range(0, len(together), _TOGETHER)] + groups


def _call(group: list[Hold]) -> Request:
    """The call that renews a group."""
    first = group[0]
    if len(group) > 1:
        holders = [(one.primitive, one.token, one.options.ttl_ms) for one in group]
        return cast("TogetherPrimitive", first.primitive).renew_all(holders)
    # What is only to be confirmed is asked for one millisecond, which raises nothing.
    ttl_ms = 1 if first.at_limit or not first.options.renew else first.rhythm.ttl_ms
    ticket_ms = min(first.options.ticket_ms, first.rhythm.ttl_ms)
    return first.primitive.renew(first.token, ttl_ms, ticket_ms, "")


async def _ask(engine: Engine, groups: list[list[Hold]], batch: list[Hold]) -> list[_Refused]:
    """Ask for each group, none of the batch waiting too long; give the leases that the server does not know."""
    if not groups:
        return []
    sent_at = engine.background.now()
    patience = _patience(engine, batch, sent_at)
    outcomes = await engine.background.call_many([_call(group) for group in groups], patience)
    answers: list[_Answer] = []
    alone: list[list[Hold]] = []
    for group, outcome in zip(groups, outcomes, strict=True):
        for hold, answer in zip(group, _each_of(group, outcome), strict=True):
            if answer is not None:
                answers.append((hold, answer))
            elif hold.live:
                alone.append([hold])
    refused = _take(engine, answers, sent_at)
    return refused + await _ask(engine, alone, batch)


def _each_of(group: list[Hold], outcome: Outcome | Fault) -> list[Outcome | Fault | None]:
    """What the answer for a group says of each; None: it is to be asked for by itself."""
    if len(group) == 1:
        return [outcome]
    if isinstance(outcome, Fault):
        return [outcome if outcome.kind in _OF_ALL else None] * len(group)
    return [Granted(0, left_ms, outcome.clock) if left_ms > 0 else None for left_ms in outcome.lefts_ms]


def _patience(engine: Engine, batch: list[Hold], now: float) -> float:
    # Where one of several servers hangs, half of the time is left for what the others answered, or for one more try.
    # They have no tickets, of which two tries fit into one's life.
    several = engine.background.several
    usual = 1.0 if several else min(one.options.answer_within for one in batch)
    patience = min(usual, (min(one.valid_until for one in batch) - now) / (1 + several))
    return max(_LEAST_PATIENCE, min(patience, engine.schedule.spare(now)))


def _take(engine: Engine, answers: list[_Answer], sent_at: float) -> list[_Refused]:
    """Take answers into account; give the leases that the server does not know, which need another question."""
    renewed: list[Renewed] = []
    refused: list[_Refused] = []
    for hold, outcome in answers:
        if isinstance(outcome, Fault):
            note_failure(engine, outcome, sent_at)
            _failed(engine, hold, outcome)
        elif isinstance(outcome, Granted):
            options, rhythm = hold.options, hold.rhythm
            asked_ms = options.ttl_ms if rhythm is options.renewed else rhythm.ttl_ms
            renewed.append((hold, outcome.left_ms, asked_ms))
        elif hold.live:
            # Of one that was released meanwhile the renewal came behind the release.
            refused.append((hold, outcome))
    if renewed or refused:
        engine.note_answer()
    late = set(engine.apply_renewals(renewed, sent_at))
    on_time = [hold for hold, _, _ in renewed if hold not in late]
    plain = [one for one in on_time if one.rhythm is one.options.renewed]
    engine.schedule.add_again(plain, engine.background.now())
    for hold in on_time:
        engine.count("renewed")
        if hold.rhythm is not hold.options.renewed:
            engine.replan(hold)
    return refused


def _refused(engine: Engine, hold: Hold, reason: LossReason) -> None:
    """The server does not know the holder (any more): somebody took it, or the server lost it."""
    if hold.live and not engine.expired(hold, engine.background.now()):
        engine.lose(hold, reason)


def _failed(engine: Engine, hold: Hold, fault: Fault) -> None:
    now = engine.background.now()
    if engine.expired(hold, now) or not engine.suspect(hold):
        return
    name, hold.trouble = hold.primitive.name, fault.text
    level = logging.WARNING if hold.failures == 1 else logging.DEBUG
    # Not here: the loop may be blocked in a handler of the log, which is locked then.
    engine.runtime.run_in_owner(partial(
        log.log, level, "renewal of %r failed (%s); the lease expires in %.1f s",
        name, fault.text, hold.valid_until - now,
        extra={"pawlock_name": name, "pawlock_fault": str(fault.kind)},
    ))  # fmt: skip
    every, left = hold.rhythm.every, hold.valid_until - now
    # Within half of what is left: where one master was away, or one more reply is lost, another try is in time.
    cap = min(1.0, every, left / 2)
    pause = full_jitter(hold.failures, engine.background.random(), base=every / 16, cap=cap)
    with engine.guard:
        engine.schedule.add_once(hold, now + min(max(pause, _LEAST_PATIENCE), left))
