"""Virtual time: one heap of events, processes with clocks of their own, and tasks that step when an event wakes them.

Everything that happens is decided by the plan and one random generator. Nothing here asks the machine for the time, for
randomness or for an order that depends on it, so the same plan gives the same trace.
"""

from __future__ import annotations

import heapq
import marshal
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from hashlib import blake2b
from random import Random
from types import CoroutineType, coroutine
from typing import Any, ParamSpec, TypeVar, cast

__all__ = ["Cancelled", "Clock", "Process", "Task", "Violation", "World", "suspend", "waits"]

Action = Callable[[Any], object]
_LEAST = 1e-9
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Violation(Exception):
    """A promise was broken; the text says which, when and by whom."""


class Cancelled(BaseException):
    """What a cancelled task gets at the point where it waits."""


def waits(function: Callable[_P, Generator[None, Any, _T]]) -> Callable[_P, CoroutineType[Any, Any, _T]]:
    """Make a coroutine of a generator: each ``yield`` waits until the task is resumed, and is what it is resumed with.

    It costs less than a coroutine that awaits ``suspend``, which is a coroutine more.
    """
    return cast("Callable[_P, CoroutineType[Any, Any, _T]]", coroutine(function))


@waits
def suspend() -> Generator[None, Any, Any]:
    """Wait until the present task is resumed; what it is resumed with."""
    return (yield)


class World:
    """The time that truly is, and what happens next.

    Attributes:
        now: Seconds since the beginning.
        random: Decides everything that the plan leaves open.
        current: The task that runs.
        trace: What happened, as plain tuples.
        counts: What happened how often.
    """

    def __init__(self, seed: int) -> None:
        self.now: float = 0.0
        self.random: Random = Random(seed)
        self.current: Task | None = None
        self.trace: list[tuple[Any, ...]] = []
        self.counts: Counter[Any] = Counter()
        self._heap: list[tuple[float, int, Action, Any]] = []
        self._order = 0
        self._ready: deque[tuple[Task | None, Any, Any]] = deque()

    def at(self, when: float, action: Action, what: Any = None) -> None:
        """Have something happen at a time; never before now."""
        self._order = order = self._order + 1
        heapq.heappush(self._heap, (when, order, action, what))

    def soon(self, action: Action, what: Any = None) -> None:
        """Have something happen now, after what is going on."""
        self._ready.append((None, action, what))

    def run(self, until: float, idle: Callable[[], bool]) -> bool:
        """Let time pass; True if ``idle`` came true, False at the end of the time."""
        heap, ready = self._heap, self._ready
        pop, take = heapq.heappop, ready.popleft
        while True:
            if ready:
                task, one, what = take()
                if task is None:
                    one(what)
                else:
                    task.come(one, what)
            elif heap and heap[0][0] <= until:
                when, _, action, what = pop(heap)
                if when > self.now:  # noqa: PLR1730 - three hundred times a seed, and a call less
                    self.now = when
                action(what)
            else:
                break
            if self.done:
                return True
        self.now = max(self.now, until)
        return idle()

    def forget(self) -> None:
        """The run is over: tasks that were to begin just now never do."""
        for task, _, _ in self._ready:
            if task is not None and not task.step:
                task.kill()

    done: bool = False
    """Ends ``run`` after the present event."""

    def note(self, *what: Any) -> None:
        """Write into the trace."""
        self.trace.append((self.now, *what))

    def digest(self) -> str:
        """A hash of all that happened."""
        # Version 2 writes values alone: later ones also write which objects are shared, which is no part of a run.
        return blake2b(marshal.dumps(self.trace, 2), digest_size=16).hexdigest()

    def fail(self, what: str) -> None:
        """Tell of a broken promise.

        Raises:
            Violation: Always.
        """
        raise Violation(f"{self.now:.4f} s: {what}")


