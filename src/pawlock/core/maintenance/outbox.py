"""Sends what is in the outbox: tokens to be left, and other calls, until the server has answered."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.faults import is_transient
from pawlock.core.protocol.runtime import Fault, FaultKind

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine

__all__ = ["send_due"]

log: logging.Logger = logging.getLogger("pawlock.renewal")

_BATCH = 500
_PATIENCE = 1.0


async def send_due(engine: Engine, now: float) -> None:
    """Send what is due, once."""
    # A copy, made in one step: other threads add and remove meanwhile.
    due = [entry for entry in tuple(engine.outbox.entries) if entry.due <= now][:_BATCH]
    if not due:
        return
    background, patience = engine.background, min(_PATIENCE, engine.leases.schedule.spare(now))
    outcomes = await background.call_many([entry.call for entry in due], patience)
    now = background.now()
    for entry, outcome in zip(due, outcomes, strict=True):
        if not isinstance(outcome, Fault):
            engine.note_answer()
            engine.outbox.entries.pop(entry, None)
            engine.count("departed")
            continue
        entry.attempt += 1
        entry.due = now + full_jitter(entry.attempt, background.random())
        # A refusal that cannot pass is the same next time, and the end of the client would wait for it.
        if now >= entry.until or not (is_transient(outcome.kind) or outcome.kind is FaultKind.OUT_OF_MEMORY):
            engine.outbox.entries.pop(entry, None)
            engine.count("departure_given_up")
            text = "a lease could not be released (%s); it expires by its TTL"
            engine.runtime.run_in_owner(partial(log.warning, text, outcome.text))
