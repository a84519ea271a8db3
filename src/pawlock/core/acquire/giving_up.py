"""What follows a failed acquisition: for its caller, for the server, and for later callers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pawlock.core.acquire.queue import ENDLESS
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.protocol.runtime import Fault
from pawlock.core.state.records import WaiterState
from pawlock.errors import AcquireTimeout

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.state.plan import Plan
    from pawlock.core.state.records import AnyLocalQueue, Waiter

__all__ = ["give_up", "timed_out"]

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
    return AcquireTimeout(
        text,
        name=name,
        holder=holder,
        waited=waited,
        position=waiter.rank if waiter is not None else None,
        outcomes=waiter.blocker.outcomes if waiter is not None else None,
    )


async def give_up(engine: Engine, plan: Plan, local_queue: AnyLocalQueue | None, waiter: Waiter) -> None:
    """End a waiter whose time is up: nothing of it may be left on the server when the caller goes on.

    If it is interrupted, the caller must drop the waiter, as after any other error.
    """
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