class Clock:
    """The clocks of one machine: boot time counts suspends, monotonic time does not, wall time may be set.

    Args:
        world: Whose time it follows.
        rate: Its seconds per true second.
        offset: What boot time reads at the beginning.
    """

    def __init__(self, world: World, rate: float, offset: float) -> None:
        self._world = world
        self.rate: float = rate
        self.offset: float = offset
        self.suspended: float = 0.0
        self.wall_offset: float = 1_790_000_000.0

    def boot(self) -> float:
        """CLOCK_BOOTTIME."""
        return self.offset + self.rate * self._world.now

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC: it stands while the machine is suspended."""
        rate = self.rate
        return self.offset + rate * self._world.now - self.suspended * rate

    def wall(self) -> float:
        """CLOCK_REALTIME."""
        return self.boot() + self.wall_offset

    def true(self, boot: float) -> float:
        """The true time at which boot time reads ``boot``."""
        return (boot - self.offset) / self.rate


class Process:
    """One process: what is to happen in it waits while it is paused, and never happens once it is dead.

    Args:
        world: Where it lives.
        name: Which client it is.
        clock: The clock of its machine.
        life: How many processes of this name were there before.
    """

    def __init__(self, world: World, name: str, clock: Clock, life: int = 0) -> None:
        self.world = world
        self.name: str = name
        self.life: int = life
        self.clock: Clock = clock
        self.alive: bool = True
        self.paused_until: float = 0.0
        self.stalled: float = -1.0
        """Until when a pause or suspend may still be felt: what is late before that has an excuse."""
        self.gave_up_at: float = -1.0
        """When a request was given up last, because no answer had come in its time."""

    def pause(self, seconds: float) -> None:
        """Stop it, as SIGSTOP does, for a while."""
        self.paused_until = max(self.paused_until, self.world.now + seconds)
        self.stalled = max(self.stalled, self.paused_until)

    def suspend_machine(self, seconds: float) -> None:
        """Pause it together with its machine: timers stand still as well."""
        before = max(self.paused_until, self.world.now)
        self.pause(seconds)
        self.clock.suspended += max(0.0, self.paused_until - before)

    def soon(self, action: Action, what: Any = None) -> None:
        """Have something happen in it now, after what is going on."""
        self.world._ready.append((None, self._happen, (action, what)))

    def deliver(self, when: float, action: Action, what: Any) -> None:
        """Have something reach it at a true time."""
        world = self.world
        world._order = order = world._order + 1
        heapq.heappush(world._heap, (when, order, self._happen, (action, what)))

    def timer(self, seconds: float, action: Action, what: Any = None) -> None:
        """Have something happen after a time on its own monotonic clock."""
        world = self.world
        clock = self.clock
        # At least a nanosecond: a timer never fires before what asked for it has ended.
        least = seconds if seconds > _LEAST else _LEAST  # noqa: FURB136 - a call less
        due = world.now + least / clock.rate
        world._order = order = world._order + 1
        heapq.heappush(world._heap, (due, order, self._expire, (due, clock.suspended, action, what)))

    def _happen(self, item: tuple[Action, Any]) -> None:
        if self.paused_until > self.world.now:
            if self.alive:
                self.world.at(self.paused_until, self._happen, item)
        elif self.alive:
            item[0](item[1])

    def _expire(self, item: tuple[float, float, Action, Any]) -> None:
        due, suspended, action, what = item
        if self.alive:
            if self.clock.suspended > suspended:
                due += self.clock.suspended - suspended
                self.world.at(
                    max(due, self.world.now), self._expire, (due, self.clock.suspended, action, what)
                )
            elif self.paused_until > self.world.now:
                self.world.at(self.paused_until, self._expire, item)
            else:
                action(what)


class Task:
    """A coroutine in a process, stepped by what it waits for.

    Attributes:
        step: Which of its waits it is in: what wakes an earlier one comes too late.
        doing: What its program does at present, for traces and counts.
    """

    __slots__ = (
        "__weakref__", "doing", "done", "name", "on_end", "operation", "process", "step", "steps_left", "world",
    )  # fmt: skip

    def __init__(
        self,
        process: Process,
        name: str,
        operation: Coroutine[Any, Any, Any],
        on_end: Callable[[Task, BaseException | None], object],
    ) -> None:
        self.process: Process = process
        self.world: World = process.world
        self.name: str = name
        self.operation: Coroutine[Any, Any, Any] = operation
        self.on_end: Callable[[Task, BaseException | None], object] = on_end
        self.step: int = 0
        self.steps_left: int = -1
        self.done: bool = False
        self.doing: str = ""
        self.world._ready.append((self, 0, None))

    def wake(self, step: int, value: Any = None) -> None:
        """End its present wait soon, with a value; nothing if it is past that wait."""
        if step == self.step and not self.done:
            self.world._ready.append((self, step, value))

    def come(self, step: int, value: Any) -> None:
        """End a wait that was ended soon ago: its process may be paused, or dead, and it may be past that wait."""
        process = self.process
        if step != self.step or self.done or not process.alive:
            return
        if process.paused_until > self.world.now:
            self.world.at(process.paused_until, self._later, (step, value))
        else:
            self._go(value)

    def _later(self, item: tuple[int, Any]) -> None:
        self.come(*item)

    def over_in(self, seconds: float) -> None:
        """End its present wait after a time on its process' monotonic clock, with None; see ``Process.timer``."""
        process, world = self.process, self.world
        clock = process.clock
        least = seconds if seconds > _LEAST else _LEAST  # noqa: FURB136 - a call less
        due = world.now + least / clock.rate
        world._order = order = world._order + 1
        heapq.heappush(world._heap, (due, order, self._over, (due, clock.suspended, self.step)))

    def _over(self, item: tuple[float, float, int]) -> None:
        due, suspended, step = item
        process = self.process
        if step != self.step or self.done or not process.alive:
            # Most waits are ended by something else, long before their time is up.
            return
        world, clock = self.world, process.clock
        if clock.suspended > suspended:
            due += clock.suspended - suspended
            world.at(max(due, world.now), self._over, (due, clock.suspended, step))
        elif process.paused_until > world.now:
            world.at(process.paused_until, self._over, item)
        else:
            self._go(None)

    def cancel(self, *, after: int = 0) -> None:
        """Throw ``Cancelled`` into its present wait, or into the one that is so many waits later."""
        if after > 0:
            self.steps_left = after
        elif not self.done:
            self.process.soon(self._cancel, self.step)

    def _cancel(self, step: int) -> None:
        if step == self.step and not self.done:
            self._go(None, Cancelled())

    def _go(self, value: Any, error: BaseException | None = None) -> None:
        world = self.world
        self.step += 1
        before, world.current = world.current, self
        try:
            if error is None:
                self.operation.send(value)
            else:
                self.operation.throw(error)
        except StopIteration:
            self._end(None)
        except BaseException as raised:
            if isinstance(raised, (Violation, KeyboardInterrupt)):
                raise
            self._end(raised)
        else:
            if self.steps_left >= 0:
                self.steps_left -= 1
                if self.steps_left < 0:
                    self.process.soon(self._cancel, self.step)
        finally:
            world.current = before

    def _end(self, error: BaseException | None) -> None:
        self.done = True
        self.on_end(self, error)

    def kill(self) -> None:
        """Forget it without another step of what it waits for: its process is dead."""
        if not self.done:
            self.done = True
            self.operation.close()
