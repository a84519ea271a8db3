"""Leases whose objects are gone without a release, and grants that never reached their caller."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from pawl.core.maintenance.duty import MaintenanceDuty

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.state.records import ServerLease

__all__ = ["Abandoned"]

log: logging.Logger = logging.getLogger("pawl.lease")


class Abandoned(MaintenanceDuty):
    """Stops renewing leases whose objects are gone; they run out. Released only if no body can still run."""

    def begin(self, engine: Engine, now: float) -> None:
        while engine.outbox.undelivered:
            # It stays until it is done: the end of the client waits for it.
            try:
                _take_back(engine, *engine.outbox.undelivered[0])
            finally:
                engine.outbox.undelivered.popleft()
        while engine.outbox.abandoned:
            _forget(engine, engine.outbox.abandoned.popleft())

    def sleep_until(self, engine: Engine, now: float) -> float:
        return now if engine.outbox.abandoned or engine.outbox.undelivered else inf


def _take_back(engine: Engine, server_lease: ServerLease, number: int) -> None:
    engine.forget_holder(server_lease, server_lease.owner.who)
    if server_lease.live and server_lease.owner.epoch == engine.epoch and server_lease.used == number:
        engine.count_end(server_lease, "background")
        if server_lease.local_queue is not None and server_lease.local_queue.turn != server_lease.turn:
            # Another caller of this client went on with its token.
            engine.end(server_lease)
        elif not engine.end_turn(server_lease, engine.runtime.now(), number):
            engine.leave_in_background(server_lease)


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
        log.warning(
            "a lease of %r was garbage-collected without release; it expires by its TTL",
            name, extra={"pawl_name": name},
        )  # fmt: skip
