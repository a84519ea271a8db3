"""One run of a plan: the processes, what their workers do, and what must be true at the end."""

from __future__ import annotations

import gc
import logging
import math
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pawlock.core.plan import Plan as LockPlan
from pawlock.primitives.multi.lease import MultiPlan
from tests.simulator.faults import plant, strike
from tests.simulator.fleet import Fleet
from tests.simulator.invariants import STRANGER
from tests.simulator.liveness import GRACE, Liveness
from tests.simulator.member import Member
from tests.simulator.network import Network
from tests.simulator.oracle import Oracle
from tests.simulator.plan import BY_MESSAGE, MEMORY, MOVES, Fault, Plan
from tests.simulator.record import Recorder
from tests.simulator.strangers import Stranger
from tests.simulator.world import Process, Task, Violation, World

__all__ = ["Result", "Simulation", "quiet", "run"]

_PATIENCE = 300.0
_CLOSED_WITHIN = 5.0
_HEALS_WITHIN = 2.0
_MOVED = 8.0


class Result(NamedTuple):
    """What came of a run.

    Attributes:
        digest: A hash of all that happened.
        violation: The promise that was broken, or "".
        counts: What happened how often; pairs are a fault and the operation that it struck.
        trace: What happened.
        seconds: Virtual seconds that passed.
    """

    digest: str
    violation: str
    counts: dict[Any, int]
    trace: list[tuple[Any, ...]]
    seconds: float


