"""Keys that others may delete: the server notifies their holder of each change, and the lease is then renewed at once.

A notice ends no lease: it says that the key is to be looked at. What the renewal finds decides, as always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pawlock.core.protocol.outcomes import Tags
from pawlock.core.protocol.runtime import Runtime, Tracking

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.state.records import ServerLease

__all__ = ["renew_changed", "tags_taken", "track_held"]

_LEAST_BETWEEN = 0.02
"""Seconds between two renewals for the sake of notices: another program may write the key all the time."""

_ABSENT = -2


async def track_held(engine: Engine, renewed: Sequence[ServerLease], patience: float) -> None:
    """Track the keys of leases that were renewed just now: their own renewal ended the tracking of before."""
    for server_lease in renewed:
        if not server_lease.options.tracks or not server_lease.live or engine.quorum is not None:
            continue
        token = server_lease.token
        tracking = await engine.runtime.track(token, server_lease.primitive.key, patience, engine.changed)
        if tracking is None:
            engine.leases.tracked.pop(token, None)
            continue
        engine.leases.tracked[token] = server_lease, tracking
        if _is_over(server_lease):
            # Released meanwhile, by another thread, which did not find it there.
            engine.untrack(server_lease)
        elif tracking.left_ms == _ABSENT and not tracking.changed:
            tracking.concerns(None)


def _is_over(server_lease: ServerLease) -> bool:
    return not server_lease.live


async def tags_taken(engine: Engine, runtime: Runtime, patience: float) -> Sequence[str]:
    """Which grants an operator took away: to a renewal they look like any that the server does not know."""
    if engine.reports.publisher is None:
        return ()
    (outcome,) = await runtime.call_many([engine.reports.publisher.setup.calls.taken()], patience)
    return outcome.tags if isinstance(outcome, Tags) else ()


def renew_changed(engine: Engine, now: float) -> None:
    """Have the leases renewed at once whose keys changed."""
    while engine.leases.changes:
        tracking: Tracking = engine.leases.changes.popleft()
        server_lease, _ = engine.leases.tracked.pop(tracking.token, (None, None))
        tracking.end()
        if server_lease is not None and server_lease.live and server_lease.owner.epoch == engine.epoch:
            engine.count("key_changed")
            engine.leases.schedule.discard(server_lease)
            engine.leases.schedule.add_once(server_lease, max(now, server_lease.heard_at + _LEAST_BETWEEN))
