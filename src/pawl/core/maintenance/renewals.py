"""Renewals: in batches, and on time. What other duties have to send goes along in the same write.

A lease that is released while its renewal is in flight is left alone by the answer; an answer that comes past
``valid_until`` revives nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from pawl.core.keep.majority import renew_votes, renewal_patience
from pawl.core.keep.outbox import validity_of
from pawl.core.keep.renewal_groups import each_of, may_share, renewal_call, share, shared_call
from pawl.core.keep.replicas import check_renewals
from pawl.core.keep.tracking import heed_changes, track_held
from pawl.core.maintenance.duty import MaintenanceDuty, until_next_need
from pawl.core.protocol.backoff import full_jitter
from pawl.core.protocol.runtime import Fault, Reply
from pawl.core.protocol.validity import to_ms
from pawl.core.state.records import loss_from
from pawl.model import LeaseState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawl.core.keep.engine import Engine
    from pawl.core.maintenance.duty import DutyCall
    from pawl.core.protocol.runtime import Call
    from pawl.core.state.records import ServerLease

__all__ = ["KeyChanges", "renew_due"]

_Answer: TypeAlias = "tuple[ServerLease, Reply | Fault]"

log: logging.Logger = logging.getLogger("pawl.renewal")

_BATCH = 500
_LEAST_PATIENCE = 0.005
_RECORD_PATIENCE = 0.5


class KeyChanges(MaintenanceDuty):
    """Has the leases renewed at once of whose keys the server notified a change."""

    def begin(self, engine: Engine, now: float) -> None:
        if engine.leases.changes:
            heed_changes(engine, now)


async def renew_due(engine: Engine, now: float, along: Sequence[DutyCall]) -> bool:
    """Renew what is due, and send what goes along; False if there was nothing to send."""
    due = engine.leases.schedule.take_due(now, _BATCH)
    if not due and not along:
        return False
    try:
        await _renew(engine, due, along)
        await track_held(engine, due, until_next_need(engine, engine.runtime.now()))
    except BaseException:
        _put_back(engine, due)
        raise
    return True


def _put_back(engine: Engine, due: list[ServerLease]) -> None:
    """Serve again the leases that were in hand when something went wrong: twice does no harm."""
    soon = engine.runtime.now() + _LEAST_PATIENCE
    for server_lease in due:
        if server_lease.live:
            engine.leases.schedule.discard(server_lease)
            engine.leases.schedule.add_once(server_lease, soon)


async def _renew(engine: Engine, due: list[ServerLease], along: Sequence[DutyCall]) -> None:
    batch = _still_held(engine, due, engine.runtime.now())
    if not batch and not along:
        return
    groups, single = share(batch) if len(batch) > 1 and may_share(engine) else ([], batch)
    calls = [shared_call(group) for group in groups]
    calls += [renewal_call(server_lease) for server_lease in single]
    calls += [one.call for one in along]
    if engine.relief is not None and any(server_lease.options.renew is True for server_lease in batch):
        engine.relief.rouse()
    sent_at = engine.runtime.now()
    patience = _patience(engine, batch, sent_at)
    if engine.quorum is None:
        outcomes = await engine.runtime.call_many(calls, patience)
    else:
        outcomes = await renew_votes(engine, batch, calls, patience)
    first, last = len(groups), len(groups) + len(single)
    for one, outcome in zip(along, outcomes[last:], strict=True):
        one.answered(outcome)
    asked = list(zip(single, calls[first:last], outcomes[first:last], strict=True))
    answers: list[_Answer] = [(each[0], each[2]) for each in asked if each[0].options.durable is None]
    durable = [each for each in asked if each[0].options.durable is not None]
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
                and server_lease.rhythm.hold_limit is None
                and options.renew
                and server_lease.rhythm.ttl == options.ttl
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


def _answered(engine: Engine, server_lease: ServerLease, reply: Reply, sent_at: float) -> None:
    if not server_lease.live:
        return
    if reply[0] == b"H":
        if engine.applies(server_lease, reply[3], to_ms(server_lease.rhythm.ttl), sent_at):
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
        base=server_lease.rhythm.every / 16,
        cap=min(1.0, server_lease.rhythm.every),
    )
    if engine.leases.schedule.add_once(server_lease, min(now + max(pause, 0.005), server_lease.valid_until)):
        engine.runtime.nudge()