class Simulation:
    """One run of a plan.

    Args:
        plan: What happens.
        edit: Changes the text of a script, for mutants: name and text to text.
    """

    def __init__(self, plan: Plan, edit: Callable[[str, bytes], bytes] | None = None) -> None:
        self.plan: Plan = plan
        self.world: World = World(plan.seed)
        self.network: Network = Network(self.world, plan.base, plan.tail)
        self.fleet: Fleet = Fleet(self.world, plan, edit)
        lone = all(fault.kind == "one_reply" for fault in plan.faults)
        self.oracle: Oracle = Oracle(
            self.world, self.fleet, plan.longest_ttl(), lone=lone and plan.deadlock_after > 0
        )
        # Slots on their way, one after the other at worst, arrive within the time for which a server is asked again.
        self.only_moves: bool = (
            all(fault.kind in MOVES for fault in plan.faults)
            and sum(fault.last for fault in plan.faults) < _MOVED
        )
        self.liveness: Liveness = Liveness(self.world, self.fleet, plan.longest_ttl())
        self.liveness.suit(plan)
        self.network.orderly = self.fleet.masters
        self.network.count = self._struck
        if self.fleet.pair is not None:
            self.fleet.pair.network = self.network
            self.fleet.pair.promoted = self.oracle.promoted
        if self.fleet.cluster is not None:
            self.fleet.cluster.connect(self.network, self.oracle.refresh)
        self.network.refused = self.oracle.refused
        self.oracle.muddled = self.network.muddled
        self.recorder: Recorder = Recorder(self.world)
        self.names: list[str] = [f"c{number}" for number in range(len(plan.clients))]
        self.working: int = 0
        self.tickets: list[tuple[str, int]] = []
        self.loose: set[str] = set()
        self.killed: set[str] = set()
        self.closers: list[Task] = []
        self._windows: list[tuple[float, str, str | None]] = []
        self._aimed: list[Fault] = []
        self._healed_at = 0.0
        self.members: list[Member] = [Member(self, number) for number in range(len(plan.clients))]
        self.visitors: list[Stranger] = [Stranger(self, one, n) for n, one in enumerate(plan.visitors)]
        self._pending = len(plan.faults)
        for fault in plan.faults:
            plant(self, fault)

    # For faults -------------------------------------------------------------------------------------------------

    def main_keys(self) -> list[str]:
        """The key of each name that is locked, as an administrator would delete it."""
        found: set[str] = set()
        for lock in self.members[0].locks:
            plan = getattr(lock, "_plan", None)
            if isinstance(plan, MultiPlan):
                found |= {member.primitive.key for member in plan.members}
            elif isinstance(plan, LockPlan):
                found.add(plan.primitive.key)
        return sorted(found)

    def process(self, fault: Fault) -> Process:
        """The process that a fault concerns."""
        return self.members[fault.client or 0].process

    def strike(self, fault: Fault) -> None:
        """Note what a fault finds going on."""
        self._pending -= 1
        whom = None if fault.client is None else self.names[fault.client]
        counted = fault.kind not in BY_MESSAGE
        # A failover takes a while beside: the replica stands in, and the old master comes back.
        self._healed_at = max(self._healed_at, self.world.now + 2 * fault.last + _HEALS_WITHIN)
        for member in self.members:
            if whom is None or member.process.name == whom:
                for task in member.tasks:
                    if counted and task.doing:
                        self._struck(fault.kind, task.doing)
                if counted and any(runtime._maintenance is not None for runtime in member.runtimes):
                    self._struck(fault.kind, "maintenance")
        if counted and fault.last:
            self._windows.append((self.world.now + fault.last, fault.kind, whom))
        self.settle()

    def rolled(self) -> None:
        """A restart of all masters, one after the other, is over."""

    def healed_at(self) -> float:
        """When all is well again; never, as long as a fault is still to come."""
        return math.inf if self._pending or self._aimed else self._healed_at

    def aim(self, fault: Fault) -> None:
        """Have a fault strike once an operation of its kind has begun; it never does if none begins any more."""
        self._pending -= 1
        self._aimed.append(fault)
        self.settle()

    def _struck(self, fault: str, operation: str) -> None:
        self.world.counts[fault, operation] += 1

    def began(self, process: Process, doing: str) -> None:
        """Note that an operation begins while faults are on."""
        self.world.counts[doing] += 1
        if self._aimed:
            for fault in self._aimed:
                if fault.aim == doing and (fault.client is None or self.names[fault.client] == process.name):
                    self._aimed.remove(fault)
                    self._pending += 1
                    strike(self, fault)
                    break
        if self._windows:
            now = self.world.now
            self._windows = [window for window in self._windows if window[0] > now]
            for _, kind, whom in self._windows:
                if whom is None or whom == process.name:
                    self._struck(kind, doing)

    def kill(self, number: int, *, restart_after: float) -> None:
        """Kill a client's process; another one goes on with its work later."""
        member = self.members[number]
        if member.process.alive and not member.closing:
            member.kill()
            self._again(member, restart_after)

    def _again(self, member: Member, after: float) -> None:
        self.working += 1

        def start(_: object) -> None:
            self.working -= 1
            member.start()
            self.settle()

        self.world.at(self.world.now + after, start)

    def cancel(self, number: int, *, after: int) -> None:
        """Cancel a task of a client, at its present wait or some waits later."""
        busy = [task for task in self.members[number].tasks if not task.done and task.doing]
        if busy:
            self.world.random.choice(busy).cancel(after=after)

    def close(self, number: int, *, restart_after: float) -> None:
        """Close a client; another one goes on with its work later."""
        member = self.members[number]
        if not member.process.alive or member.closing:
            return
        member.closing = True
        self.working += 1

        def ended(_: Task, error: BaseException | None) -> None:
            if error is not None:
                raise Violation(f"{self.world.now:.4f} s: close failed: {error!r}") from error
            # Whoever was asking something is told within the time of a connection's attempt.
            self.world.at(self.world.now + _CLOSED_WITHIN, lambda _: self._close_rest(member, restart_after))

        self.closers.append(Task(member.process, "close", member.end(5.0), ended))

    def _close_rest(self, member: Member, restart_after: float) -> None:
        self.working -= 1
        self.recorder.died(member.process)
        member.process.alive = False
        self.killed.add(f"@{member.process.name}:{member.process.life}/")
        for task in member.tasks:
            if not task.done:
                if task.doing not in ("", "hold"):
                    where = f"{task.name} of {member.process.name}"
                    self.world.fail(f"{where} still waits in {task.doing!r} after close()")
                task.kill()
                self.working -= 1
        self._again(member, restart_after)

    # The end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End the run once everything is done."""
        self.world.done = not self.working and not self._pending

    def run(self) -> None:
        """Run to the end.

        Raises:
            Violation: A promise was broken.
        """
        world = self.world
        until = _PATIENCE + sum(fault.at + fault.last for fault in self.plan.faults)
        if not world.run(until, lambda: world.done):
            stuck = [
                f"{task.process.name}/{task.name} in {task.doing!r}"
                for member in self.members
                for task in member.tasks
                if not task.done
            ]
            world.fail(
                f"still waiting after everything healed: {', '.join(stuck)}; on the servers: {self.oracle.left()}"
            )
        self._drain()
        self._check_rest()
        if self.fleet.forgot_at() < 0 and (wrong := self.recorder.judge(linear=self.plan.seed % 4 == 0)):
            world.fail(f"history: {wrong}")

    def _pass(self, seconds: float) -> None:
        """Let time pass with nothing to do."""
        self.world.done = False
        self.world.run(self.world.now + seconds, lambda: False)

    def _drain(self) -> None:
        world = self.world
        for _ in range(140):
            if not any(engine.outbox for m in self.members if m.process.alive for engine in m.engines):
                return
            world.done = False
            world.run(world.now + 0.5, lambda: False)
        world.fail("tokens are still to be left after everything healed")

    def _check_rest(self) -> None:
        kinds = {fault.kind for fault in self.plan.faults}
        for member in self.members:
            for engine in member.engines if member.process.alive else ():
                if engine.calls or len(engine.local_queues) > len(self.loose):
                    name, queues = member.process.name, len(engine.local_queues)
                    self.world.fail(f"{name} still has {engine.calls} under way, {queues} queues")
        if self.fleet.cluster is not None and (astray := self.fleet.cluster.astray()):
            self.world.fail(f"cluster: nobody looks for {', '.join(astray)}")
        everything = kinds <= _LOSE_NOTHING
        if kinds & _RESURRECT:
            return
        if self.fleet.masters:
            # What a master did not answer it gets once more, and after that the ttl ends it.
            self._pass(GRACE + 2.0 if everything else _LATEST + 1.1 * self.plan.longest_ttl())
        for token, name in self.oracle.left(everything=everything).items():
            if (
                token in self.loose
                or token.startswith(STRANGER)
                or any(mark in token for mark in self.killed)
            ):
                continue
            self.world.fail(f"orphan: nobody knows of {token}, which holds or waits for {name}")


