"""What happens when a thread or task acquires a name that it already holds.

A plain lock that a thread asks for once more is a deadlock only if nobody else can release it: while the block that it
began with is on the caller's own stack, or in a task of the event loop that this call blocks. Otherwise it may be
released elsewhere, as by a thread pool that runs the two halves of a generator in two threads: the call waits.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pawlock.core.lease import HeldLease
from pawlock.errors import DeadlockDetected
from pawlock.model import LeaseState

if TYPE_CHECKING:
    from types import FrameType

    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan
    from pawlock.core.primitive import Primitive
    from pawlock.core.records import Attempt, Hold

__all__ = ["holds", "taken_again", "waits_for_itself"]


def taken_again(engine: Engine, plan: Plan, mine: Hold, attempt: Attempt) -> HeldLease | None:
    """What an owner that holds it already gets: its lease once more, or nothing."""
    name = plan.primitive.name
    lease = mine.lease() if mine.lease is not None else None
    if not isinstance(lease, HeldLease):
        # Dropped without release, so it belongs to nobody. Its ttl or the maintenance ends it, so a caller may wait.
        return None
    if not mine.live or mine.epoch != engine.epoch or engine.expired(mine, engine.runtime.now()):
        if plan.reentrant and not lease.released and mine.state is LeaseState.LOST:
            # The outer section lost its lease: counting on would hide it from the inner one.
            raise lease.lost_error()
        return None
    block = lease.block() if lease.block is not None else None
    modes = getattr(mine.primitive, "mode", "x"), getattr(plan.primitive, "mode", "x")
    # Of two readers neither waits.
    stuck = block is not None and "x" in modes and block.stuck()
    if plan.reentrant and mine.primitive.covers(plan.primitive) and not stuck:
        with engine.guard:
            if lease.released:
                return None
            lease.levels += 1
            attempt.lease, attempt.again = lease, True
        return lease
    if attempt.wait and block is not None and ((inside := _is_on_stack(block)) or block.task is not None):
        here = f"called inside the block that holds it, and would wait for itself: {plan.primitive.advice}"
        blocks = "blocks the event loop that is to leave the block of it: use pawlock.connect_async()"
        raise DeadlockDetected(
            f"acquire {name!r}: {here if inside else blocks}",
            name=name,
            holder=mine.token.partition("@")[2],
            cycle=(name, name),
        )
    return None


def _is_on_stack(block: Any) -> bool:
    """Whether the caller's stack has the frame of a block that has not ended: a later one may have the same ``id``."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and id(frame) != block.frame:
        frame = frame.f_back
    return frame is not None


def waits_for_itself(engine: Engine, primitive: Primitive, who: object) -> str:
    """What to say of a wait for what the waiting thread or task acquired itself; ``""`` of any other."""
    mine = engine.held.get((who, primitive.key))
    if mine is None or not mine.live:
        return ""
    return (
        f"this thread or task acquired it itself, and waits until another one releases it: {primitive.advice}"
    )


def holds(engine: Engine, plan: Plan) -> bool:
    """Whether the present thread or task holds it by a lease that has not ended, as far as this client knows."""
    mine = engine.held.get((engine.runtime.who(), plan.primitive.key))
    return (
        mine is not None
        and mine.live
        and mine.epoch == engine.epoch
        and not engine.expired(mine, engine.runtime.now())
        and mine.lease is not None
        and mine.lease() is not None
        and mine.primitive.covers(plan.primitive)
    )
