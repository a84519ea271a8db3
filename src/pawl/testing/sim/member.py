"""One client of a plan through all its lives, and what its workers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pawl.aio.client import AsyncClient
from pawl.core import endings
from pawl.core.engine import Engine
from pawl.core.lease import BaseLease
from pawl.errors import (
    BackendOutOfMemory,
    ConfigurationError,
    DeadlockDetected,
    PawlError,
    ScriptError,
    WrongKey,
)
from pawl.primitives.registry import REGISTRY
from pawl.testing.sim.oracle import Belief
from pawl.testing.sim.plan import Client, Operation
from pawl.testing.sim.runtime import SimRuntime
from pawl.testing.sim.world import Cancelled, Clock, Process, Task, Violation

if TYPE_CHECKING:
    from pawl.testing.sim.simulation import Simulation

__all__ = ["NAMESPACE", "Member", "SimClient"]

NAMESPACE = "sim"
_NEVER = (ScriptError, WrongKey, ConfigurationError, DeadlockDetected)


class SimClient(AsyncClient):
    """pawl's own client, on the runtime of the simulator."""

    def __init__(self, runtime: SimRuntime, on_lost: Callable[[BaseLease], object]) -> None:
        super().__init__("redis://sim", namespace=NAMESPACE, on_lost=on_lost)
        self.runtime: SimRuntime = runtime
        self.engine: Engine = Engine(runtime, self)

    def _engine(self) -> Engine:
        return self.engine

    async def end(self, timeout: float) -> None:
        """What ``close`` does."""
        await endings.close(self.engine, self.runtime.interrupt_waiters, timeout)
        self.runtime.shut_down()


