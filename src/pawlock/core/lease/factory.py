"""Creates the lease for every grant of the server; nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from pawlock.core.lease.record import HeldLease
from pawlock.core.state.records import ServerLease

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.state.plan import Attempt, Plan
    from pawlock.core.state.records import Waiter
    from pawlock.model import Grant

__all__ = ["make_lease", "own_grant", "undo_lease"]


def make_lease(
    engine: Engine,
    server_lease: ServerLease,
    began: float,
    *,
    counted: bool = False,
    confirmed: bool = True,
    contended: bool = False,
) -> HeldLease:
    """Create the lease of a grant: register it as held, schedule its renewal, and report it to observers.

    Args:
        engine: The client's engine.
        server_lease: What was granted; its owner says to whom.
        began: When the acquisition began.
        counted: Whether each acquisition counts for itself, and is not its thread's or task's.
        confirmed: False for a hand-off, which lives on its ticket's expiry until it is renewed.
        contended: Whether the acquisition had to wait for somebody.
    """
    owner, leases, rhythm = server_lease.owner, engine.leases, server_lease.rhythm
    owner.epoch = engine.epoch
    if not counted:
        leases.held[owner.who, server_lease.primitive.key] = server_lease
    lease = HeldLease(engine, server_lease, server_lease.fence, owner.who)
    if confirmed and rhythm is server_lease.options.renewed:
        late = leases.schedule.add(server_lease, rhythm.every, owner.granted_at + rhythm.every)
    else:
        late = engine.plan_service(server_lease, owner.granted_at, confirmed=confirmed)
    if late:
        engine.background.nudge()
    if engine.reports.observer is not None:
        engine.reports.observer.acquired(server_lease, began, contended=contended)
    return lease


def undo_lease(engine: Engine, server_lease: ServerLease) -> None:
    """Undo ``make_lease`` where no caller got the lease; safe to repeat. The caller must release the token."""
    lease = server_lease.owner.lease() if server_lease.owner.lease is not None else None
    if lease is not None and not lease.released:
        lease.released = True
        engine.count_end(server_lease, "background")
    engine.end(server_lease)
    engine.forget_holder(server_lease, server_lease.owner.who)


def own_grant(engine: Engine, plan: Plan, waiter: Waiter, grant: Grant, attempt: Attempt) -> HeldLease:
    """Own what the server granted to a waiter."""
    server_lease = ServerLease(
        plan.primitive, plan.options, waiter.token, grant.fence, grant.valid_until, engine.runtime.now()
    )
    local_queue = server_lease.local_queue = attempt.local_queue
    server_lease.unanswered = waiter.unanswered
    server_lease.quorum = grant.quorum
    server_lease.uncontended = waiter.ticket is None
    if local_queue is not None:
        local_queue.turn_holder = ref(server_lease)
        local_queue.streak = 0
        server_lease.turn = waiter.turn
    server_lease.owner.who = attempt.who
    attempt.server_lease = server_lease
    return make_lease(
        engine, server_lease, attempt.began,
        counted=plan.counted, confirmed=grant.confirmed, contended=waiter.contended,
    )  # fmt: skip
