"""Finds names that are taken in different orders, before two of the takers ever meet."""

from __future__ import annotations

import threading
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

from pawlock.core import acquire
from pawlock.core.lease import HeldLease
from pawlock.core.names import label_of

__all__ = ["Inversion", "LockOrder", "LockOrderWarning", "Taken", "lock_order"]


class LockOrderWarning(UserWarning):
    """Locks are acquired in one order here and in another there: two callers that meet deadlock."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A name that was taken while another was held.

    Attributes:
        held: The key of the name that was held.
        taken: The key of the name that was taken.
        who: The thread or task.
        stack: Where in the program, the outermost call first.
    """

    held: str
    taken: str
    who: str
    stack: str

    def __str__(self) -> str:
        return f"{self.held!r} -> {self.taken!r} by {self.who or 'somebody'}:\n{self.stack}"


@dataclass(frozen=True, slots=True)
class Inversion:
    """A cycle in the orders that were seen.

    Attributes:
        steps: Who took what while holding what; the last one closed the cycle.
    """

    steps: tuple[Taken, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The keys on the cycle, the first again at its end."""
        return (*(step.held for step in self.steps), self.steps[0].held)

    def __str__(self) -> str:
        return f"taken in different orders: {' -> '.join(self.names)}\n" + "\n".join(map(str, self.steps))


class LockOrder:
    """What was seen of the order in which threads and tasks take names.

    Attributes:
        inversions: The cycles, in the order in which they were seen; each pair of names is listed once.
    """

    def __init__(self) -> None:
        self.inversions: list[Inversion] = []
        self._guard = threading.RLock()
        self._edges: dict[str, dict[str, Taken]] = {}
        self._held: dict[object, list[ref[HeldLease]]] = {}

    def _took(self, lease: HeldLease) -> None:
        key = lease.hold.primitive.key
        with self._guard:
            # What was released since is not held any more, however it came to its end.
            known = [one for one_ref in self._held.get(lease.who, ()) if (one := one_ref()) is not None]
            mine = [one for one in known if not one.released]
            for held in dict.fromkeys(one.hold.primitive.key for one in mine):
                if held != key and key not in self._edges.get(held, {}):
                    self._add(Taken(held, key, label_of(lease.who), _stack()))
            self._held[lease.who] = [ref(one) for one in (*mine, lease)]

    def _add(self, taken: Taken) -> None:
        back = self._path(taken.taken, taken.held)
        self._edges.setdefault(taken.held, {})[taken.taken] = taken
        if back is not None:
            self.inversions.append(Inversion((*back, taken)))

    def _path(self, start: str, end: str) -> list[Taken] | None:
        ways: list[tuple[str, list[Taken]]] = [(start, [])]
        seen = {start}
        for name, way in ways:
            if name == end:
                return way
            for following, step in self._edges.get(name, {}).items():
                if following not in seen:
                    seen.add(following)
                    ways.append((following, [*way, step]))
        return None


def _stack() -> str:
    frames = [frame for frame in traceback.extract_stack() if not _is_ours(frame.filename)]
    return "".join(traceback.format_list(frames[-8:]))


def _is_ours(filename: str) -> bool:
    path = filename.replace("\\", "/")
    return "/pawlock/" in path and "/tests/" not in path


@contextmanager
def lock_order() -> Generator[LockOrder, None, None]:
    """Watch in which order names are taken by the threads and tasks of this process, by all its clients.

    A test that takes ``a`` then ``b`` in one place and ``b`` then ``a`` in another passes every time in which the two
    do not meet. This sees both orders, and warns with both places when the block ends. Cycles of more names are
    found as well. Taking names one after the other, without holding one, is no order. For tests: each grant costs some
    microseconds more, one inside another some tens.

    Yields:
        What was seen; ``inversions`` is the list to assert on.

    Warns:
        LockOrderWarning: At the end, once for each inversion.
    """
    order = LockOrder()
    # Any: methods of a class are put in and taken out, which has no type.
    leases: Any = HeldLease
    taking: Any = acquire
    make: Callable[..., None] = leases.__init__

    def watched_init(lease: HeldLease, *args: Any) -> None:
        make(lease, *args)
        # One that is made before a local wait is nobody's yet.
        if hasattr(lease, "hold"):
            order._took(lease)

    own: Callable[..., HeldLease | None] = taking.own_given

    def watched_own(*args: object) -> HeldLease | None:
        lease = own(*args)
        if lease is not None:
            order._took(lease)
        return lease

    leases.__init__ = watched_init
    taking.own_given = watched_own
    try:
        yield order
    finally:
        leases.__init__ = make
        taking.own_given = own
        for inversion in order.inversions:
            warnings.warn(LockOrderWarning(str(inversion)), stacklevel=3)
