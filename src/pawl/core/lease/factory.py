"""Creates the lease for every grant of the server; nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawl.core.lease.record import HeldLease

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.state.records import ServerLease

__all__ = ["make_lease", "undo_lease"]


def make_lease(
    engine: Engine,
    server_lease: ServerLease,
    began: float,
    *,
    holds: int = 1,
    counted: bool = False,
    confirmed: bool = True,
    contended: bool = False,
) -> HeldLease:
    """Create the lease of a grant: register it as held, schedule its renewal, and report it to observers.

    If it is interrupted, the caller must call ``undo_lease``, and release the token.

    Args:
        engine: The client's engine.
        server_lease: What was granted; its owner says to whom.
        began: When the acquisition began.
        holds: How many holds its owner has, in all processes.
        counted: Whether holds are counted on the server alone.
        confirmed: False for a hand-off, which lives on its ticket's expiry until it is renewed.
        contended: Whether the acquisition had to wait for somebody.
    """
    owner, leases, rhythm = server_lease.owner, engine.leases, server_lease.rhythm
    owner.epoch = engine.epoch
    if not counted:
        held_key = owner.who, server_lease.primitive.key
        if held_key in leases.held and leases.held[held_key].live:
            owner.outer = leases.held[held_key]
        leases.held[held_key] = server_lease
    lease = HeldLease(engine, server_lease, server_lease.fence, owner.who, holds)
    if confirmed and rhythm is server_lease.options.renewed:
        late = leases.schedule.add(server_lease, rhythm.every, owner.granted_at + rhythm.every)
    else:
        late = engine.plan_service(server_lease, owner.granted_at, confirmed=confirmed)
    if late or not engine.activity.maintenance_runs:
        engine.wake_for(server_lease)
    if server_lease.options.tracks:
        engine.track_soon(server_lease)
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(server_lease, began, contended=contended)
    return lease


def undo_lease(engine: Engine, server_lease: ServerLease) -> None:
    """Undo ``make_lease`` where no caller got the lease; safe to repeat. The caller must release the token."""
    lease = server_lease.owner.lease() if server_lease.owner.lease is not None else None
    if lease is not None:
        lease.released = True
    engine.end(server_lease)
    engine.forget_holder(server_lease, server_lease.owner.who)
