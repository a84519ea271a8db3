"""What is in the outbox: calls, sent until they are answered, and what finalisers left of objects that users dropped."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pawlock.core.lease.record import HeldLease
from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.faults import is_transient
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.core.release.release import abandon

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.state.records import ServerLease

__all__ = ["forget_finalised", "send_due"]

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
    background, patience = engine.background, min(_PATIENCE, engine.schedule.spare(now))
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


def _forget(engine: Engine, server_lease: ServerLease) -> None:
    # It goes on until it runs out, and is nobody's until then.
    who, server_lease.who = server_lease.who, None
    if server_lease.epoch == engine.epoch and engine.drop(server_lease, who):
        engine.count("abandoned")
        engine.count_end(server_lease, "abandoned")
        name = server_lease.primitive.name
        text = "a lease of %r was garbage-collected without release; it expires by its TTL"
        _lease_log.warning(text, name, extra={"pawlock_name": name})