class Member:
    """One client of the plan, through all its lives."""

    def __init__(self, sim: Simulation, number: int) -> None:
        self.sim = sim
        self.number = number
        self.plan: Client = sim.plan.clients[number]
        self.at: list[int] = [0] * len(self.plan.workers)
        self.life: int = 0
        self.clock: Clock = Clock(sim.world, self.plan.rate, 1000.0 * (number + 1))
        self.start()

    def start(self) -> None:
        """Begin a life."""
        sim = self.sim
        self.process: Process = Process(sim.world, sim.names[self.number], self.clock, self.life)
        self.life += 1
        self.runtime: SimRuntime = SimRuntime(
            self.process, sim.network, lambda: sim.node, self.plan.colour, deaf=self.plan.deaf
        )
        self.runtime.failed = self._upkeep_failed
        self.client: SimClient = SimClient(self.runtime, self._lost)
        self.locks: list[Any] = [
            REGISTRY[kind].make(self.client, name, **options) for kind, name, options in sim.plan.locks
        ]
        self.tasks: list[Task] = []
        self.closing = False
        for index, steps in enumerate(self.plan.workers):
            if self.at[index] < len(steps):
                task = Task(self.process, f"w{index}", self._work(index), self._ended)
                self.tasks.append(task)
                sim.working += 1

    def _upkeep_failed(self, error: BaseException) -> None:
        self.sim.world.fail(f"the upkeep of {self.process.name} failed: {error!r}")

    def _lost(self, lease: BaseLease) -> None:
        sim = self.sim
        sim.world.note(self.process.name, "lost", lease.token, str(lease._tenure.reason))
        sim.oracle.told(lease._tenure.primitive.key, lease, self.process)

    def _ended(self, task: Task, error: BaseException | None) -> None:
        sim = self.sim
        sim.working -= 1
        task.doing = ""
        if error is not None:
            sim.world.note(self.process.name, task.name, "failed", repr(error))
            raise Violation(
                f"{sim.world.now:.4f} s: {self.process.name}/{task.name} failed: {error!r}"
            ) from error
        sim.settle()

    def kill(self) -> None:
        """End the process at once, as SIGKILL does."""
        self.process.alive = False
        # What is left of it in this interpreter must neither send nor warn.
        self.client.engine.closed = True
        self.runtime.ending = True
        self.sim.oracle.forget(self.process)
        self.sim.killed.add(f"@{self.process.name}:{self.process.life}/")
        for task in self.tasks:
            if not task.done:
                self.sim.working -= 1
                task.kill()
        upkeep = self.runtime._upkeep
        if upkeep is not None:
            upkeep.kill()
        for link in list(self.sim.node.links.values()):
            if link.process is self.process:
                self.sim.world.at(self.sim.world.now + self.sim.network.delay(), link._forgotten, None)

    # What workers do --------------------------------------------------------------------------------------------

    async def _work(self, index: int) -> None:
        task = self.sim.world.current
        if task is None:
            raise AssertionError("a worker is a task")
        steps = self.plan.workers[index]
        while self.at[index] < len(steps) and not self.closing:
            step = steps[self.at[index]]
            self.at[index] += 1
            try:
                await self._step(task, step)
                self._do(task, "")
                if step.rest:
                    await self.runtime.pause(step.rest)
            except Cancelled:
                self._note(task, "cancelled")
            except _NEVER:
                raise
            except PawlError as error:
                self._note(task, type(error).__name__)

    def _note(self, task: Task, *what: Any) -> None:
        self.sim.world.note(self.process.name, task.name, *what)

    def _do(self, task: Task, doing: str) -> None:
        task.doing = doing
        if doing:
            self.sim.began(self.process, doing)

    async def _step(self, task: Task, step: Operation) -> None:
        lock: Any = self.locks[step.lock]
        if self.sim.tickets:
            await self._adopt(task)
            return
        if step.how == "inspect":
            self._do(task, "inspect")
            await self.client.inspect(lock.name)
            return
        self._do(task, step.how)
        lease = await (lock.acquire(step.timeout) if step.how == "acquire" else lock.try_acquire())
        if lease is None:
            self._note(task, "busy")
            return
        self._granted(task, step.lock, lease)
        await self._hold(task, step, lock, lease)

    def _granted(self, task: Task, number: int, lease: BaseLease, *, repeats: bool = False) -> None:
        kind, name, options = self.sim.plan.locks[number]
        entry = REGISTRY[kind]
        group = str(options[entry.identity]) if entry.identity else "" if entry.exclusive else kind
        self._note(task, "granted", lease.token, lease.fence)
        belief = Belief(lease, self.process, group, entry.capacity if not entry.exclusive else None)
        self.sim.oracle.granted(self.sim.key(name), belief, may_repeat=repeats or bool(entry.identity))

    async def _hold(self, task: Task, step: Operation, lock: Any, lease: Any) -> None:
        error: BaseException | None = None
        try:
            await self._body(task, step, lock, lease)
            if step.end == "pass_on":
                self._do(task, "pass_on")
                self.sim.tickets.append((lease.detach(), step.lock))
                self.sim.loose.add(lease._tenure.token)
                return
            if step.end == "drop":
                self.sim.loose.add(lease._tenure.token)
                self.sim.oracle.dropped(lease)
                return
        except (Cancelled, PawlError) as caught:
            error = caught
        await self._end(task, lease, error, explicit=step.end == "release")
        if error is not None:
            raise error

    async def _end(self, task: Task, lease: Any, error: BaseException | None, *, explicit: bool) -> None:
        self._do(task, "release")
        try:
            if explicit and error is None:
                await lease.release()
            else:
                await endings.end_block(self.client.engine, lease, error)
        except BackendOutOfMemory as refused:
            raise Violation(f"a release was refused for memory: {refused}") from refused
        except PawlError as told:
            self.sim.oracle.ended(lease, told)
            raise

    async def _body(self, task: Task, step: Operation, lock: Any, lease: Any) -> None:
        self._do(task, "hold")
        for act in step.body:
            if act == "again":
                inner = await lock.acquire(1.0)
                if inner is not lease:
                    self._granted(task, step.lock, inner)
                await inner.release()
            elif act.startswith("extend:"):
                self._do(task, "extend")
                await lease.extend(float(act[7:]))
                self._do(task, "hold")
        if step.hold and "blind" in step.body:
            await self.runtime.pause(step.hold)
        elif step.hold:
            await lease.lost.wait(step.hold)
        lease.check()

    async def _adopt(self, task: Task) -> None:
        ticket, number = self.sim.tickets.pop(0)
        self._do(task, "pass_on")
        lease = await self.client.adopt(ticket)
        self._granted(task, number, lease, repeats=True)
        error: BaseException | None = None
        try:
            await lease.lost.wait(0.005)
        except Cancelled as caught:
            error = caught
        await self._end(task, lease, error, explicit=False)
        if error is not None:
            raise error
