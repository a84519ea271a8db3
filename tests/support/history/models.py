"""What a lock does when one call follows another: the sequential models that a history is held against.

A state is any hashable value. A model never changes one: it gives the next, or None for a step that must not happen.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.history.records import Mode

__all__ = [
    "FencedMutex",
    "Model",
    "ReadWrite",
    "Semaphore",
    "Step",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, at one instant between ``start`` and ``end``.

    Attributes:
        action: ``acquire``, ``release``, ``downgrade``, or ``expire``: the server ended a lease by itself.
        who: The lease: the ``id`` of its acquire.
        start: Not before.
        end: Not after; ``inf``: perhaps never seen.
        optional: Whether it may not have happened at all.
        mode: Of an acquire.
        permits: Of an acquire.
        fence: Of an acquire, where it is known.
    """

    action: str
    who: str
    start: float
    end: float
    optional: bool = False
    mode: Mode = Mode.EXCLUSIVE
    permits: int = 1
    fence: int | None = None


class Model(Protocol):
    """A lock as a machine of states."""

    @property
    def initial(self) -> Hashable:
        """The state before the first step."""
        ...

    def step(self, state: Any, step: Step) -> Hashable | None:
        """The state after a step, or None if it cannot happen in this one."""
        ...


class FencedMutex:
    """One owner; every fence that is known is above all before it."""

    initial: tuple[str, int] = ("", -1)

    def step(self, state: tuple[str, int], step: Step) -> tuple[str, int] | None:
        """See ``Model.step``; the state is the owner and the highest fence."""
        who, highest = state
        if step.action != "acquire":
            return ("", highest) if who == step.who else None
        if who or (step.fence is not None and step.fence <= highest):
            return None
        return step.who, highest if step.fence is None else step.fence


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
            fits = sum(held.values()) + step.permits <= self.limit
            return state | {(step.who, step.permits)} if fits else None
        return state - {(step.who, held[step.who])} if step.who in held else None


class ReadWrite:
    """Readers together, a writer alone; a writer may become a reader.

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
            if step.fence <= highest:
                return None
            highest = step.fence
        if writer:
            return None
        if step.mode is Mode.EXCLUSIVE:
            return (step.who, (), highest) if not readers else None
        return "", tuple(sorted((*readers, step.who))), highest
