"""Whether a history is one that a sequential lock could have: the search of Wing and Gong with Lowe's memory.

Each operation takes effect at one instant between its invocation and its answer. Is there an order of these instants
that the model allows? One whose outcome nobody knows may take effect at any time after its invocation, or never; a
lease that its owner did not release may end by itself once its deadline has passed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import inf

from tests.support.history.models import Model, Step
from tests.support.history.records import History, Operation, Outcome

__all__ = ["TooManySteps", "Verdict", "linearizable", "steps_of"]


class TooManySteps(RuntimeError):
    """The search was given up: the history is too long, or has too many operations at the same time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the search found; true in a condition if the history is linearizable.

    Attributes:
        ok: Whether there is an order that the model allows.
        name: The name that was judged.
        tried: How many states were looked at.
        order: That order, or the longest beginning of one.
        stuck: Of a history that has none: what should have come next, none of which is allowed.
        state: The model's state in which it was stuck.
    """

    ok: bool
    name: str
    tried: int
    order: tuple[Step, ...]
    stuck: tuple[Step, ...] = ()
    state: Hashable = None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name!r} is linearizable ({len(self.order)} steps)"
        origin = min((step.start for step in (*self.order, *self.stuck)), default=0.0)
        lines = [
            f"{self.name!r} is not linearizable: after {len(self.order)} steps, in state {self.state!r},"
        ]
        lines += [f"    was   {_line(step, origin)}" for step in self.order[-5:]]
        lines += [f"    not   {_line(step, origin)}" for step in self.stuck[:8]]
        return "\n".join(lines)


def _line(step: Step, origin: float) -> str:
    end = "..." if step.end == inf else f"{step.end - origin:.6f}"
    fence = "" if step.fence is None else f" fence {step.fence}"
    maybe = " (perhaps)" if step.optional else ""
    return f"[{step.start - origin:.6f} – {end}] {step.who} {step.action} {step.mode}{fence}{maybe}"


def linearizable(history: History, model: Model, name: str = "", *, most: int = 1_000_000) -> Verdict:
    """Search for an order of the operations on a name that the model allows.

    Args:
        history: What happened.
        model: The lock as it should be; see ``models``.
        name: The name to judge; may be left out where the history has one only.
        most: How many states to look at before giving up; default a million.

    Returns:
        The verdict.

    Raises:
        ValueError: The history has several names and none was given.
        TooManySteps: It was given up.
    """
    if not name:
        names = history.names
        if len(names) > 1:
            raise ValueError(f"which name is to be judged: {', '.join(names)}?")
        name = names[0] if names else ""
    steps = sorted(steps_of(history, name), key=lambda step: step.start)
    return _search(name, steps, model, most)


def steps_of(history: History, name: str) -> Iterator[Step]:
    """What may have happened to a name, by its history: the calls that may have worked, and leases that may have ended.

    Args:
        history: What happened.
        name: The name.
    """
    for operation in history.of(name, "acquire"):
        if operation.outcome is Outcome.FAIL:
            continue
        unsure = operation.outcome is Outcome.INFO
        yield Step(
            "acquire",
            operation.id,
            operation.start,
            inf if unsure else operation.end,
            unsure,
            operation.mode,
            operation.permits,
            operation.fence,
        )
        released = False
        for other in operation.ended_by:
            if other.outcome is Outcome.FAIL:
                continue
            doubt = other.outcome is Outcome.INFO
            released = released or (other.action == "release" and not doubt)
            end = inf if doubt else other.end
            yield Step(other.action, operation.id, other.start, end, doubt)
        if not released:
            yield Step("expire", operation.id, _may_end(operation), inf, True)


def _may_end(operation: Operation) -> float:
    """From when on the server may have ended a lease by itself."""
    if operation.outcome is Outcome.INFO or operation.told < operation.deadline:
        # Nobody knows its deadline, or somebody removed it before: its owner was notified.
        return operation.start
    return min(operation.deadline, operation.forgotten)


def _search(name: str, steps: list[Step], model: Model, most: int) -> Verdict:
    needed = sum(1 << at for at, step in enumerate(steps) if not step.optional)
    state, done, first = model.initial, 0, 0
    path: list[int] = []
    best: tuple[list[int], int, int, Hashable] = ([], 0, 0, state)
    seen: set[tuple[int, Hashable]] = set()
    todo = [(done, first, state, iter(_next(steps, done, first)))]
    while todo:
        if done & needed == needed:
            return Verdict(True, name, len(seen), tuple(steps[at] for at in path))
        done, first, state, choices = todo[-1]
        for at in choices:
            after = model.step(state, steps[at])
            if after is None or (done | 1 << at, after) in seen:
                continue
            done, state = done | 1 << at, after
            seen.add((done, state))
            if len(seen) > most:
                raise TooManySteps(f"{name!r}: no verdict after {most} states of {len(steps)} steps")
            while done >> first & 1:
                first += 1
            path.append(at)
            if len(path) > len(best[0]):
                best = (list(path), done, first, state)
            todo.append((done, first, state, iter(_next(steps, done, first))))
            break
        else:
            todo.pop()
            if path:
                path.pop()
            done = todo[-1][0] if todo else done
    return _stuck(name, steps, best, len(seen))


def _stuck(name: str, steps: list[Step], best: tuple[list[int], int, int, Hashable], tried: int) -> Verdict:
    path, done, first, state = best
    stuck = [steps[at] for at in _next(steps, done, first)]
    order = tuple(steps[at] for at in path)
    return Verdict(False, name, tried, order, tuple(step for step in stuck if not step.optional), state)


def _next(steps: list[Step], done: int, first: int) -> list[int]:
    """What may come next: whatever began before everything that must still come has ended; the surest first."""
    found: list[int] = []
    until = inf
    for at in range(first, len(steps)):
        if done >> at & 1:
            continue
        if steps[at].start > until:
            break
        until = min(until, steps[at].end)
        found.append(at)
    return sorted((at for at in found if steps[at].start <= until), key=lambda at: steps[at].end)
