"""The local queue of one name in one client: waiters of a client stand behind one ticket on the server.

At any time a place has one *speaker* (who talks to the server for all) or one *owner* (who holds), and the others
sleep in a queue. A turn passes in one of two ways:

- the owner's tenure passes to the first sleeper, without the network: the next fence of the block, at most
  ``handover`` times in a row, for at most 20 ms, and only while at least half of a ticket's life is left;
- the first sleeper becomes the speaker, with the ticket of the one before (its place in the server's queue is kept),
  or with the token that holds, to give the name back and queue again in one script.

A place whose queue is empty is closed and forgotten; who comes later opens a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING
from weakref import ref

from pawl.core.claim import Claim

if TYPE_CHECKING:
    from pawl.core.runtime import Parker, Runtime
    from pawl.core.tenure import Tenure
    from pawl.errors import PawlError

__all__ = ["Mark", "Place", "Places", "Sleeper", "Turn"]


class Turn(Enum):
    """What became of a tenure whose owner has done with it."""

    HANDED = "a sleeper owns it now"
    REFUSED = "somebody sleeps, but it may not be handed over"
    ALONE = "nobody sleeps, and the place is closed"


class Sleeper:
    """One waiter in a local queue, and what it was woken with; an alarm ends its wait with that error."""

    __slots__ = ("__weakref__", "alarm", "claim", "closed", "fence", "parker", "tenure")

    def __init__(self, parker: Parker) -> None:
        self.parker: Parker = parker
        self.tenure: Tenure | None = None
        self.fence: int = 0
        self.claim: Claim | None = None
        self.closed: bool = False
        self.alarm: PawlError | None = None

    @property
    def served(self) -> bool:
        """True once a turn was passed to it; it must be used or passed on."""
        return self.tenure is not None or self.claim is not None


class Mark:
    """Lives as long as the call of the speaker that opened a place."""

    __slots__ = ("__weakref__",)


# Shared by all places where nobody ever waited; never added to.
_NOBODY: deque[Sleeper] = deque()


class Place:
    """The queue of one name; see the module.

    Attributes:
        keeper: Whoever has the turn: the speaker's mark, a woken sleeper, or the owner's tenure. A keeper that is
            gone without passing the turn on was interrupted (Ctrl-C) where nothing could be cleaned up; the first
            sleeper that notices takes the turn.
    """

    # As attributes of the class, so that a place where nobody waits sets only what differs.
    sleepers: deque[Sleeper] = _NOBODY
    closed: bool = False
    streak: int = 0
    since: float = 0.0

    def __init__(
        self,
        key: Hashable,
        guard: AbstractContextManager[object],
        home: dict[Hashable, Place],
        keeper: Mark | Sleeper | Tenure,
    ) -> None:
        self.keeper: ref[Mark | Sleeper | Tenure] = ref(keeper)
        self.key: Hashable = key
        self.guard: AbstractContextManager[object] = guard
        self.home: dict[Hashable, Place] = home

    def close(self) -> None:
        """Forget the place, whose queue is empty. Under the guard."""
        # In this order: a signal handler may run after the call, and a closed place that is still found would have
        # every comer look for a new one for ever.
        if self.home.get(self.key) is self:
            del self.home[self.key]
        self.closed = True

    def seat(self, sleeper: Sleeper) -> None:
        """Put a sleeper at the end of the queue. Under the guard."""
        if self.sleepers is _NOBODY:
            self.sleepers = deque()
        self.sleepers.append(sleeper)

    def pass_claim(self, claim: Claim) -> bool:
        """Make the first sleeper the speaker; False if nobody sleeps, and then the place is closed."""
        with self.guard:
            if not self.sleepers:
                self.close()
                return False
            sleeper = self.sleepers.popleft()
            self.keeper = ref(sleeper)
            sleeper.claim = claim
        sleeper.parker.unpark()
        return True

    def hand_over(self, tenure: Tenure, now: float) -> Turn:
        """Pass an owner's tenure to the first sleeper if the rules allow it; the owner must not touch it again."""
        with self.guard:
            if not self.sleepers:
                self.close()
                return Turn.ALONE
            if not self.may_hand_over(tenure, now):
                self.streak = 0
                return Turn.REFUSED
            sleeper = self.hand_to_first(tenure, now)
        sleeper.parker.unpark()
        return Turn.HANDED

    def hand_to_first(self, tenure: Tenure, now: float) -> Sleeper:
        """Make the first sleeper the owner; who calls must wake it. Under the guard."""
        if self.streak == 0:
            self.since = now
        self.streak += 1
        tenure.used += 1
        tenure.granted_at = now
        # Nobody's, until the one that was woken takes it: whoever had it may wait for something else by then.
        tenure.who = None
        sleeper = self.sleepers.popleft()
        self.keeper = ref(sleeper)
        sleeper.fence = tenure.fence + tenure.used
        sleeper.tenure = tenure
        return sleeper

    def may_hand_over(self, tenure: Tenure, now: float) -> bool:
        """Whether the rules allow a hand-over now to a sleeper that there is. Under the guard."""
        options = tenure.options
        return bool(self.sleepers) and (
            tenure.live
            and self.streak < options.handover
            and tenure.used < options.handover
            and tenure.failures == 0
            and not tenure.unanswered
            and tenure.valid_until - now >= (options.ticket_ttl or options.ttl) / 2
            and (self.streak == 0 or now - self.since < options.hand_over_for)
        )

    def take_orphan(self, sleeper: Sleeper, token: str) -> bool:
        """Become the speaker, with a fresh token, if the keeper is gone and ``sleeper`` is first."""
        with self.guard:
            if self.keeper() is not None or not self.sleepers or self.sleepers[0] is not sleeper:
                return False
            self.sleepers.popleft()
            self.keeper = ref(sleeper)
            sleeper.claim = Claim(token)
        return True

    def withdraw(self, sleeper: Sleeper) -> bool:
        """Take a sleeper out of the queue; False if its turn came first, and then it must use it or pass it on."""
        with self.guard:
            if sleeper.served:
                return False
            if sleeper in self.sleepers:
                self.sleepers.remove(sleeper)
            return True

    def dismiss(self) -> None:
        """Wake every sleeper because the client closes."""
        with self.guard:
            sleepers = list(self.sleepers)
            self.sleepers.clear()
            self.close()
        for sleeper in sleepers:
            sleeper.closed = True
            sleeper.parker.unpark()


