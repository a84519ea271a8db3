"""When each lease of a client is due: for renewal, for a check of a deadline, or for another try.

Leases with the same rhythm become due in the order in which they were added, so each rhythm has one row (an ordered
dict) instead of a place in a heap: adding and removing cost the same for one lease and for a hundred thousand, and a
lease that is released before it is due leaves nothing behind. The few that fall out of rhythm (tries after a
failure, ends of ``max_hold``) are kept apart, each with the one time at which it is served next.

A row that is empty counts as due one rhythm from now: nothing that is added to it can be due earlier, so short holds
need not wake the maintenance each time. It is forgotten once a whole rhythm passed without use.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawl.core.state.records import ServerLease

__all__ = ["Schedule"]


_EARLY = 0.02
"""Share of a rhythm by which a lease may be served early, together with another one."""


def _need(server_lease: ServerLease, due: float) -> float:
    return min(server_lease.valid_until, (due + server_lease.valid_until) / 2)


class _Row(OrderedDict["ServerLease", float]):
    """The leases of one rhythm, in the order in which they are due."""

    last_due = 0.0


class Schedule:
    """The due times of one client's leases. Every method may be called from any thread."""

    __slots__ = ("_guard", "_in_hand", "_moves", "_once", "_rows", "_taken_at", "_wake_at")

    def __init__(self, guard: AbstractContextManager[object]) -> None:
        self._guard = guard
        self._rows: dict[tuple[float, bool], _Row] = {}
        self._once: dict[ServerLease, float] = {}
        self._in_hand: list[ServerLease] = []
        self._moves = 0
        self._taken_at = 0.0
        self._wake_at = -inf

    def add(self, server_lease: ServerLease, every: float, due: float, *, deadline: bool = False) -> bool:
        """Put a lease into the row of its rhythm.

        Args:
            server_lease: The lease.
            every: Its rhythm in seconds.
            due: When it is due; not before any other of the same rhythm, or it is served with that one.
            deadline: True if its life ends then unless something happens: a wait for the server must not pass it.

        Returns:
            True if the maintenance sleeps past ``due`` and must be nudged; also for a rhythm that was not there, which
            those do not know who look from another thread.
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
            row[server_lease] = row.last_due = due
            server_lease.row = row
            if self._once and server_lease in self._once and self._once[server_lease] > due:
                # Its row comes first, and a release takes it out of that alone.
                del self._once[server_lease]
            return late

    def add_again(self, server_leases: Sequence[ServerLease], now: float) -> None:
        """Put leases that the maintenance has in hand into the rows of their own rhythms, from now on.

        For the maintenance alone, which looks at the rows before it sleeps: nobody need nudge it.
        """
        with self._guard:
            for server_lease in server_leases:
                # One that was released since then is nobody's any more.
                if server_lease.live:
                    every = server_lease.rhythm.every
                    row = self._rows.get((every, False))
                    if row is None:
                        row = self._rows[every, False] = _Row()
                    row[server_lease] = row.last_due = now + every
                    server_lease.row = row

    def add_once(self, server_lease: ServerLease, due: float) -> bool:
        """Have a lease served once, out of rhythm, and no later than it is to be already; otherwise as ``add``."""
        with self._guard:
            server_lease.row = None
            if server_lease not in self._once or due < self._once[server_lease]:
                self._once[server_lease] = due
            return due < self._wake_at

    def discard(self, server_lease: ServerLease, *, once: bool = True) -> None:
        """Take a lease out of its row; without ``once``, what is asked for out of rhythm still is."""
        row = server_lease.row
        with self._guard:
            if row is not None and server_lease in row:
                del row[server_lease]
            if once and server_lease in self._once:
                del self._once[server_lease]

    def take_due(self, now: float, most: int) -> list[ServerLease]:
        """The leases that are due, at most ``most``; the caller puts back those that go on.

        Where one of a rhythm is due, those that follow within a fiftieth of the rhythm come along: of many leases that
        are due at all times, each turn of the maintenance serves many.
        """
        taken: list[ServerLease] = []
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
                    server_lease, due = next(iter(row.items()))
                    if due > until:
                        break
                    del row[server_lease]
                    server_lease.row = None
                    taken.append(server_lease)
            for server_lease in [one for one, due in self._once.items() if due <= now][: most - len(taken)]:
                del self._once[server_lease]
                if server_lease.live:
                    taken.append(server_lease)
            self._in_hand, self._taken_at = taken, now
        return taken

    def _forget_unused(self, now: float) -> None:
        for key in [key for key, row in self._rows.items() if not row and row.last_due < now]:
            del self._rows[key]

    def sleep_until(self, now: float) -> float:
        """When to look again (infinity: never). Nothing is in hand, and ``add`` says from now on when that is late."""
        nobody: list[ServerLease] = []
        with self._guard:
            self._moves += 1
            self._in_hand = nobody
            due = min(self._once.values(), default=inf)
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
            need = min((_need(one, due) for one, due in self._once.items() if one.live), default=inf)
            for (_, deadline), row in self._rows.items():
                if row:
                    server_lease, due = next(iter(row.items()))
                    need = min(need, due if deadline else _need(server_lease, due))
            return need

    def overdue(self, now: float) -> tuple[float, list[tuple[ServerLease, float]]]:
        """The leases whose renewal is due, with since when, and when the next one is; for another thread to look.

        What the maintenance has in hand counts as due since it was taken. While it is at work, nobody is nudged for a
        lease that is due once: it has to be looked for then, within a part of the shortest rhythm.
        """
        found: list[tuple[ServerLease, float]] = []
        with self._guard:
            soonest = inf
            if self._wake_at == -inf:
                soonest = now + min((every for every, _ in self._rows), default=0.0) / 8
            for (every, deadline), row in self._rows.items():
                if deadline:
                    continue
                if not row:
                    soonest = min(soonest, now + every)
                for server_lease, due in row.items():
                    if due > now:
                        soonest = min(soonest, due)
                        break
                    found.append((server_lease, due))
            for server_lease, due in self._once.items():
                if due > now:
                    soonest = min(soonest, due)
                else:
                    found.append((server_lease, due))
            found += [(t, self._taken_at) for t in self._in_hand if t.row is None and t not in self._once]
        return soonest, [one for one in found if one[0].live]

    def all(self) -> list[ServerLease]:
        """Every lease that is scheduled or in the maintenance's hands."""
        while True:
            with self._guard:
                moves = self._moves
            # Each list is made in one step of C, so nobody is met in the middle of a change.
            found: dict[ServerLease, None] = {}
            for row in list(self._rows.values()):
                found.update(dict.fromkeys(list(row)))
            found.update(dict.fromkeys(list(self._once)))
            found.update(dict.fromkeys(self._in_hand))
            # Otherwise the maintenance took some in hand meanwhile.
            if moves == self._moves:
                return [server_lease for server_lease in found if server_lease.live]

    def busy(self) -> bool:
        """Whether there is any lease, or was one a rhythm ago."""
        return bool(self._rows or self._once)

    def some(self, most: int) -> list[ServerLease]:
        """Up to ``most`` leases that are being served, and as many of each rhythm: the next ones to be due."""
        with self._guard:
            found = self._in_hand[:most]
            found += [server_lease for row in self._rows.values() for server_lease in islice(row, most)]
            found += islice(self._once, most)
        return [server_lease for server_lease in dict.fromkeys(found) if server_lease.live]
