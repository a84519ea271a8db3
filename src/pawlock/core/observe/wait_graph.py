"""Who waits for whom: decided exactly, of what was read at one time, by nothing but arithmetic.

A waiter goes on once the holders that are in its way have let go, and the tickets before it have been served. So take
everybody as going on who can: who waits for nothing gives back all that it holds, which lets others go on, and so
forth. Those who are left wait for others who are left, and for nobody else: without a time-out none of them ever goes
on. That covers waits for one holder, for all of several (a writer) and for enough of them (permits) alike.

What is not known counts as about to go on: a holder or a ticket that no record lists blocks nobody.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

__all__ = ["Deadlocks", "Held", "Name", "Queued", "WaitGraph", "Waiter", "Who"]

Who = tuple[str, str]
"""A thread or task: its session, and its number there. A ticket that is in no record stands for one by itself."""

UNKNOWN = "?"


class Held(NamedTuple):
    """One hold of a name: of a mutex its mode is ``""``; ``bound`` is true if its holder alone can end it."""

    who: Who
    fence: int
    used: int
    mode: str
    bound: bool


class Queued(NamedTuple):
    """A ticket.

    Attributes:
        tag: What distinguishes it from all others.
        mode: What it waits for.
        old: Whether it waits long. A young one that no record lists may be gone at any time.
    """

    tag: str
    mode: str
    old: bool


class Name(NamedTuple):
    """What is known of one name. ``shared``: several may hold it at once, and the order of its queue matters."""

    shared: bool
    limit: int
    held: tuple[Held, ...]
    queue: tuple[Queued, ...]


class Waiter(NamedTuple):
    """What one thread or task waits for."""

    who: Who
    label: str
    number: int
    since_ms: int
    key: str
    name: str
    tag: str


class WaitGraph:
    """What was read: the names, and who waits for them. Complete before it is asked.

    Attributes:
        names: By their keys.
        waits: By who waits.
    """

    def __init__(self) -> None:
        self.names: dict[str, Name] = {}
        self.waits: dict[Who, Waiter] = {}

    def deadlocks(self) -> Deadlocks:
        """Whatever waits for itself."""
        return Deadlocks(self.names, self.waits)


class Deadlocks:
    """Those who wait for each other, and for nobody else.

    Args:
        names: What is known of each name, by its key.
        waits: What is known of each who waits.
    """

    def __init__(self, names: dict[str, Name], waits: dict[Who, Waiter]) -> None:
        self._names = names
        self._waits = waits
        self._queues: dict[str, list[Who]] = {}
        self._positions: dict[Who, tuple[str, int]] = {who: (wait.key, -1) for who, wait in waits.items()}
        tags = {(wait.key, wait.tag): who for who, wait in waits.items() if wait.tag}
        self._tickets: dict[Who, Queued] = {}
        for key, name in names.items():
            queue = self._queues[key] = []
            for ticket in name.queue:
                who = tags.get((key, ticket.tag), (UNKNOWN, ticket.tag))
                if ticket.old or who in waits:
                    self._positions[who] = key, len(queue)
                    self._tickets[who] = ticket
                    queue.append(who)

    def containing(self, who: Who) -> frozenset[Who]:
        """The deadlock that a waiter is part of; empty if there is none."""
        among = set(self._positions)
        while who in among:
            among = self._left(among)
            component = self._component(who, among)
            if component == among:
                return frozenset(component)
            among = component
        return frozenset()

    def cycle(self, who: Who, deadlock: frozenset[Who]) -> list[Waiter]:
        """The shortest way from a waiter of a deadlock back to itself; each waits for the next."""
        previous: dict[Who, Who] = {}
        ahead = deque([who])
        while ahead:
            one = ahead.popleft()
            for other in sorted(self._in_the_way(one, deadlock)):
                if other == who:
                    way = [one]
                    while way[-1] != who:
                        way.append(previous[way[-1]])
                    return [self._waiter(step) for step in reversed(way)]
                if other not in previous:
                    previous[other] = one
                    ahead.append(other)
        raise AssertionError("every waiter of a deadlock is on a cycle")

    def proof(self, deadlock: frozenset[Who]) -> object:
        """What a second reading must find unchanged: these waits, and the grants and tickets that are in their way."""
        keys = {self._positions[who][0] for who in deadlock}
        waits = frozenset((wait.who, wait.number) for who in deadlock if (wait := self._waits.get(who)))
        held = frozenset((key, one) for key in keys for one in self._names[key].held if one.who in deadlock)
        queues = frozenset((key, tuple(who for who in self._queues[key] if who in deadlock)) for key in keys)
        return waits, held, queues, frozenset((key, self._names[key].limit) for key in keys)

    def _waiter(self, who: Who) -> Waiter:
        known = self._waits.get(who)
        if known is not None:
            return known
        key = self._positions[who][0]
        name = next(wait.name for wait in self._waits.values() if wait.key == key)
        return Waiter(who, UNKNOWN, 0, 0, key, name, who[1])

    def _left(self, among: set[Who]) -> set[Who]:
        """Who is left once everybody who can has gone on; those that are not in ``among`` can."""
        left = among
        while True:
            still = {who for who in left if self._in_the_way(who, left)}
            if still == left:
                return left
            left = still

    def _component(self, who: Who, among: set[Who]) -> set[Who]:
        """The strongly connected component of a waiter: whom it waits for, even indirectly, and who waits for it."""
        if who not in among:
            return set()
        ahead = {one: self._in_the_way(one, among) for one in among}
        behind: dict[Who, set[Who]] = {one: set() for one in among}
        for one, others in ahead.items():
            for other in others:
                behind[other].add(one)
        return _reached(who, ahead) & _reached(who, behind)

    def _in_the_way(self, who: Who, among: AbstractSet[Who]) -> set[Who]:
        """Those of ``among`` that keep a waiter waiting; none: it goes on."""
        key, place = self._positions[who]
        name = self._names.get(key)
        if name is None:
            return set()
        held = [one for one in name.held if one.who in among]
        if not name.shared:
            return {one.who for one in held}
        if place < 0:
            # Granted or lapsed between the record and the queue: it goes on, or stands in line anew.
            return set()
        mine = self._tickets[who]
        ahead = self._queues[key][:place]
        return {one for one in ahead if one in among} | _holders_in_the_way(who, mine, name.limit, held)


def _holders_in_the_way(who: Who, mine: Queued, limit: int, held: list[Held]) -> set[Who]:
    # What it holds itself it may give back by another thread, unless it is in the middle of that very block.
    held = [one for one in held if one.who != who or (one.bound and limit)]
    if limit:
        taken = sum(int(one.mode) for one in held if one.mode.isdecimal())
        return {one.who for one in held} if taken + int(mine.mode) > limit else set()
    if mine.mode == "x":
        return {one.who for one in held}
    return {one.who for one in held if one.mode == "x"}


def _reached(start: Who, ways: dict[Who, set[Who]]) -> set[Who]:
    found: set[Who] = set()
    ahead = [start]
    while ahead:
        for other in ways[ahead.pop()]:
            if other not in found:
                found.add(other)
                ahead.append(other)
    return found
