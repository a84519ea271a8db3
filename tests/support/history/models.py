"""What a lock does when one call follows another: the sequential models that a history is held against.

A state is any hashable value. A model never changes one: it gives the next, or None for a step that must not happen.
The first five are the models by which Hazelcast's locks were judged, written anew; the last is for readers and writers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.history.records import Mode

__all__ = [
    "FencedMutex",
    "Model",
    "Mutex",
    "ReadWrite",
    "ReentrantFencedMutex",
    "ReentrantMutex",
    "Semaphore",
    "Step",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, at one instant between ``start`` and ``end``.

    Attributes:
        action: ``acquire``, ``release``, ``downgrade``, or ``expire``: the server ended a lease by itself.
        who: The owner.
        start: Not before.
        end: Not after; ``inf``: perhaps never seen.
        optional: Whether it may not have happened at all.
        mode: Of an acquire.
        permits: Of an acquire.
        fence: Of an acquire, where it is known.
        operation: The ``id`` of the operation that it comes from.
    """

    action: str
    who: str
    start: float
    end: float
    optional: bool = False
    mode: Mode = Mode.EXCLUSIVE
    permits: int = 1
    fence: int | None = None
    operation: str = ""


class Model(Protocol):
    """A lock as a machine of states."""

    @property
    def initial(self) -> Hashable:
        """The state before the first step."""
        ...

    def step(self, state: Any, step: Step) -> Hashable | None:
        """The state after a step, or None if it cannot happen in this one."""
        ...


class Mutex:
    """One owner, who cannot take it twice."""

    initial: str = ""

    def step(self, state: str, step: Step) -> str | None:
        """See ``Model.step``; the state is the owner."""
        if step.action == "acquire":
            return step.who if not state else None
        return "" if state == step.who else None


class ReentrantMutex:
    """One owner, who may take it again. Calls that name no owner are their process'.

    Args:
        most: How often at most; None (default): any number of times.
    """

    of_process: bool = True
    initial: tuple[str, int] = ("", 0)

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def step(self, state: tuple[str, int], step: Step) -> tuple[str, int] | None:
        """See ``Model.step``; the state is the owner and how often it holds."""
        who, count = state
        if step.action == "acquire":
            full = self.most is not None and count >= self.most
            return (step.who, count + 1) if who in ("", step.who) and not full else None
        if who != step.who:
            return None
        return (who, count - 1) if count > 1 and step.action == "release" else ("", 0)


class FencedMutex:
    """One owner, who cannot take it twice; every fence that is known is above all before it."""

    initial: tuple[str, int] = ("", -1)

    def step(self, state: tuple[str, int], step: Step) -> tuple[str, int] | None:
        """See ``Model.step``; the state is the owner and the highest fence."""
        who, highest = state
        if step.action != "acquire":
            return ("", highest) if who == step.who else None
        if who or (step.fence is not None and step.fence <= highest):
            return None
        return step.who, highest if step.fence is None else step.fence


class ReentrantFencedMutex:
    """One owner, who may take it again with the same fence; a new owner's fence is above all before it.

    Args:
        most: How often one owner may hold it at most; None (default): any number of times.
    """

    of_process: bool = True
    initial: tuple[str, int, int | None, int] = ("", 0, None, -1)

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def step(
        self, state: tuple[str, int, int | None, int], step: Step
    ) -> tuple[str, int, int | None, int] | None:
        """See ``Model.step``; the state is the owner, how often it holds, its fence, the highest fence."""
        who, count, current, highest = state
        if step.action != "acquire":
            again = count > 1 and step.action == "release"
            after = (who, count - 1, current, highest) if again else ("", 0, None, highest)
            return after if who == step.who else None
        if who not in ("", step.who) or (self.most is not None and count >= self.most):
            return None
        known = current if step.fence is None else step.fence
        if count and current is not None:
            return (who, count + 1, current, highest) if known == current else None
        if step.fence is not None and step.fence <= highest:
            return None
        return step.who, count + 1, known, max(highest, -1 if known is None else known)


class Semaphore:
    """Permits, each lease with some of them, never more than the limit in all.

    Args:
        limit: How many there are.
    """

    initial: frozenset[tuple[str, int]] = frozenset()

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def step(self, state: frozenset[tuple[str, int]], step: Step) -> frozenset[tuple[str, int]] | None:
        """See ``Model.step``; the state is who holds how many."""
        held = dict(state)
        if step.action == "acquire":
            if step.who in held or sum(held.values()) + step.permits > self.limit:
                return None
            return state | {(step.who, step.permits)}
        return state - {(step.who, held[step.who])} if step.who in held else None


class ReadWrite:
    """Readers together, a writer alone; a writer may become a reader, and may read what it writes.

    Args:
        fenced: Whether every fence that is known must be above all before it; default True.
    """

    initial: tuple[str, tuple[str, ...], int] = ("", (), -1)

    def __init__(self, *, fenced: bool = True) -> None:
        self.fenced = fenced

    def step(
        self, state: tuple[str, tuple[str, ...], int], step: Step
    ) -> tuple[str, tuple[str, ...], int] | None:
        """See ``Model.step``; the state is the writer, the readers, the highest fence."""
        writer, readers, highest = state
        if step.action == "acquire":
            return self._acquire(writer, readers, highest, step)
        if step.action == "downgrade":
            return ("", tuple(sorted((*readers, step.who))), highest) if writer == step.who else None
        if step.who in readers:
            at = readers.index(step.who)
            return writer, readers[:at] + readers[at + 1 :], highest
        return ("", readers, highest) if writer == step.who else None

    def _acquire(
        self, writer: str, readers: tuple[str, ...], highest: int, step: Step
    ) -> tuple[str, tuple[str, ...], int] | None:
        if step.fence is not None and self.fenced:
            if step.fence < highest or (step.fence == highest and writer != step.who):
                return None
            highest = step.fence
        if step.mode is Mode.EXCLUSIVE:
            return (step.who, readers, highest) if not writer and not readers else None
        return (writer, tuple(sorted((*readers, step.who))), highest) if writer in ("", step.who) else None
