"""What follows a failed acquisition: for its caller, for the server, and for later callers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from pawlock.core.acquire.first_request import waiter_of
from pawlock.core.acquire.queue import ENDLESS
from pawlock.core.acquire.reentry import waits_for_itself
from pawlock.core.lease.factory import undo_lease
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Fault
from pawlock.core.state.records import Waiter, WaiterState
from pawlock.errors import AcquireTimeout

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.lease.record import HeldLease
    from pawlock.core.state.local_queue import LocalWaiter
    from pawlock.core.state.plan import Attempt, Plan
    from pawlock.core.state.records import AnyLocalQueue, ServerLease

__all__ = ["abandon", "give_up", "pass_back", "timed_out"]

log: logging.Logger = logging.getLogger("pawlock.acquire")

_HOLDER_PATIENCE = 0.1


async def timed_out(engine: Engine, plan: Plan, began: float, waiter: Waiter | None) -> AcquireTimeout:
    """The error of one that has waited since ``began``, with who holds it and the place in the queue."""
    holder = waiter.blocker.holder if waiter is not None else None
    waited = engine.runtime.now() - began
    if holder is None:
        # Asked only now that it is needed: a waiter knows its place in the queue, not the holder.
        try:
            look = await engine.runtime.call(
                plan.primitive.inspect(0), min(_HOLDER_PATIENCE, plan.options.request_timeout)
            )
            holder = look.holder or None
        except Fault as fault:
            log.debug("the holder of %r could not be read: %s", plan.primitive.name, fault.text)
    engine.count("timeouts")
    name = plan.primitive.name
    text = f"acquire {name!r}: still held after {waited:.3g} s" + (f" by {holder}" if holder else "")
    if waiter is not None and waiter.blocker.endless:
        text += f"{',' if holder else ' by'} {ENDLESS}"
    own = waits_for_itself(engine, plan.primitive, engine.runtime.who())
    text += own and f"; {own}"
    return AcquireTimeout(
        text,
        name=name,
        holder=holder,
        waited=waited,
        position=waiter.rank if waiter is not None else None,
        outcomes=waiter.blocker.outcomes if waiter is not None else None,
    )


async def give_up(engine: Engine, plan: Plan, local_queue: AnyLocalQueue | None, waiter: Waiter) -> None:
    """End a waiter whose time is up: nothing of it may be left on the server when the caller goes on."""
    if waiter.busy and not waiter.unanswered:
        waiter.become(WaiterState.NEW)
    if local_queue is not None and local_queue.promote(waiter.successor(), waiter.turn):
        return
    if not waiter.sent:
        return
    tomb_ms = TOMB_MS if waiter.unanswered else 0
    try:
        await engine.runtime.call(
            plan.primitive.leave(waiter.token, tomb_ms, 0), plan.options.request_timeout
        )
    except Fault:
        engine.post(plan.primitive.leave(waiter.token, TOMB_MS, 0))


def abandon(
    engine: Engine,
    plan: Plan,
    server_lease: ServerLease | None,
    attempt: Attempt | None,
    error: BaseException,
) -> None:
    """Give back whatever an acquisition has that ends with an error: refused, cancelled or interrupted. Sends nothing.

    Args:
        engine: The client's engine.
        plan: The lock.
        server_lease: What was asked for at once; None: nothing.
        attempt: How it went on; None: it did not.
        error: What it ends with.
    """
    if attempt is None:
        waiter = None if server_lease is None else waiter_of(engine, server_lease, None, 0.0)
        local_queue = None if server_lease is None else server_lease.local_queue
    else:
        waiter, local_queue, server_lease = attempt.waiter, attempt.local_queue, attempt.server_lease
        if attempt.again is not None:
            cast("HeldLease", attempt.again).take_level()
    if server_lease is not None:
        undo_lease(engine, server_lease)
    if waiter is not None:
        waiter.note_unconfirmed(error)
        engine.drop_waiter(plan.primitive, local_queue, waiter)
    elif attempt is not None and attempt.local_waiter is not None:
        pass_back(engine, plan, attempt.local_waiter, attempt.who)


def pass_back(engine: Engine, plan: Plan, local_waiter: LocalWaiter, who: object) -> None:
    """Give back whatever a caller has of a name: its place in the queue, or its turn, to the next; safe to repeat."""
    local_queue = local_waiter.local_queue
    if local_queue is None or (local_waiter.waits and local_queue.withdraw(local_waiter)):
        return
    if local_waiter.server_lease is not None:
        engine.take_back(local_waiter, who)
        return
    waiter = local_waiter.waiter or Waiter(engine.runtime.new_token())
    waiter.turn = local_waiter.turn
    engine.drop_waiter(plan.primitive, local_queue, waiter)