# With the tombstones gone, or out of date, a late copy may bring a token back; its ttl ends it.
_LATEST = 15.0
_LOSE_NOTHING = frozenset({"double", "pause", "suspend", "wall_jump", "no_scripts", "cancel"})
_RESURRECT = MEMORY - {"admin_delete"}


def run(plan: Plan, edit: Callable[[str, bytes], bytes] | None = None) -> Result:
    """Run a plan.

    Args:
        plan: What happens.
        edit: Changes the text of a script, for mutants.

    Returns:
        What came of it.
    """
    with quiet():
        return _run(Simulation(plan, edit))


def _run(sim: Simulation) -> Result:
    violation = ""
    try:
        sim.run()
    except Violation as broken:
        violation = str(broken)
        sim.world.note("violation", violation)
    counts = dict(sim.world.counts)
    counts.update(sim.oracle.counts)
    result = Result(sim.world.digest(), violation, counts, sim.world.trace, sim.world.now)
    for member in sim.members:
        # Nothing of it may act, or warn, while it is taken apart.
        member.kill()
    for closer in sim.closers:
        closer.kill()
    sim.world.forget()
    return result


_quiet: list[None] = []


@contextmanager
def quiet() -> Generator[None]:
    """Many runs in a row: no logging, no warnings of dropped leases, no collector at a moment of its own choice."""
    if _quiet:
        yield
        return
    log = logging.getLogger("pawlock")
    level, collecting = log.level, gc.isenabled()
    log.setLevel(logging.CRITICAL + 1)
    gc.disable()
    # What was there before is nothing to look through: that took longer than the runs.
    gc.freeze()
    _quiet.append(None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            yield
            # What a run leaves in circles goes before warnings are heard again.
            gc.collect()
    finally:
        _quiet.clear()
        gc.unfreeze()
        log.setLevel(level)
        if collecting:
            gc.enable()
