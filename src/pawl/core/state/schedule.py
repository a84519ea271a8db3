"""When each lease of a client is due: for renewal, for a check of a deadline, or for another try.

Leases with the same rhythm become due in the order in which they were added, so each rhythm has one row (an ordered
dict) instead of a place in a heap: adding and removing cost the same for one lease and for a hundred thousand, and a
lease that is released before it is due leaves nothing behind. The few that fall out of rhythm (tries after a
failure, ends of ``max_hold``) are kept in a heap.

A row that is empty counts as due one rhythm from now: nothing that is added to it can be due earlier, so short holds
need not wake the upkeep each time. It is forgotten once a whole rhythm passed without use.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from contextlib import AbstractContextManager
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawl.core.state.records import Tenure

__all__ = ["Schedule"]


_EARLY = 0.02
"""Share of a rhythm by which a lease may be served early, together with another one."""


def _need(tenure: Tenure, due: float) -> float:
    return max(due, (due + tenure.valid_until) / 2) if due < tenure.valid_until else tenure.valid_until


class _Row(OrderedDict["Tenure", float]):
    """The leases of one rhythm, in the order in which they are due."""

    last_due = 0.0


class Schedule:
    """The due times of one client's leases. Every method may be called from any thread."""

    __slots__ = ("_guard", "_heap", "_in_hand", "_moves", "_rows", "_sequence", "_taken_at", "_wake_at")

    def __init__(self, guard: AbstractContextManager[object]) -> None:
        self._guard = guard
        self._rows: dict[tuple[float, bool], _Row] = {}
        self._heap: list[tuple[float, int, Tenure]] = []
        self._in_hand: list[Tenure] = []
        self._sequence = 0
        self._moves = 0
        self._taken_at = 0.0
        self._wake_at = -inf

    def add(self, tenure: Tenure, every: float, due: float, *, deadline: bool = False) -> bool:
        """Put a lease into the row of its rhythm.

        Args:
            tenure: The lease.
            every: Its rhythm in seconds.
            due: When it is due; not before any other of the same rhythm, or it is served with that one.
            deadline: True if its life ends then unless something happens: a wait for the server must not pass it.

        Returns:
            True if the upkeep sleeps past ``due`` and must be nudged; also for a rhythm that was not there, which those
            do not know who look from another thread.
        """
        rows, key = self._rows, (every, deadline)
        row = rows.get(key)
        if row is None:
            row = _Row()
        with self._guard:
            late = due < self._wake_at
            if key in rows:
                row = rows[key]
            else:
                rows[key] = row
                late = True
            row[tenure] = row.last_due = due
            tenure.row = row
            return late

    def add_again(self, tenures: Sequence[Tenure], now: float) -> None:
        """Put leases that the upkeep has in hand into the rows of their own rhythms, from now on.

        For the upkeep alone, which looks at the rows before it sleeps: nobody need nudge it.
        """
        with self._guard:
            for tenure in tenures:
                # One that was released since then is nobody's any more.
                if tenure.live:
                    every = tenure.every
                    row = self._rows.get((every, False))
                    if row is None:
                        row = self._rows[every, False] = _Row()
                    row[tenure] = row.last_due = now + every
                    tenure.row = row

    def add_once(self, tenure: Tenure, due: float) -> bool:
        """Have a lease served once, out of rhythm; otherwise as ``add``."""
        with self._guard:
            self._sequence += 1
            entry = due, self._sequence, tenure
            tenure.row = None
        heapq.heappush(self._heap, entry)
        return due < self._wake_at

    def discard(self, tenure: Tenure) -> None:
        """Take a lease out of its row. One in the heap is dropped when its time comes."""
        row = tenure.row
        if row is not None:
            with self._guard:
                if tenure in row:
                    del row[tenure]

    def take_due(self, now: float, most: int) -> list[Tenure]:
        """The leases that are due, at most ``most``; the caller puts back those that go on.

        Where one of a rhythm is due, those that follow within a fiftieth of the rhythm come along: of many leases that
        are due at all times, each turn of the upkeep serves many.
        """
        taken: list[Tenure] = []
        with self._guard:
            self._moves += 1
            self._wake_at = -inf
            self._forget_unused(now)
            for (every, deadline), row in self._rows.items():
                if not row or row[next(iter(row))] > now:
                    continue
                # A deadline is no earlier than it is.
                until = now if deadline else now + every * _EARLY
                while row and len(taken) < most:
                    tenure, due = next(iter(row.items()))
                    if due > until:
                        break
                    del row[tenure]
                    tenure.row = None
                    taken.append(tenure)
            while self._heap and self._heap[0][0] <= now and len(taken) < most:
                tenure = heapq.heappop(self._heap)[2]
                if tenure.live:
                    taken.append(tenure)
            self._in_hand, self._taken_at = taken, now
        return taken

    def _forget_unused(self, now: float) -> None:
        for key in [key for key, row in self._rows.items() if not row and row.last_due < now]:
            del self._rows[key]

    def sleep_until(self, now: float) -> float:
        """When to look again (infinity: never); from now on ``add`` says when that is too late."""
        with self._guard:
            due = self._heap[0][0] if self._heap else inf
            for (every, _), row in self._rows.items():
                due = min(due, next(iter(row.values())) if row else now + every)
            self._wake_at = due
            return due

    def first_need(self) -> float:
        """When a wait for the server must be over, for the sake of the leases that are not in hand.

        That is the end of a life that nobody renews. A renewal must go out once half of the time from when it is due
        to the end of validity has passed: the rest is for a new connection and its answer. Of each rhythm, only the
        next lease is asked.
        """
        with self._guard:
            need = min((_need(entry[2], entry[0]) for entry in self._heap if entry[2].live), default=inf)
            for (_, deadline), row in self._rows.items():
                if row:
                    tenure, due = next(iter(row.items()))
                    need = min(need, due if deadline else _need(tenure, due))
            return need

    def overdue(self, now: float) -> tuple[float, list[tuple[Tenure, float]]]:
        """The leases whose renewal is due, with since when, and when the next one is; for another thread to look.

        What the upkeep has in hand counts as due since it was taken. While it is at work, nobody is nudged for a lease
        that is due once: it has to be looked for then, within a part of the shortest rhythm.
        """
        found: list[tuple[Tenure, float]] = []
        with self._guard:
            soonest = inf
            if self._wake_at == -inf:
                soonest = now + min((every for every, _ in self._rows), default=0.0) / 8
            for (every, deadline), row in self._rows.items():
                if deadline:
                    continue
                if not row:
                    soonest = min(soonest, now + every)
                for tenure, due in row.items():
                    if due > now:
                        soonest = min(soonest, due)
                        break
                    found.append((tenure, due))
            apart: set[Tenure] = set()
            for due, _, tenure in self._heap:
                apart.add(tenure)
                if due > now:
                    soonest = min(soonest, due)
                else:
                    found.append((tenure, due))
            found += [(t, self._taken_at) for t in self._in_hand if t.row is None and t not in apart]
        return soonest, [one for one in found if one[0].live]

    def all(self) -> list[Tenure]:
        """Every lease that is scheduled or in the upkeep's hands."""
        while True:
            with self._guard:
                moves = self._moves
            # Each list is made in one step of C, so nobody is met in the middle of a change.
            found: dict[Tenure, None] = {}
            for row in list(self._rows.values()):
                found.update(dict.fromkeys(list(row)))
            found.update(dict.fromkeys(entry[2] for entry in list(self._heap)))
            found.update(dict.fromkeys(self._in_hand))
            # Otherwise the upkeep took some in hand meanwhile.
            if moves == self._moves:
                return [tenure for tenure in found if tenure.live]

    def busy(self) -> bool:
        """Whether there is any lease, or was one a rhythm ago."""
        return bool(self._rows or self._heap)

    def some(self, most: int) -> list[Tenure]:
        """Up to ``most`` leases that the upkeep has in hand, and as many of each rhythm: the next ones to be due."""
        with self._guard:
            found = self._in_hand[:most]
            found += [tenure for row in self._rows.values() for tenure in islice(row, most)]
            found += [entry[2] for entry in self._heap[:most]]
        return [tenure for tenure in dict.fromkeys(found) if tenure.live]

    def clear(self) -> None:
        """Forget all of them."""
        rows: dict[tuple[float, bool], _Row] = {}
        heap: list[tuple[float, int, Tenure]] = []
        nobody: list[Tenure] = []
        with self._guard:
            self._rows, self._heap, self._in_hand = rows, heap, nobody
