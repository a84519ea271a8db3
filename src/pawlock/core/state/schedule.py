"""When each lease of a client is due: for renewal, for a check of a deadline, or for another try.

Leases with the same rhythm become due in the order in which they were added, so each rhythm has one bucket (an ordered
dict) instead of a place in a heap: adding and removing cost the same for one lease and for a hundred thousand, and a
lease that is released before it is due leaves nothing behind. The few that fall out of rhythm (tries after a
failure, ends of ``max_hold``) are kept apart, each with the one time at which it is served next.

A bucket that is empty counts as due one rhythm from now: nothing that is added to it can be due earlier, so short holds
need not wake the maintenance each time. It is forgotten once a whole rhythm passed without use.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawlock.core.state.records import ServerLease

__all__ = ["Schedule"]


_EARLY = 0.02
"""Share of a rhythm by which a lease may be served early, together with another one."""

_MOST_DELAY = 0.1
"""Seconds by which a wait for the server may delay the report of another lease's end, or its renewal. Less would end
the waits of all renewals before a server a little away can answer, once leases that nobody renews end all the time."""


def _need(server_lease: ServerLease, due: float) -> float:
    return min(server_lease.valid_until, (due + server_lease.valid_until) / 2)


class _Bucket(OrderedDict["ServerLease", float]):
    """The leases of one rhythm, in the order in which they are due."""

    last_due = 0.0


class Schedule:
    """The due times of one client's leases. Every method may be called from any thread."""

    __slots__ = ("_buckets", "_guard", "_in_hand", "_once", "_wake_at")

    def __init__(self, guard: AbstractContextManager[object]) -> None:
        self._guard = guard
        self._buckets: dict[tuple[float, bool], _Bucket] = {}
        self._once: dict[ServerLease, float] = {}
        self._in_hand: list[ServerLease] = []
        self._wake_at = -inf

    def add(self, server_lease: ServerLease, every: float, due: float, *, deadline: bool = False) -> bool:
        """Put a lease into the bucket of its rhythm.

        Args:
            server_lease: The lease.
            every: Its rhythm in seconds.
            due: When it is due; not before any other of the same rhythm, or it is served with that one.
            deadline: True if its life ends then unless something happens: a wait for the server must not pass it.

        Returns:
            True if the maintenance sleeps past ``due`` and must be nudged.
        """
        with self._guard:
            bucket = self._buckets.get((every, deadline))
            if bucket is None:
                bucket = self._buckets[every, deadline] = _Bucket()
            bucket[server_lease] = bucket.last_due = due
            server_lease.bucket = bucket
            if self._once and server_lease in self._once and self._once[server_lease] > due:
                # Its bucket comes first, and a release takes it out of that alone.
                del self._once[server_lease]
            return due < self._wake_at

    def add_again(self, server_leases: Sequence[ServerLease], now: float) -> None:
        """Put leases that the maintenance has in hand into the buckets of their own rhythms, from now on.

        For the maintenance alone, which looks at the buckets before it sleeps: nobody need nudge it.
        """
        with self._guard:
            for server_lease in server_leases:
                # One that was released since then is nobody's any more.
                if server_lease.live:
                    every = server_lease.rhythm.every
                    bucket = self._buckets.get((every, False))
                    if bucket is None:
                        bucket = self._buckets[every, False] = _Bucket()
                    bucket[server_lease] = bucket.last_due = now + every
                    server_lease.bucket = bucket

    def ends_last(self, ttl: float, end: float) -> bool:
        """Whether ``end`` is no earlier than that of any lease of this ttl that nobody renews."""
        bucket = self._buckets.get((ttl, True))
        return bucket is None or bucket.last_due <= end

    def add_once(self, server_lease: ServerLease, due: float) -> bool:
        """Have a lease served once, out of rhythm, and no later than it is to be already; otherwise as ``add``."""
        with self._guard:
            server_lease.bucket = None
            if server_lease not in self._once or due < self._once[server_lease]:
                self._once[server_lease] = due
            return due < self._wake_at

    def discard(self, server_lease: ServerLease, *, once: bool = True) -> None:
        """Take a lease out of its bucket; without ``once``, what is asked for out of rhythm still is."""
        bucket = server_lease.bucket
        with self._guard:
            if bucket is not None and server_lease in bucket:
                del bucket[server_lease]
            if once and server_lease in self._once:
                del self._once[server_lease]

    def take_due(self, now: float, most: int) -> list[ServerLease]:
        """The leases that are due, at most ``most``; the caller, the maintenance, puts back those that go on.

        Where one of a rhythm is due, those that follow within a fiftieth of the rhythm come along: of many leases that
        are due at all times, each turn of the maintenance serves many.
        """
        taken: list[ServerLease] = []
        with self._guard:
            self._wake_at = -inf
            self._forget_unused(now)
            for (every, deadline), bucket in self._buckets.items():
                if not bucket or bucket[next(iter(bucket))] > now:
                    continue
                # A deadline is no earlier than it is.
                until = now if deadline else now + every * _EARLY
                while bucket and len(taken) < most:
                    server_lease, due = next(iter(bucket.items()))
                    if due > until:
                        break
                    del bucket[server_lease]
                    server_lease.bucket = None
                    taken.append(server_lease)
            for server_lease in [one for one, due in self._once.items() if due <= now][: most - len(taken)]:
                del self._once[server_lease]
                if server_lease.live:
                    taken.append(server_lease)
            self._in_hand = taken
        return taken

    def _forget_unused(self, now: float) -> None:
        for key in [key for key, bucket in self._buckets.items() if not bucket and bucket.last_due < now]:
            del self._buckets[key]

    def sleep_until(self, now: float) -> float:
        """When to look again (infinity: never). Nothing is in hand, and ``add`` says from now on when that is late."""
        with self._guard:
            self._in_hand = []
            due = min(self._once.values(), default=inf)
            for (every, _), bucket in self._buckets.items():
                due = min(due, next(iter(bucket.values())) if bucket else now + every)
            self._wake_at = due
            return due

    def spare(self, now: float) -> float:
        """Seconds for which a wait for the server may keep the leases that are not in hand waiting."""
        return max(_MOST_DELAY, self.first_need() - now)

    def first_need(self) -> float:
        """When a wait for the server must be over, for the sake of the leases that are not in hand.

        That is the end of a life that nobody renews. A renewal must go out once half of the time from when it is due
        to the end of validity has passed: the rest is for a new connection and its answer. Of each rhythm, only the
        next lease is asked.
        """
        with self._guard:
            need = min((_need(one, due) for one, due in self._once.items() if one.live), default=inf)
            for (_, deadline), bucket in self._buckets.items():
                if bucket:
                    server_lease, due = next(iter(bucket.items()))
                    need = min(need, due if deadline else _need(server_lease, due))
            return need

    def all(self) -> list[ServerLease]:
        """Every lease that is scheduled or in the maintenance's hands."""
        with self._guard:
            found = dict.fromkeys(chain(*self._buckets.values(), self._once, self._in_hand))
        return [server_lease for server_lease in found if server_lease.live]

    def busy(self) -> bool:
        """Whether there is any lease, or was one a rhythm ago."""
        return bool(self._buckets or self._once)