class Places:
    """All places of one client.

    Args:
        runtime: The colour.
        guard: Held for each step in any of the places.
    """

    __slots__ = ("_guard", "_places", "_runtime")

    def __init__(self, runtime: Runtime, guard: AbstractContextManager[object]) -> None:
        self._runtime = runtime
        self._guard = guard
        self._places: dict[Hashable, Place] = {}

    def open(self, key: Hashable, keeper: Mark | Tenure) -> Place | None:
        """A new place at a name where nobody of the client is; None if somebody is."""
        places = self._places
        if key in places:
            return None
        fresh = Place(key, self._guard, places, keeper)
        # setdefault is one step under the interpreter's lock: two comers cannot both open the place.
        return fresh if places.setdefault(key, fresh) is fresh else None

    def join(self, key: Hashable, mark: Mark) -> tuple[Place, Sleeper | None]:
        """Come to a name: as its speaker (None), or as a sleeper in its queue.

        Args:
            key: The spot.
            mark: What the caller keeps for as long as it is the speaker.
        """
        while True:
            place = self._places.get(key)
            if place is None:
                place = self.open(key, mark)
                if place is not None:
                    return place, None
                continue
            with place.guard:
                if not place.closed and not place.sleepers and place.keeper() is None:
                    # Whoever had the turn was interrupted where nothing could be cleaned up.
                    place.keeper = ref(mark)
                    return place, None
                if not place.closed:
                    sleeper = Sleeper(self._runtime.parker())
                    place.seat(sleeper)
                    return place, sleeper

    def dismiss(self) -> None:
        """Wake all sleepers of all places because the client closes."""
        for place in list(self._places.values()):
            place.dismiss()

    def clear(self, guard: AbstractContextManager[object]) -> None:
        """Forget everything, as after a fork: the sleepers are threads of the parent."""
        self._places = {}
        self._guard = guard

    def __contains__(self, key: Hashable) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)
