"""Tokens that were given up: each is left on the server, tried again until it answers or no lease can live."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from pawl.core.keep.majority import tell_again
from pawl.core.maintenance.duty import MaintenanceDuty, until_next_need
from pawl.core.protocol.backoff import full_jitter
from pawl.core.protocol.faults import passes
from pawl.core.protocol.runtime import Fault, FaultKind
from pawl.core.state.client import OutboxEntry

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine

__all__ = ["GivenUpTokens"]

_BATCH = 500
_PATIENCE = 1.0

log: logging.Logger = logging.getLogger("pawl.renewal")


class GivenUpTokens(MaintenanceDuty):
    """Sends what lies in the outbox."""

    async def ask(self, engine: Engine, now: float) -> bool:
        # A copy, made in one step: other threads add and remove meanwhile.
        due = [entry for entry in tuple(engine.outbox.entries) if entry.due <= now][:_BATCH]
        if not due:
            return False
        most = until_next_need(engine, engine.runtime.now())
        if engine.quorum is None:
            await _send(engine, [entry for entry in due if isinstance(entry, OutboxEntry)], most)
        else:
            await tell_again(engine, due, most)
        return True

    def sleep_until(self, engine: Engine, now: float) -> float:
        return min((entry.due for entry in tuple(engine.outbox.entries)), default=inf)


async def _send(engine: Engine, entries: list[OutboxEntry], most: float) -> None:
    outcomes = await engine.runtime.call_many([entry.call for entry in entries], min(_PATIENCE, most))
    now = engine.runtime.now()
    for entry, outcome in zip(entries, outcomes, strict=True):
        if not isinstance(outcome, Fault):
            engine.outbox.entries.pop(entry, None)
            engine.count("departed")
            continue
        entry.attempt += 1
        entry.due = now + full_jitter(entry.attempt, engine.runtime.random())
        # A refusal that cannot pass is the same next time, and the end of the client would wait for it.
        if now >= entry.until or not (passes(outcome.kind) or outcome.kind is FaultKind.OUT_OF_MEMORY):
            engine.outbox.entries.pop(entry, None)
            engine.count("departure_given_up")
            log.warning("a lease could not be released (%s); it expires by its TTL", outcome.text)
