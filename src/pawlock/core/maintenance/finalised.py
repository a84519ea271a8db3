"""What the objects left behind that users dropped: leases that are renewed no more, and levels that end."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pawlock.core.release.release import abandon

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.state.records import ServerLease

__all__ = ["forget_finalised"]

log: logging.Logger = logging.getLogger("pawlock.lease")


def forget_finalised(engine: Engine) -> None:
    """End what finalisers appended to the outbox: where the others wait who go on then."""
    outbox, run_in_owner = engine.outbox, engine.runtime.run_in_owner
    while outbox.levels:
        run_in_owner(partial(abandon, outbox.levels.popleft()))
    while outbox.abandoned:
        run_in_owner(partial(_forget, engine, outbox.abandoned.popleft()))


def _forget(engine: Engine, server_lease: ServerLease) -> None:
    # It goes on until it runs out, and is nobody's until then.
    who, server_lease.who = server_lease.who, None
    if server_lease.epoch == engine.epoch and engine.drop(server_lease, who):
        engine.count("abandoned")
        engine.count_end(server_lease, "abandoned")
        name = server_lease.primitive.name
        log.warning(
            "a lease of %r was garbage-collected without release; it expires by its TTL",
            name, extra={"pawlock_name": name},
        )  # fmt: skip
