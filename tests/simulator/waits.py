"""How tasks wait: for several answers, or for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from tests.simulator.world import Process, Task, waits

__all__ = ["Group", "Sleep"]


class Group:
    """Several requests that one caller waits for."""

    __slots__ = ("left", "outcomes", "step", "task")

    def __init__(self, task: Task, count: int) -> None:
        self.task: Task = task
        self.step: int = task.step
        self.left: int = count
        self.outcomes: list[Any] = [None] * count

    def put(self, index: int, outcome: Any) -> None:
        """Take note of one outcome; with the last of them the caller goes on."""
        self.outcomes[index] = outcome
        self.left -= 1
        if not self.left:
            self.task.wake(self.step, self.outcomes)


class Sleep:
    """A sleep that may be cut short; woken first, it does not begin."""

    __slots__ = ("_process", "_step", "_woken", "task")

    def __init__(self, process: Process) -> None:
        self._process = process
        self.task: Task | None = None
        self._step = 0
        self._woken: Any = None

    @waits
    def park(self, timeout: float | None) -> Generator[None, Any, Any]:
        """Sleep until woken, or for so many seconds; what it was woken with, or False."""
        if self._woken is None:
            task = self._process.world.current
            if task is None:
                raise AssertionError("only a task sleeps")
            self.task, self._step = task, task.step
            if timeout is not None:
                task.over_in(timeout)
            try:
                yield
            finally:
                self.task = None
        woken, self._woken = self._woken, None
        return False if woken is None else woken

    def rest(self, timeout: float | None) -> Awaitable[Any]:
        """See ``Parker``."""
        return self.park(timeout)

    def unpark(self, value: Any = True) -> None:  # noqa: FBT002 - a value, not a switch
        """Wake the local waiter, with a value."""
        self._woken = value
        if self.task is not None:
            self.task.wake(self._step)
