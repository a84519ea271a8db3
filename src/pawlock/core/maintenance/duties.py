"""What is done in the background besides renewals: each duty is a class, and has its place in ``loop.DUTIES``."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, cast

from pawlock.core.keep.server_check import look
from pawlock.core.maintenance.duty import MaintenanceDuty, until_next_need
from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.faults import is_transient
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.release.release import abandon

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.lease.record import HeldLease
    from pawlock.core.state.client import OutboxEntry
    from pawlock.core.state.records import ServerLease

__all__ = [
    "Abandoned",
    "GivenUpTokens",
    "ServerSettings",
]

log: logging.Logger = logging.getLogger("pawlock.renewal")
log_lease: logging.Logger = logging.getLogger("pawlock.lease")

_BATCH = 500
_PATIENCE = 1.0


class Abandoned(MaintenanceDuty):
    """Stops renewing leases whose objects are gone; they run out."""

    def begin(self, engine: Engine, now: float) -> None:
        while engine.outbox.levels:
            abandon(cast("HeldLease", engine.outbox.levels.popleft()))
        while engine.outbox.abandoned:
            _forget(engine, engine.outbox.abandoned.popleft())

    def sleep_until(self, engine: Engine, now: float) -> float:
        return now if engine.outbox.abandoned or engine.outbox.levels else inf


def _forget(engine: Engine, server_lease: ServerLease) -> None:
    # It goes on until it runs out, and is nobody's until then.
    who, server_lease.owner.who = server_lease.owner.who, None
    engine.forget_holder(server_lease, who)
    if server_lease.live and server_lease.owner.epoch == engine.epoch:
        engine.end(server_lease)
        engine.count("abandoned")
        engine.count_end(server_lease, "abandoned")
        engine.detach_local_queue(server_lease)
        name = server_lease.primitive.name
        log_lease.warning(
            "a lease of %r was garbage-collected without release; it expires by its TTL",
            name, extra={"pawlock_name": name},
        )  # fmt: skip


class GivenUpTokens(MaintenanceDuty):
    """Sends what is in the outbox."""

    async def ask(self, engine: Engine, now: float) -> None:
        # A copy, made in one step: other threads add and remove meanwhile.
        due = [entry for entry in tuple(engine.outbox.entries) if entry.due <= now][:_BATCH]
        if not due:
            return
        most = until_next_need(engine)
        await _send(engine, due, most)

    def sleep_until(self, engine: Engine, now: float) -> float:
        return min((entry.due for entry in tuple(engine.outbox.entries)), default=inf)


async def _send(engine: Engine, entries: list[OutboxEntry], most: float) -> None:
    outcomes = await engine.runtime.call_many([entry.call for entry in entries], min(_PATIENCE, most))
    now = engine.runtime.now()
    for entry, outcome in zip(entries, outcomes, strict=True):
        if not isinstance(outcome, Fault):
            engine.note_answer()
            engine.outbox.entries.pop(entry, None)
            engine.count("departed")
            continue
        entry.attempt += 1
        entry.due = now + full_jitter(entry.attempt, engine.runtime.random())
        # A refusal that cannot pass is the same next time, and the end of the client would wait for it.
        if now >= entry.until or not (is_transient(outcome.kind) or outcome.kind is FaultKind.OUT_OF_MEMORY):
            engine.outbox.entries.pop(entry, None)
            engine.count("departure_given_up")
            log.warning("a lease could not be released (%s); it expires by its TTL", outcome.text)


class ServerSettings(MaintenanceDuty):
    """Looks once, some time after the first lease, whether the server's settings break a promise."""

    async def ask(self, engine: Engine, now: float) -> None:
        if engine.health.look_at <= now:
            engine.health.look_at, engine.health.looked = inf, True
            await look(engine, until_next_need(engine))

    def sleep_until(self, engine: Engine, now: float) -> float:
        return engine.health.look_at
