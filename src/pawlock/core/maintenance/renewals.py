"""Renewals: in batches, and on time.

A lease that is released while its renewal is in flight is left alone by the answer; an answer that comes past
``valid_until`` revives nothing.

Several go together in one script, whose keys must all lie on one server, and in a cluster in one slot: there each lease
is renewed by itself. Whatever is more than raising a life also is.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from pawlock.core.keep.replicas import renew_with_replicas
from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.retry import note_failure
from pawlock.core.state.records import loss_from
from pawlock.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine, Renewed
    from pawlock.core.protocol.primitive import TogetherPrimitive
    from pawlock.core.state.records import ServerLease

__all__ = ["renew_due"]

_Answer: TypeAlias = "tuple[ServerLease, Outcome | Fault]"

log: logging.Logger = logging.getLogger("pawlock.renewal")

_BATCH = 500
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
        for server_lease in due:
            if server_lease.live:
                engine.schedule.discard(server_lease)
                engine.schedule.add_once(server_lease, soon)
        raise


def _still_held(engine: Engine, due: list[ServerLease], now: float) -> list[ServerLease]:
    """Those that are to be renewed; the ends of the others are reported."""
    batch: list[ServerLease] = []
    for server_lease in due:
        sure = server_lease.state is LeaseState.HELD and now < server_lease.valid_until
        if not sure and (not server_lease.live or engine.expired(server_lease, now)):
            continue
        if server_lease.is_dropped:
            engine.abandoned.append(server_lease)
        elif server_lease.options.renew or server_lease.state is LeaseState.SUSPECT:
            batch.append(server_lease)
        else:
            engine.replan(server_lease)
    return batch


async def _renew(engine: Engine, batch: list[ServerLease]) -> None:
    # All that is known, at once: no lease waits for what follows from the answer for another.
    refused = await _ask(engine, _grouped(engine, [one for one in batch if not one.options.replicas]))
    if replicated := [one for one in batch if one.options.replicas]:
        asked_at = engine.background.now()
        calls = [_call([one]) for one in replicated]
        patience = _patience(engine, replicated, asked_at)
        outcomes = await renew_with_replicas(engine.background, replicated, calls, patience)
        refused += _take(engine, list(zip(replicated, outcomes, strict=True)), asked_at)
    if refused:
        reasons = await _loss_reasons(engine, refused)
        for (server_lease, _), reason in zip(refused, reasons, strict=True):
            _refused(engine, server_lease, reason)


def _grouped(engine: Engine, batch: list[ServerLease]) -> list[list[ServerLease]]:
    """Divide what is due into groups, each for one call."""
    together: list[ServerLease] = []
    groups: list[list[ServerLease]] = []
    may_share = engine.reports.observer is None and not engine.background.several
    for one in batch:
        plain = one.state is LeaseState.HELD and one.rhythm is one.options.renewed
        if may_share and plain and getattr(one.primitive, "renews_together", False):
            together.append(one)
        else:
            groups.append([one])
    return [together[at : at + _TOGETHER] for at in range(0, len(together), _TOGETHER)] + groups


def _call(group: list[ServerLease]) -> Request:
    """The call that renews a group."""
    first = group[0]
    if len(group) > 1:
        holders = [(one.primitive, one.token, one.options.ttl_ms) for one in group]
        return cast("TogetherPrimitive", first.primitive).renew_all(holders)
    # What is only to be confirmed is asked for one millisecond, which raises nothing.
    ttl_ms = 1 if first.at_limit or not first.options.renew else first.rhythm.ttl_ms
    ticket_ms = min(first.options.ticket_ms, first.rhythm.ttl_ms)
    return first.primitive.renew(first.token, ttl_ms, ticket_ms, "")


async def _ask(engine: Engine, groups: list[list[ServerLease]]) -> list[tuple[ServerLease, Outcome]]:
    """Ask for each group; give the leases that the server does not know."""
    if not groups:
        return []
    sent_at = engine.background.now()
    patience = _patience(engine, [one for group in groups for one in group], sent_at)
    outcomes = await engine.background.call_many([_call(group) for group in groups], patience)
    answers: list[_Answer] = []
    alone: list[list[ServerLease]] = []
    for group, outcome in zip(groups, outcomes, strict=True):
        for server_lease, answer in zip(group, _each_of(group, outcome), strict=True):
            if answer is not None:
                answers.append((server_lease, answer))
            elif server_lease.live:
                alone.append([server_lease])
    refused = _take(engine, answers, sent_at)
    return refused + await _ask(engine, alone)


def _each_of(group: list[ServerLease], outcome: Outcome | Fault) -> list[Outcome | Fault | None]:
    """What the answer for a group says of each; None: it is to be asked for by itself."""
    if len(group) == 1:
        return [outcome]
    if isinstance(outcome, Fault):
        return [outcome if outcome.kind in _OF_ALL else None] * len(group)
    return [Granted(0, left_ms, outcome.clock) if left_ms > 0 else None for left_ms in outcome.lefts_ms]


async def _loss_reasons(engine: Engine, refused: list[tuple[ServerLease, Outcome]]) -> list[LossReason]:
    """Why the leases were lost that the server does not know any more: an operator leaves a mark that leaving finds."""
    reasons = [loss_from(outcome) for _, outcome in refused]
    calls = [server_lease.primitive.leave(server_lease.token, TOMB_MS, 0) for server_lease, _ in refused]
    patience = min(_RECORD_PATIENCE, engine.schedule.spare(engine.background.now()))
    for index, outcome in enumerate(await engine.background.call_many(calls, patience)):
        if getattr(outcome, "forced", False):
            reasons[index] = LossReason.TAKEN
    return reasons


def _patience(engine: Engine, batch: list[ServerLease], now: float) -> float:
    patience = min(min(t.options.request_timeout, t.valid_until - now) for t in batch)
    return max(_LEAST_PATIENCE, min(patience, engine.schedule.spare(now)))


def _take(engine: Engine, answers: list[_Answer], sent_at: float) -> list[tuple[ServerLease, Outcome]]:
    """Take answers into account; give the leases that the server does not know, which need another question."""
    renewed: list[Renewed] = []
    refused: list[tuple[ServerLease, Outcome]] = []
    for server_lease, outcome in answers:
        if isinstance(outcome, Fault):
            note_failure(engine, outcome, sent_at)
            _failed(engine, server_lease, outcome)
        elif isinstance(outcome, Granted):
            options, rhythm = server_lease.options, server_lease.rhythm
            asked_ms = options.ttl_ms if rhythm is options.renewed else rhythm.ttl_ms
            renewed.append((server_lease, outcome.left_ms, asked_ms))
        elif server_lease.live:
            # Of one that was released meanwhile the renewal came behind the release.
            refused.append((server_lease, outcome))
    if renewed or refused:
        engine.note_answer()
    late = set(engine.apply_renewals(renewed, sent_at))
    on_time = [server_lease for server_lease, _, _ in renewed if server_lease not in late]
    plain = [one for one in on_time if one.rhythm is one.options.renewed]
    engine.schedule.add_again(plain, engine.background.now())
    for server_lease in on_time:
        engine.count("renewed")
        if server_lease.rhythm is not server_lease.options.renewed:
            engine.replan(server_lease)
    return refused


def _refused(engine: Engine, server_lease: ServerLease, reason: LossReason) -> None:
    """The server does not know the holder (any more): somebody took it, or the server lost it."""
    if server_lease.live and not engine.expired(server_lease, engine.background.now()):
        engine.lose(server_lease, reason)


def _failed(engine: Engine, server_lease: ServerLease, fault: Fault) -> None:
    now = engine.background.now()
    if engine.expired(server_lease, now) or not engine.suspect(server_lease):
        return
    name = server_lease.primitive.name
    level = logging.WARNING if server_lease.failures == 1 else logging.DEBUG
    # Not here: the loop may be blocked in a handler of the log, which is locked then.
    engine.runtime.run_in_owner(partial(
        log.log, level, "renewal of %r failed (%s); the lease expires in %.1f s",
        name, fault.text, server_lease.valid_until - now,
        extra={"pawlock_name": name, "pawlock_fault": str(fault.kind)},
    ))  # fmt: skip
    every = server_lease.rhythm.every
    pause = full_jitter(
        server_lease.failures, engine.background.random(), base=every / 16, cap=min(1.0, every)
    )
    soon = now + max(pause, _LEAST_PATIENCE)
    engine.schedule.add_once(server_lease, min(soon, server_lease.valid_until))
