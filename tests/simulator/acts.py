"""What workers do beside taking and giving back: inside a body, and with primitives that give no lease."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from pawlock.core.base_lease import record_of
from pawlock.errors import AcquireTimeout, NotHeld, PawlockError
from pawlock.model import Leader
from pawlock.primitives.election import operation as election
from pawlock.primitives.once import operation as once
from tests.simulator.world import Cancelled, Violation

if TYPE_CHECKING:
    from tests.simulator.client import SimClient
    from tests.simulator.plan import Operation
    from tests.simulator.runtime import SimRuntime
    from tests.simulator.stage import Stage
    from tests.simulator.world import Process, Task

__all__ = ["DONE", "Actor", "inside"]


class Actor(Protocol):
    """A member, as far as its acts need it."""

    sim: Stage
    process: Process
    runtime: SimRuntime
    client: SimClient
    locks: list[Any]

    def _note(self, task: Task, *what: Any) -> None: ...

    def _do(self, task: Task, doing: str) -> None: ...

    def _granted(self, task: Task, number: int, lease: Any, *, since: float | None = None) -> None: ...

    async def _end(self, task: Task, lease: Any, error: BaseException | None, *, explicit: bool) -> None: ...


async def inside(member: Actor, task: Task, act: str, number: int, lock: Any, lease: Any) -> None:
    """Do something while a lease is held.

    Args:
        member: The client.
        task: The worker.
        act: What: see ``Operation.body``.
        number: Which lock of the plan is held.
        lock: That lock.
        lease: Its lease.
    """
    if act == "again":
        inner = await lock.acquire(1.0)
        if inner is not lease:
            member._granted(task, number, inner)
            member.sim.recorder.ended(record_of(inner))
        await inner.release()
    elif act == "downgrade":
        member._do(task, "downgrade")
        member.sim.recorder.downgraded(record_of(lease))
        await lease.downgrade()
    elif act.startswith("cross:"):
        await _cross(member, task, act, number, lease)
    elif act.startswith("nest:"):
        await _nest(member, task, act)
    elif act.startswith("extend:"):
        member._do(task, "extend")
        await lease.extend(float(act[7:]))


async def _cross(member: Actor, task: Task, act: str, number: int, lease: Any) -> None:
    """Take another lock inside of one, which somebody else may do the other way round."""
    _, other, seconds = act.split(":")
    oracle, waiting = member.sim.oracle, (member.process, task)
    oracle.crossing[waiting] = record_of(lease), number, int(other), member.sim.world.now
    try:
        inner = await member.locks[int(other)].acquire(float(seconds))
    except AcquireTimeout:
        oracle.no_circle(waiting)
        raise
    finally:
        del oracle.crossing[waiting]
    member._granted(task, int(other), inner)
    member.sim.recorder.ended(record_of(inner))
    await inner.release()


async def _nest(member: Actor, task: Task, act: str) -> None:
    """Take other locks, each inside of the one before, which others do in another order."""
    _, wanted, seconds = act.split(":")
    first, _, others = wanted.partition(",")
    number, permits = map(int, first.split("*"))
    lock, since = member.locks[number], member.sim.world.now
    try:
        if member.sim.plan.locks[number][0] == "semaphore":
            lease = await lock.acquire(permits, float(seconds))
        else:
            lease = await lock.acquire(float(seconds))
    except AcquireTimeout as stuck:
        # Nobody holds anything for long: it waits in a deadlock, and no waiter of it was refused.
        where = f"{member.process.name}/{task.name}"
        raise Violation(f"{member.sim.world.now:.4f} s: deadlock: {where} waits for lock {number}") from stuck
    member._granted(task, number, lease, since=since)
    error: BaseException | None = None
    try:
        await member.runtime.pause(0.005)
        if others:
            await _nest(member, task, f"nest:{others}:{seconds}")
    except (Cancelled, PawlockError) as caught:
        error = caught
    await member._end(task, lease, error, explicit=False)
    if error is not None:
        raise error


async def _force(member: Actor, step: Operation, _: Any) -> None:
    _, name, _ = member.sim.plan.locks[step.lock]
    with suppress(NotHeld):
        await member.client.force_release(name, reason="an operator of the simulator")


async def _inspect(member: Actor, step: Operation, lock: Any) -> None:
    kind, name, _ = member.sim.plan.locks[step.lock]
    if kind == "latch":
        await lock.remaining()
    elif kind == "barrier":
        await lock.arrived()
    elif kind == "election":
        await lock.leader()
    elif kind == "once":
        await once.look(member.client.engine, lock._plan)
    elif kind == "semaphore":
        await lock.inspect()
    else:
        await member.client.inspect(lock.names[0] if kind == "multi_lock" else name)


async def _observe(member: Actor, step: Operation, lock: Any) -> None:
    """Hear of a few changes of the leader, then stop listening."""
    watch: Any = lock.observe()._watch
    world = member.sim.world
    world.at(world.now + step.hold + 0.01, lambda _: member.process.alive and watch.close())
    told: Leader | election.Ended | None = election.ENDED
    try:
        while True:
            found = await watch.next()
            if found is election.ENDED:
                return
            if found == told:
                world.fail(f"election: {found} was reported twice in a row")
            told = found
    finally:
        watch.close()


async def _count(_: Actor, step: Operation, lock: Any) -> None:
    await lock.count_down(step.permits)


async def _wait(_: Actor, step: Operation, lock: Any) -> None:
    await lock.wait(step.timeout)


async def _reset(_: Actor, __: Operation, lock: Any) -> None:
    await lock.reset()


DONE: dict[str, Callable[[Actor, Operation, Any], Awaitable[None]]] = {
    "force": _force,
    "inspect": _inspect,
    "observe": _observe,
    "count": _count,
    "wait": _wait,
    "reset": _reset,
}
"""What a step that takes no lease does, by its ``how``."""
