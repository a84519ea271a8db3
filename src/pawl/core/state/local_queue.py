"""The local queue of one name in one client: waiters of a client stand behind one ticket on the server.

At any time a place has one *speaker* (who talks to the server for all) or one *owner* (who holds), and the others
sleep in a queue. A turn passes in one of three ways:

- the owner's tenure passes to the first sleeper, without the network: the next fence of the block, at most
  ``handover`` times in a row, for at most 20 ms, only while at least half of a ticket's life is left, and not once
  somebody read its token; where others were in the way of its grant, each of those who wait here then is served once,
  and nobody twice before the others have their turn;
- the first sleeper becomes the speaker, with the ticket of the one before (its place in the server's queue is kept),
  or with the token that holds, to give the name back and queue again in one script;
- with the last owner of a run, while others wait elsewhere, the place and the tenure part: the first sleeper speaks
  with a token of its own and queues on the server, while that owner still holds and then gives the name back by itself.

A place whose queue is empty is closed and forgotten; who comes later opens a new one.

Every change of a turn is one guarded step, see ``Engine.guard``: it decides and acts without a call, so neither Ctrl-C
nor a signal handler that uses the client comes in between. Turns are numbered: its keeper may pass it on again
and again, and only the first time counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from weakref import ref

from pawl.core.state.records import Claim, Turn
from pawl.model import LeaseState

if TYPE_CHECKING:
    from pawl.core.protocol.runtime import Parker, Runtime
    from pawl.core.state.records import LeaseRecord, Tenure
    from pawl.errors import PawlError

__all__ = ["Place", "Places", "Sleeper"]


class Sleeper:
    """One caller at a name, from its coming to its lease; an alarm ends its wait with that error.

    Attributes:
        parker: Where it sleeps, once it waits.
        place: The place it came to.
        waits: True once it was put into the queue; False for who found nobody and has the turn.
        turn: The number of its turn as the speaker.
        tenure: What it was handed as the next owner, until it has made a lease of it; or None.
        number: Which of the tenure's owners it is.
        fence: The fence that came with that.
        claim: What it is to speak for, or None.
        lease: What it will hold, made beforehand; or None.
        closed: True if the client was closed while it waited.
    """

    # As attributes of the class, so that each sets only what differs.
    place: Place | None = None
    waits: bool = False
    turn: int = 0
    tenure: Tenure | None = None
    number: int = 0
    fence: int = 0
    claim: Claim | None = None
    lease: ref[LeaseRecord] | None = None
    closed: bool = False
    alarm: PawlError | None = None
    parker: Parker

    @property
    def served(self) -> bool:
        """True once a turn was passed to it; it must be used or passed on."""
        return self.tenure is not None or self.claim is not None


# Shared by all places where nobody ever waited; never added to.
_NOBODY: deque[Sleeper] = deque()


class Place:
    """The queue of one name; see the module.

    Attributes:
        streak: How many grants of the present run were handed over.
        most: How many there may be.
        turn: Counts the speakers; an owner has the turn of the speaker that it was.
        keeper: Who has the turn: a caller, or the owner's tenure. A keeper that is gone without passing the turn on
            was interrupted more than once; the first sleeper that notices takes the turn.
    """

    # As attributes of the class, so that a place where nobody waits sets only what differs.
    sleepers: deque[Sleeper] = _NOBODY
    closed: bool = False
    streak: int = 0
    most: int = 0
    since: float = 0.0
    turn: int = 0

    def __init__(
        self,
        key: Hashable,
        guard: AbstractContextManager[object],
        home: dict[Hashable, Place],
        keeper: Sleeper | Tenure,
    ) -> None:
        self.keeper: ref[Sleeper | Tenure] = ref(keeper)
        self.key: Hashable = key
        self.guard: AbstractContextManager[object] = guard
        self.home: dict[Hashable, Place] = home

    def pass_claim(self, claim: Claim, turn: int) -> bool:
        """Make the first sleeper the speaker; False if nobody sleeps, and then the place is closed.

        Args:
            claim: What to speak for; the sleeper's from here on.
            turn: Which turn it is that is passed on. One that was passed on before is not passed on again.
        """
        sleeper: Sleeper | None = None
        try:
            while sleeper is None:
                found = self._first()
                with self.guard:
                    if self.turn != turn:
                        return True
                    if not self.sleepers:
                        self.closed = True
                        if self.key in self.home and self.home[self.key] is self:
                            del self.home[self.key]
                        return False
                    if found is not None and self.sleepers[0] is found[0]:
                        sleeper, self.keeper = found
                        self.turn += 1
                        sleeper.turn = claim.turn = self.turn
                        sleeper.claim = claim
                        del self.sleepers[0]
            sleeper.parker.unpark()
        except BaseException:
            if sleeper is not None:
                sleeper.parker.unpark()
            raise
        return True

    def _first(self) -> tuple[Sleeper, ref[Sleeper | Tenure]] | None:
        """Who sleeps first, and what refers to it; a step must see that it still is the first."""
        try:
            first = self.sleepers[0]
        except IndexError:
            return None
        return first, ref(first)

    def hand_over(  # noqa: C901 - one guarded step
        self, tenure: Tenure, now: float, number: int | None = None, lease: LeaseRecord | None = None
    ) -> Turn:
        """Pass an owner's tenure to the first sleeper if the rules allow it; the owner must not touch it again.

        Args:
            tenure: What is passed on.
            now: The present.
            number: Which of its owners passes it on; None if that is sure.
            lease: What ends in the same step; then nothing at all is done unless it is handed over.
        """
        used, streak = tenure.used, self.streak
        most = self.most if streak else self._room(tenure)
        may = streak < most and self._may_hand_over(tenure, now)
        sleeper: Sleeper | None = None
        try:
            with self.guard:
                ended = lease is not None and (lease._released or lease._levels != 1)
                if ended or self.turn != tenure.turn:
                    return Turn.GONE
                if tenure.used != (used if number is None else number):
                    return Turn.HANDED
                if not self.sleepers:
                    if lease is None and self.key in self.home and self.home[self.key] is self:
                        del self.home[self.key]
                    self.closed = self.closed or lease is None
                    return Turn.ALONE
                if not may or tenure.shown or tenure.state is not LeaseState.HELD or tenure.used != used:
                    if lease is None:
                        self.streak = 0
                    return Turn.REFUSED
                if lease is not None:
                    lease._released, tenure.watchers = True, None
                if streak == 0:
                    self.since, self.most = now, most
                sleeper = self.sleepers[0]
                self.streak = streak + 1
                tenure.used = sleeper.number = used + 1
                sleeper.fence, sleeper.tenure = tenure.fence + tenure.used, tenure
                # Nobody's, until the one that was woken takes it: its last keeper may wait for something else by then.
                tenure.granted_at, tenure.who = now, None
                del self.sleepers[0]
            sleeper.parker.unpark()
        except BaseException:
            if sleeper is not None:
                sleeper.parker.unpark()
            raise
        return Turn.HANDED

    def _room(self, tenure: Tenure) -> int:
        """How many grants a run may have that begins now."""
        # Who comes back meanwhile waits for the next run, as those do who wait elsewhere.
        most = tenure.options.handover
        return most if tenure.lone else min(most, len(self.sleepers))

    def _may_hand_over(self, tenure: Tenure, now: float) -> bool:
        """Whether the rules allow a hand-over by the present owner; only its state can change while it is the owner."""
        options = tenure.options
        return (
            tenure.used < options.handover
            and not tenure.failures
            and not tenure.unanswered
            and tenure.valid_until - now >= (options.ticket_ttl or options.ttl) / 2
            and (self.streak == 0 or now - self.since < options.hand_over_for)
        )

    def part(self, tenure: Tenure, claim: Claim) -> None:
        """Let those who sleep go on without a tenure whose last owner of a run has it.

        The next of them queues on the server while that one is still at it. So the owner gives the name back by itself,
        to somebody else, in one step in which nobody of this client has to wake up first.

        Args:
            tenure: What is held.
            claim: What the first sleeper is to speak for.
        """
        heir: Sleeper | None = None
        try:
            while heir is None:
                found = self._first()
                with self.guard:
                    if self.turn != tenure.turn or tenure.place is not self:
                        return
                    if not self.sleepers:
                        self.closed = True
                        if self.key in self.home and self.home[self.key] is self:
                            del self.home[self.key]
                        tenure.place = None
                        return
                    if found is not None and self.sleepers[0] is found[0]:
                        tenure.place = None
                        heir, self.keeper = found
                        self.streak = 0
                        self.turn += 1
                        heir.turn = claim.turn = self.turn
                        heir.claim = claim
                        del self.sleepers[0]
            heir.parker.unpark()
        except BaseException:
            if heir is not None:
                heir.parker.unpark()
            raise

    def take_orphan(self, sleeper: Sleeper, token: str) -> bool:
        """Become the speaker, with a fresh token, if the keeper is gone and ``sleeper`` is first."""
        gone = self.keeper
        if gone() is not None:
            return False
        claim = Claim(token)
        keeper: ref[Sleeper | Tenure] = ref(sleeper)
        with self.guard:
            if self.keeper is not gone or not self.sleepers or self.sleepers[0] is not sleeper:
                return False
            self.keeper = keeper
            self.turn += 1
            sleeper.turn = claim.turn = self.turn
            sleeper.claim = claim
            del self.sleepers[0]
        return True

    def withdraw(self, sleeper: Sleeper) -> bool:
        """Take a sleeper out of the queue; False if its turn came first, and then it must use it or pass it on."""
        while True:
            sleepers = self.sleepers
            try:
                at = sleepers.index(sleeper)
            except ValueError:
                at = -1
            with self.guard:
                if sleeper.tenure is not None or sleeper.claim is not None:
                    return False
                if at < 0:
                    return True
                try:
                    if sleepers[at] is sleeper:
                        del sleepers[at]
                        return True
                except IndexError:
                    # Others left meanwhile.
                    continue

    def dismiss(self) -> None:
        """Wake every sleeper because the client closes."""
        with self.guard:
            sleepers = self.sleepers
            self.sleepers = _NOBODY
            self.closed = True
            if self.key in self.home and self.home[self.key] is self:
                del self.home[self.key]
        for sleeper in tuple(sleepers):
            sleeper.closed = True
            sleeper.parker.unpark()


class Places:
    """All places of one client.

    Args:
        runtime: The runtime of the API.
        guard: Held for each step in any of the places.
    """

    __slots__ = ("_guard", "_places", "_runtime")

    def __init__(self, runtime: Runtime, guard: AbstractContextManager[object]) -> None:
        self._runtime = runtime
        self._guard = guard
        self._places: dict[Hashable, Place] = {}

    def open(self, key: Hashable, keeper: Sleeper | Tenure) -> Place | None:
        """A new place at a name where nobody of the client is; None if somebody is."""
        places = self._places
        if key in places:
            return None
        fresh = Place(key, self._guard, places, keeper)
        # setdefault is one step under the interpreter's lock: two callers cannot both open the place.
        return fresh if places.setdefault(key, fresh) is fresh else None

    def join(self, key: Hashable, sleeper: Sleeper) -> Place:
        """Come to a name: with the turn, or into its queue (``sleeper.waits``)."""
        while True:
            place = self._places.get(key)
            if place is None:
                place = self.open(key, sleeper)
                if place is not None:
                    sleeper.place = place
                    return place
            elif self.sit_down(place, sleeper, self._runtime.parker()) or self._inherit(place, sleeper):
                return place

    @staticmethod
    def _inherit(place: Place, sleeper: Sleeper) -> bool:
        """Take the turn of a caller that was interrupted where nothing could be cleaned up."""
        gone = place.keeper
        if gone() is not None:
            return False
        keeper: ref[Sleeper | Tenure] = ref(sleeper)
        with place.guard:
            if place.closed or place.sleepers or place.keeper is not gone:
                return False
            place.keeper = keeper
            place.turn += 1
            sleeper.turn = place.turn
            sleeper.place = place
        return True

    @staticmethod
    def sit_down(place: Place, sleeper: Sleeper, parker: Parker) -> bool:
        """Put a caller at the end of a queue; False if the place is closed, or nobody has its turn."""
        keeper = place.keeper
        kept = keeper() is not None
        seat = (sleeper,)
        fresh: deque[Sleeper] = deque() if place.sleepers is _NOBODY else _NOBODY
        with place.guard:
            if place.closed or not (place.sleepers or (kept and place.keeper is keeper)):
                return False
            if place.sleepers is _NOBODY:
                place.sleepers = fresh
            sleeper.parker = parker
            sleeper.place = place
            sleeper.waits = True
            place.sleepers += seat
        return True

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
