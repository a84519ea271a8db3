"""Renewals: in batches, and on time.

A lease that is released while its renewal is in flight is left alone by the answer; an answer that comes past
``valid_until`` revives nothing.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pawlock.core.keep.replicas import renew_with_replicas
from pawlock.core.maintenance.groups import each_of, may_share, renewal_call, share, shared_call
from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Fault
from pawlock.core.retry import note_failure
from pawlock.core.state.records import loss_from
from pawlock.model import LeaseState, LossReason

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine, Renewed
    from pawlock.core.state.records import ServerLease

__all__ = ["renew_due"]

_Answer: TypeAlias = "tuple[ServerLease, Outcome | Fault]"

log: logging.Logger = logging.getLogger("pawlock.renewal")

_BATCH = 500
_LEAST_PATIENCE = 0.005
_RECORD_PATIENCE = 0.5


async def renew_due(engine: Engine, now: float) -> None:
    """Renew what is due."""
    due = engine.leases.schedule.take_due(now, _BATCH)
    if not due:
        return
    try:
        await _renew(engine, due)
    except BaseException:
        _put_back(engine, due)
        raise


def _put_back(engine: Engine, due: list[ServerLease]) -> None:
    """Serve again the leases that were in hand when something went wrong: twice does no harm."""
    soon = engine.background.now() + _LEAST_PATIENCE
    for server_lease in due:
        if server_lease.live:
            engine.leases.schedule.discard(server_lease)
            engine.leases.schedule.add_once(server_lease, soon)


async def _renew(engine: Engine, due: list[ServerLease]) -> None:
    background = engine.background
    batch = _still_held(engine, due, background.now())
    if not batch:
        return
    plain = [server_lease for server_lease in batch if not server_lease.options.replicas]
    replicated = [server_lease for server_lease in batch if server_lease.options.replicas]
    groups, single = share(plain) if len(plain) > 1 and may_share(engine) else ([], plain)
    calls = [shared_call(group) for group in groups]
    calls += [renewal_call(server_lease) for server_lease in single]
    sent_at = background.now()
    patience = _patience(engine, batch, sent_at)
    outcomes = await background.call_many(calls, patience) if calls else []
    answers: list[_Answer] = list(zip(single, outcomes[len(groups) :], strict=True))
    alone: list[ServerLease] = []
    for group, outcome in zip(groups, outcomes, strict=False):
        for server_lease, answer in zip(group, each_of(group, outcome), strict=True):
            if answer is not None:
                answers.append((server_lease, answer))
            elif server_lease.live:
                alone.append(server_lease)
    # All that is known, at once: no lease waits for what follows from the answer for another.
    refused = _take(engine, answers, sent_at)
    await _ask_further(engine, alone, replicated, refused)


def _still_held(engine: Engine, due: list[ServerLease], now: float) -> list[ServerLease]:
    """Those that are to be renewed; the ends of the others are reported."""
    batch: list[ServerLease] = []
    for server_lease in due:
        sure = server_lease.state is LeaseState.HELD and now < server_lease.valid_until
        if not sure and (not server_lease.live or engine.expired(server_lease, now)):
            continue
        if server_lease.is_dropped:
            engine.outbox.abandoned.append(server_lease)
            continue
        renewed = server_lease.options.renew or server_lease.state is LeaseState.SUSPECT
        if not renewed:
            engine.replan(server_lease)
        else:
            batch.append(server_lease)
    return batch


async def _ask_further(
    engine: Engine,
    alone: list[ServerLease],
    replicated: list[ServerLease],
    refused: list[tuple[ServerLease, Outcome]],
) -> None:
    """What needs another question, the most urgent first.

    Args:
        engine: The client's engine.
        alone: Leases that are to be asked for by themselves.
        replicated: Leases of which replicas are to have the renewal.
        refused: Leases that the server does not know.
    """
    background = engine.background
    if alone:
        asked_at = background.now()
        calls = [renewal_call(server_lease) for server_lease in alone]
        outcomes = await background.call_many(calls, _patience(engine, alone, asked_at))
        refused += _take(engine, list(zip(alone, outcomes, strict=True)), asked_at)
    if replicated:
        asked_at = background.now()
        calls = [renewal_call(server_lease) for server_lease in replicated]
        patience = _patience(engine, replicated, asked_at)
        outcomes = await renew_with_replicas(background, replicated, calls, patience)
        refused += _take(engine, list(zip(replicated, outcomes, strict=True)), asked_at)
    if refused:
        reasons = await _loss_reasons(engine, refused)
        for (server_lease, _), reason in zip(refused, reasons, strict=True):
            _refused(engine, server_lease, reason)


async def _loss_reasons(engine: Engine, refused: list[tuple[ServerLease, Outcome]]) -> list[LossReason]:
    """Why the leases were lost that the server does not know any more: an operator leaves a mark that leaving finds."""
    reasons = [loss_from(outcome) for _, outcome in refused]
    calls = [server_lease.primitive.leave(server_lease.token, TOMB_MS, 0) for server_lease, _ in refused]
    patience = min(_RECORD_PATIENCE, engine.leases.schedule.spare(engine.background.now()))
    for index, outcome in enumerate(await engine.background.call_many(calls, patience)):
        if getattr(outcome, "forced", False):
            reasons[index] = LossReason.TAKEN
    return reasons


def _patience(engine: Engine, batch: list[ServerLease], now: float) -> float:
    patience = min(min(t.options.request_timeout, t.valid_until - now) for t in batch)
    return max(_LEAST_PATIENCE, min(patience, engine.leases.schedule.spare(now)))


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
    _renewed(engine, renewed, sent_at)
    return refused


def _renewed(engine: Engine, renewed: list[Renewed], sent_at: float) -> None:
    """Have the leases renewed again in their rhythm, but for those that ended meanwhile."""
    late = set(engine.apply_renewals(renewed, sent_at))
    on_time = [one[0] for one in renewed if one[0] not in late] if late else [one[0] for one in renewed]
    plain = [one for one in on_time if one.rhythm is one.options.renewed]
    engine.leases.schedule.add_again(plain, engine.background.now())
    for server_lease in on_time if len(plain) < len(on_time) else ():
        if server_lease.rhythm is not server_lease.options.renewed:
            engine.replan(server_lease)
    engine.reports.counters["renewed"] += len(on_time)
    if engine.reports.observer is not None:
        for _ in on_time:
            engine.reports.observer.counted("renewed")


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
    pause = full_jitter(
        server_lease.failures,
        engine.background.random(),
        base=server_lease.rhythm.every / 16,
        cap=min(1.0, server_lease.rhythm.every),
    )
    engine.leases.schedule.add_once(server_lease, min(now + max(pause, 0.005), server_lease.valid_until))
