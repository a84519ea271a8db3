"""What workers do with something that is to be done once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pawlock.core.base_lease import record_of
from pawlock.errors import BackendOutOfMemory, LeaseLost, NotHeld, PawlockError
from pawlock.model import Done, Running
from pawlock.primitives.once import operation as once
from tests.simulator import acts
from tests.simulator.world import Cancelled

if TYPE_CHECKING:
    from pawlock.core.lease import HeldLease
    from tests.simulator.plan import Operation
    from tests.simulator.world import Task

__all__ = ["DONE", "begin", "forget"]


async def begin(member: acts.Actor, step: Operation, lock: Any) -> None:
    """Start it, and finish or give up; or hear who runs it, or what came of it."""
    task = member.sim.world.current
    if task is None:
        raise AssertionError("a worker is a task")
    member._do(task, "acquire")
    since = member.sim.world.now
    state = await lock.begin(wait=step.timeout != 0, timeout=step.timeout)
    name = lock._plan.primitive.key
    if isinstance(state, Done):
        member.sim.oracle.counts["done"] += 1
        member.sim.oracle.results.heard(name, state, since, whole=member.sim.fleet.forgot_at() < 0)
        return
    if isinstance(state, Running):
        if step.timeout != 0:
            member.sim.world.fail(f"once: {state} of {name!r} was the answer to who waits")
        return
    lease = state.lease
    member._granted(task, step.lock, lease, since=since)
    error: BaseException | None = None
    try:
        await _body(member, task, step, lock, lease)
    except (Cancelled, PawlockError) as caught:
        error = caught
    if error is None and step.end == "drop":
        record = record_of(lease)
        member.sim.loose.add(record.hold.token)
        member.sim.oracle.dropped(record)
        member.sim.recorder.ended(record)
        return
    await _end(member, task, step, state, error)
    if error is not None:
        raise error


async def _body(member: acts.Actor, task: Task, step: Operation, lock: Any, lease: Any) -> None:
    member._do(task, "hold")
    for act in step.body:
        await acts.inside(member, task, act, step.lock, lock, lease)
        member._do(task, "hold")
    if step.hold and "blind" in step.body:
        await member.runtime.pause(step.hold)
        # It does not look: its result comes too late if the lease was lost.
        return
    if step.hold:
        await lease.lost.wait(step.hold)
    lease.check()


async def _end(
    member: acts.Actor, task: Task, step: Operation, state: Any, error: BaseException | None
) -> None:
    sim, lease = member.sim, record_of(state.lease)
    name, token = lease.hold.primitive.key, lease.hold.token
    member._do(task, "release")
    sim.recorder.ended(lease)
    finishes = error is None and step.end in ("finish", "block") and not lease.released
    try:
        if error is not None or step.end == "block":
            await once.end_block(state._start, error)
        elif step.end == "abandon":
            await state.abandon()
        else:
            await state.finish(_value(lease))
    except BackendOutOfMemory as refused:
        # The record needs memory: the lease is kept, so what needs none frees it.
        member._note(task, type(refused).__name__)
        await state.abandon()
        return
    except (LeaseLost, NotHeld) as lost:
        sim.oracle.ended(lease, lost)
        if finishes and token not in sim.oracle.muddled:
            sim.oracle.results.ended(name, token, lost, whole=sim.fleet.forgot_at() < 0)
        raise
    if finishes:
        sim.oracle.counts["finished"] += 1
        sim.oracle.results.ended(name, token, None, whole=True)


def _value(lease: HeldLease) -> Any:
    """A value of its own for each lease, of one type or another."""
    text = f"{lease.token} {lease.fence}"
    return (text, text.encode(), {"by": text}, [text, None])[lease.fence % 4]


async def forget(member: acts.Actor, _: Operation, lock: Any) -> None:
    """Delete the result."""
    task = member.sim.world.current
    if task is None:
        raise AssertionError("a worker is a task")
    member._do(task, "reset")
    await lock.forget()


DONE: dict[str, Callable[[acts.Actor, Operation, Any], Awaitable[None]]] = {"begin": begin, "forget": forget}
"""What a step does, by its ``how``."""
