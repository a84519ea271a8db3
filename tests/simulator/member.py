"""One client of a plan through all its lives, and what its workers do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pawlock.core.base_lease import BaseLease, record_of
from pawlock.core.client import weak_suspect_all
from pawlock.core.engine import Engine
from pawlock.core.lease import end_block
from pawlock.core.options import drift
from pawlock.errors import (
    BackendOutOfMemory,
    BackendReadOnly,
    BackendUnavailable,
    ConfigurationError,
    DeadlockDetected,
    PawlockError,
    ScriptError,
    WrongKey,
)
from pawlock.model import LeaseState, LossReason
from pawlock.primitives.multi import operation as multi
from pawlock.primitives.multi.lease import BaseMultiLease, MultiPlan, members_of, record_of_all
from pawlock.primitives.probe import probe
from pawlock.primitives.registry import REGISTRY
from pawlock.redlock.nodes import KnownMasters
from pawlock.redlock.options import RedlockOptions
from pawlock.topology.endpoint import Endpoint
from tests.simulator import acts, once_steps
from tests.simulator.beliefs import Belief
from tests.simulator.client import SimClient
from tests.simulator.liveness import GRACE, Attempt
from tests.simulator.plan import Client, Operation
from tests.simulator.quorum import QuorumSimRuntime
from tests.simulator.routed import RoutedSimRuntime
from tests.simulator.runtime import SimRuntime
from tests.simulator.strangers import key_named
from tests.simulator.world import Cancelled, Clock, Process, Task, Violation

if TYPE_CHECKING:
    from tests.simulator.stage import Stage

__all__ = ["Member"]

_DONE = {**acts.DONE, **once_steps.DONE}
_NEVER = (ScriptError, WrongKey, ConfigurationError, DeadlockDetected)


def _crosses(step: Operation) -> bool:
    """Whether a step may wait in a circle."""
    return any(act.startswith(("cross:", "nest:")) for act in step.body)


class _Unit:
    """One runtime of a client, with the engine, the client and the locks that are made on it."""

    def __init__(self, member: Member, redlock: RedlockOptions | None, number: int) -> None:
        sim, api = member.sim, member.plan.api
        self.runtime: SimRuntime = self._runtime(member, redlock, api)
        # What serves a loop in the background is a thread.
        self.background: SimRuntime = (
            self.runtime if api == "threads" else self._runtime(member, redlock, "threads")
        )
        self.runtimes: list[SimRuntime] = list({self.runtime: None, self.background: None})
        for at, runtime in enumerate(self.runtimes):
            # Tokens are random: those of two loops are never the same.
            runtime._tokens = runtime._channels = 1_000_000 * (2 * number + at)
            runtime.failed = member._maintenance_failed
        self.client: SimClient = SimClient(
            self.runtime, self.background, redlock, member._lost, sim.plan.deadlock_after
        )
        for runtime in self.runtimes:
            runtime.on_move = weak_suspect_all(self.client.engine)
        self.locks: list[Any] = [self._make(*lock) for lock in sim.plan.locks]

    @staticmethod
    def _runtime(member: Member, redlock: RedlockOptions | None, api: str) -> SimRuntime:
        sim, process, deaf = member.sim, member.process, member.plan.deaf
        if redlock is not None:
            return QuorumSimRuntime(process, sim.network, sim.fleet, api, member.known)
        if sim.fleet.cluster is not None:
            return RoutedSimRuntime(process, sim.network, sim.fleet, sim.fleet.cluster, api, deaf=deaf)
        return SimRuntime(process, sim.network, sim.fleet, api, deaf=deaf)

    def _make(self, kind: str, name: str, options: dict[str, Any]) -> Any:
        wire = options.get("wire")
        if wire is None:
            return REGISTRY[kind].make(self.client, name, **options)
        given = {option: value for option, value in options.items() if option != "wire"}
        return REGISTRY[kind].make(self.client, name, named=partial(key_named, wire), **given)


class Member:
    """One client of the plan, through all its lives."""

    def __init__(self, sim: Stage, number: int) -> None:
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
        self.born: float = sim.world.now
        loops = max(1, len(self.plan.workers)) if self.plan.loops else 1
        # Of several masters: what one client knows of them, in all its threads and loops.
        redlock = self._redlock()
        endpoints = [Endpoint("redis", node.name, {}) for node in sim.fleet.nodes]
        self.known: KnownMasters = KnownMasters(endpoints, redlock or RedlockOptions(), probe("sim"))
        self.units: list[_Unit] = [_Unit(self, redlock, number) for number in range(loops)]
        self.runtime: SimRuntime = self.units[0].runtime
        self.client: SimClient = self.units[0].client
        self.locks: list[Any] = self.units[0].locks
        if redlock is not None and redlock.fresh:
            # It sees every master before anything breaks.
            Task(self.process, "first", self.runtime.ready(1.0), _started)
        self.tasks: list[Task] = []
        self.closing = False
        for index, steps in enumerate(self.plan.workers):
            if self.at[index] < len(steps):
                task = Task(self.process, f"w{index}", self._work(index), self._ended)
                self.tasks.append(task)
                sim.working += 1

    def _redlock(self) -> RedlockOptions | None:
        if not self.sim.fleet.masters:
            return None
        # Who comes later cannot know whether a young master restarted.
        plan = self.sim.plan
        return RedlockOptions(
            max_ttl=plan.longest_ttl(),
            fresh=plan.fresh and self.life == 1,
            node_timeout=plan.node_timeout or None,
        )

    @property
    def runtimes(self) -> list[SimRuntime]:
        """Its runtimes: one, or for each event loop one and that of its background thread."""
        return [runtime for unit in self.units for runtime in unit.runtimes]

    @property
    def engines(self) -> list[Engine]:
        """Their engines."""
        return [unit.client.engine for unit in self.units]

    def unit(self, index: int) -> _Unit:
        """Where a worker runs."""
        return self.units[index % len(self.units)]

    async def end(self, timeout: float) -> None:
        """What ``close`` does."""
        for unit in self.units:
            await unit.client.end(timeout / len(self.units))

    def _maintenance_failed(self, error: BaseException) -> None:
        self.sim.world.fail(f"the maintenance of {self.process.name} failed: {error!r}")

    def _lost(self, lease: BaseLease | BaseMultiLease) -> None:
        sim = self.sim
        for one in members_of(lease):
            hold = one.hold
            if hold.reason is not None:
                sim.world.note(self.process.name, "lost", one.token, str(hold.reason))
                if sim.fleet.masters and hold.reason not in (LossReason.CLOSED, LossReason.MAX_HOLD):
                    sim.liveness.lost(one, self.process.name)
                sim.oracle.loss_reported(hold.primitive.key, one, self.process)
                sim.recorder.lost(one)

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
        self.sim.oracle.forget(self.process)
        self.sim.recorder.died(self.process)
        self.process.alive = False
        # What is left of it in this interpreter must neither send nor warn.
        for unit in self.units:
            unit.client.engine.closed = True
            for runtime in unit.runtimes:
                runtime.ending = True
        self.sim.killed.add(f"@{self.process.name}:{self.process.life}/")
        for task in self.tasks:
            if not task.done:
                self.sim.working -= 1
                task.kill()
        for runtime in self.runtimes:
            if runtime._maintenance is not None:
                runtime._maintenance.kill()
        for node in self.sim.fleet.nodes:
            for link in list(node.links.values()):
                if link.process is self.process:
                    self.sim.world.at(self.sim.world.now + self.sim.network.delay(), link._forgotten, None)

    # What workers do --------------------------------------------------------------------------------------------

    async def _work(self, index: int) -> None:
        task = self.sim.world.current
        if task is None:
            raise AssertionError("a worker is a task")
        steps = self.plan.workers[index]
        if self.plan.later and index == len(self.plan.workers) - 1 and not self.at[index]:
            await self.runtime.pause(self.plan.later)
        while self.at[index] < len(steps) and not self.closing:
            step = steps[self.at[index]]
            self.at[index] += 1
            began = self.sim.world.now
            try:
                await self._step(task, step, self.unit(index))
                self._do(task, "")
                if step.rest:
                    await self.runtime.pause(step.rest)
            except Cancelled:
                self._note(task, "cancelled")
            except DeadlockDetected as error:
                if not _crosses(step):
                    raise
                self._note(task, type(error).__name__)
                self.sim.oracle.counts["circle found"] += 1
            except _NEVER:
                raise
            except PawlockError as error:
                self._note(task, type(error).__name__)
                self._check_reported(task, step, began, error)

    def _check_reported(self, task: Task, step: Operation, began: float, error: PawlockError) -> None:
        """Whoever asks once all has healed, and has the time, does not hear that nobody answers."""
        sim = self.sim
        keeps_asking = "unavailable_after" not in sim.plan.locks[step.lock][2]
        patient = (step.timeout or 10.0) >= 5 and keeps_asking
        released = isinstance(error, BackendUnavailable) and str(error).startswith("release")
        # What became of a request that the network was too slow for is not known.
        unknown = self.process.gave_up_at >= began
        if released and keeps_asking and sim.only_moves and not unknown:
            sim.world.fail(
                f"moves: {self.process.name}/{task.name} was told {error}, and slots moved, no more"
            )
        if (
            isinstance(error, (BackendReadOnly, BackendUnavailable))
            and task.doing == "acquire"
            and patient
            and began > sim.healed_at()
            and not sim.fleet.masters
        ):
            sim.world.fail(
                f"unavailable: {self.process.name}/{task.name} was told {error} after all had healed"
            )

    def _note(self, task: Task, *what: Any) -> None:
        self.sim.world.note(self.process.name, task.name, *what)

    def _do(self, task: Task, doing: str) -> None:
        task.doing = doing
        if doing:
            self.sim.began(self.process, doing)

    async def _step(self, task: Task, step: Operation, unit: _Unit) -> None:
        lock: Any = unit.locks[step.lock]
        if self.sim.tickets:
            await self._adopt(task)
            return
        asked_at, since = self.clock.boot(), self.sim.world.now
        self._do(task, step.how)
        if step.how not in ("acquire", "try"):
            await _DONE[step.how](self, step, lock)
            return
        if self.sim.fleet.masters:
            await self._of_masters(task, step, lock, since)
            return
        lease = await self._take(step, lock)
        if lease is None:
            self._note(task, "busy")
            return
        self._check_life(step, lease, asked_at)
        self._granted(task, step.lock, lease, since=since)
        await self._hold(task, step, lock, lease)

    async def _of_masters(self, task: Task, step: Operation, lock: Any, since: float) -> None:
        """The same with several masters, which must also do it in time."""
        sim, where = self.sim, f"{self.process.name}/{task.name}"
        attempt = Attempt(_keys_of(lock), (self.number, self.life, task.name), since, exclusive=True)
        timeout = 0.0 if step.how == "try" else step.timeout
        sim.liveness.asks(attempt)
        lives, lease = 0.0, None
        try:
            try:
                lease = await self._take(step, lock)
            except PawlockError as error:
                sim.liveness.refused(attempt, where, error, timeout, self.born)
                raise
            if lease is None:
                sim.liveness.refused(attempt, where, None, timeout, self.born)
                self._note(task, "busy")
                return
            sim.liveness.granted(attempt, where, [one.token for one in members_of(lease)])
            self._granted(task, step.lock, lease, since=since)
            lives = 2.2 * sim.plan.longest_ttl() if step.end == "drop" else 0.0
            await self._hold(task, step, lock, lease)
        except GeneratorExit:
            # Killed: what it left is over by itself.
            lives = 2.2 * sim.plan.longest_ttl() + 1.0
            raise
        finally:
            if lease is not None and any(one.hold.reason is LossReason.MAX_HOLD for one in members_of(lease)):
                # Only now it is given back, in the background.
                lives = max(lives, GRACE)
            sim.liveness.ends(attempt, lives=lives)

    async def _take(self, step: Operation, lock: Any) -> Any:
        kind = self.sim.plan.locks[step.lock][0]
        if kind == "election":
            return await lock.campaign(step.timeout)
        if step.how == "try":
            return await (lock.try_acquire(step.permits) if kind == "semaphore" else lock.try_acquire())
        if kind == "semaphore":
            return await lock.acquire(step.permits, step.timeout)
        return await lock.acquire(step.timeout)

    def _check_life(self, step: Operation, lease: BaseLease | BaseMultiLease, asked_at: float) -> None:
        """A lease that nobody renews lives as long as was asked for, from when it was asked for at least."""
        options = self.sim.plan.locks[step.lock][2]
        if options.get("renew", True) or self.sim.fleet.masters or self.sim.oracle.excused():
            return
        ttl = options["ttl"]
        # The clocks differ in rate, and the server counts whole milliseconds.
        if lease.valid_until < asked_at + ttl * 0.99 - drift(ttl) - 0.002:
            short = asked_at + ttl - lease.valid_until
            self.sim.world.fail(f"life: {_label(lease)} ends {short:.3f} s before the ttl of {ttl} s is over")

    def _granted(
        self,
        task: Task,
        number: int,
        lease: BaseLease | BaseMultiLease,
        *,
        since: float | None = None,
        repeats: bool = False,
    ) -> None:
        self._note(task, "granted", _label(lease), lease.fence)
        for one in members_of(lease):
            belief = Belief(one, self.process)
            key = one.hold.primitive.key
            # Who dropped a lease and asks again before that is noticed goes on with it.
            dropped = one.hold.token in self.sim.loose
            self.sim.oracle.granted(key, belief, may_repeat=repeats or dropped)
            if not repeats:
                self.sim.recorder.granted(key, belief, self.sim.world.now if since is None else since)

    async def _hold(self, task: Task, step: Operation, lock: Any, lease: Any) -> None:
        error: BaseException | None = None
        try:
            await self._body(task, step, lock, lease)
            if step.end == "pass_on":
                self._do(task, "pass_on")
                record = record_of(lease)
                self.sim.recorder.ended(record)
                self.sim.tickets.append((lease.detach(), step.lock))
                self.sim.loose.add(record.hold.token)
                return
            if step.end == "drop":
                for one in members_of(lease):
                    self.sim.loose.add(one.hold.token)
                    self.sim.oracle.dropped(one)
                    self.sim.recorder.ended(one)
                return
        except (Cancelled, PawlockError) as caught:
            error = caught
        await self._end(task, lease, error, explicit=step.end == "release")
        if error is not None:
            raise error

    async def _end(self, task: Task, lease: Any, error: BaseException | None, *, explicit: bool) -> None:
        self._do(task, "release")
        for one in members_of(lease):
            self.sim.recorder.ended(one)
        try:
            if explicit and error is None:
                await lease.release()
            elif isinstance(lease, BaseMultiLease):
                await multi.end_all(record_of_all(lease), error)
            else:
                await end_block(record_of(lease), error)
        except BackendOutOfMemory as refused:
            raise Violation(f"a release was refused for memory: {refused}") from refused
        except PawlockError as told:
            for one in members_of(lease):
                if one.name == told.name:
                    self.sim.oracle.ended(one, told)
            raise

    async def _body(self, task: Task, step: Operation, lock: Any, lease: Any) -> None:
        self._do(task, "hold")
        for act in step.body:
            await acts.inside(self, task, act, step.lock, lock, lease)
            self._do(task, "hold")
        if step.hold and "blind" in step.body:
            await self.runtime.pause(step.hold)
        elif step.hold:
            await lease.lost.wait(step.hold)
        lease.check()
        self._check_all(lease)

    def _check_all(self, lease: BaseLease | BaseMultiLease) -> None:
        """A lease of several names that says it is good is good for each of them."""
        for one in members_of(lease):
            if one.state is LeaseState.LOST or lease.valid_until > one.valid_until:
                self.sim.world.fail(f"multi: {lease!r} says it is held, and {one!r} is not, or not as long")

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


def _label(lease: BaseLease | BaseMultiLease) -> str:
    return ",".join(one.label for one in members_of(lease))


def _keys_of(lock: Any) -> tuple[str, ...]:
    """The keys of a lock."""
    plan = lock._plan
    return tuple(one.primitive.key for one in (plan.members if isinstance(plan, MultiPlan) else (plan,)))


def _started(task: Task, error: BaseException | None) -> None:
    if error is not None:
        raise AssertionError(f"{task.name} ended") from error
