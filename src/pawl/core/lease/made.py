"""The one maker of a lease that a server granted: whoever asked for it, and however it was granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawl.core.lease.record import HeldLease

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.state.records import ServerLease

__all__ = ["make_lease", "void"]


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
    """Own a server lease that was granted: known as held, renewed from here on, and told to observers.

    What it did before it was interrupted, ``void`` undoes.

    Args:
        engine: The client's engine.
        server_lease: What was granted; its owner says to whom.
        began: When it was asked for.
        holds: How many holds its owner has, in all processes.
        counted: Whether holds are counted on the server alone.
        confirmed: False for a hand-off, which lives on its ticket's expiry until it is renewed.
        contended: Whether anybody was in the way.
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


def void(engine: Engine, server_lease: ServerLease) -> None:
    """Undo a lease that was made of a server lease and that nobody got; its token is for the caller to give back."""
    lease = server_lease.owner.lease() if server_lease.owner.lease is not None else None
    if lease is not None:
        lease.released = True
    engine.end(server_lease)
    engine.forget_holder(server_lease, server_lease.owner.who)
