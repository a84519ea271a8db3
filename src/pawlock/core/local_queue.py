"""The local queue of one name in one client: the callers of a client stand behind the few of them who ask the server.

A *turn* is the right to ask the server for the name, and then to hold it. At most ``capacity`` turns are out: one for
locks that are handed over inside the client, many for the rest, whose holders give their turn back with the grant. All
other callers sleep here, in the order in which they came. A turn ends in one of three ways:

- its owner passes what it holds to who sleeps first, without the network: the next fence of the block, at most
  ``handover`` times in a row, for at most 20 ms, only while at least half of a ticket's life is left, and not once
  somebody read its token; where others were in the way of its grant, each of those who sleep here then is served once,
  and nobody twice before the others have their turn;
- it gives the name back on the server, and then who sleeps first asks: in this order, or that one would queue behind it;
- it gives up, and who sleeps first goes on with its ticket: its place in the server's queue is kept.

With the last owner of a run, while others wait elsewhere, who sleeps first asks at once, and queues while that owner
works: its release then grants the name to another client, and waits for no thread or task of this one to wake up.

Every step is made under ``Engine.guard``, and returns who is to be woken once that is let go. A turn is a weak
reference: if its owner was interrupted and is gone, or its lease is lost, the maintenance gives the turn to the first
sleeper within a second.

Invariant: no more than ``capacity`` turns are out, each given once; nobody sleeps while one is free, but for a second
after an interruption; who came first is served first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol
from weakref import ref

from pawlock.errors import PawlockError

if TYPE_CHECKING:
    from pawlock.core.options import LockOptions
    from pawlock.core.runtime import Parker

__all__ = ["ASK", "Ask", "Holding", "LocalQueue", "Place", "Retry", "Waiter", "WaiterState"]


class Ask(Enum):
    """What a caller is given whose turn it is to ask the server, with a new token."""

    ASK = "ask"


ASK: Literal[Ask.ASK] = Ask.ASK


class Place:
    """Where one caller stands.

    Attributes:
        parker: Where it sleeps; None while it has a turn from the beginning.
        given: What ended its sleep: ``ASK``, a ticket to go on with, or what another one held. It must use that, or
            give it back.
        number: Which owner of a hold that was given it is.
        lease: What it is to get; made before it sleeps, so that who passes a hold on need not.
        done: Whether its call is over.
    """

    # As attributes of the class, so that an uncontended acquisition sets only what differs.
    lost: ClassVar[bool] = False
    done: bool = False
    parker: Parker | None = None
    given: object | None = None
    number: int = 0
    lease: Any = None

    def unpark(self) -> None:
        """Wake it; from any thread, any number of times."""
        if self.parker is not None:
            self.parker.unpark()


class Holding(Protocol):
    """What is held, as far as a queue must know it; see ``records.Hold``."""

    used: int
    valid_until: float
    uncontended: bool
    options: LockOptions

    @property
    def lost(self) -> bool:
        """Whether it is lost."""
        ...

    @property
    def done(self) -> bool:
        """Whether it is lost or released."""
        ...

    def may_be_given(self) -> bool:
        """Whether another caller may go on with it."""
        ...

    def give_to(self, place: Place, now: float) -> None:
        """Make a caller its next owner."""
        ...


class LocalQueue:
    """The queue of one name; see the module.

    Args:
        key: Under which the client keeps it.
        by_key: The client's queues; it adds itself, and takes itself out once nobody is there.
        capacity: How many turns there are.
        first: Who has the first of them.

    Attributes:
        sleepers: Who has no turn.
        turns: Who has one: a caller, or what it holds.
        most: How many owners of one hold may follow its first.
        since: When the first of them did.
    """

    most: int = 0
    since: float = 0.0

    def __init__(
        self, key: Hashable, by_key: dict[Hashable, LocalQueue], capacity: int, first: Place
    ) -> None:
        self.key: Hashable = key
        self.by_key: dict[Hashable, LocalQueue] = by_key
        self.capacity: int = capacity
        self.sleepers: deque[Place] = deque()
        self.turns: list[ref[Place | Holding]] = [ref(first)]
        by_key[key] = self

    def begin(self, place: Place) -> bool:
        """Give a turn to a caller that comes; False if it must sleep, or leave."""
        if self.sleepers or (self.turns and len(self.turns) >= self.capacity and not self._forget_gone()):
            return False
        self.turns.append(ref(place))
        return True

    def granted(self, hold: Holding) -> None:
        """What the only caller with a turn was granted has the turn from here on."""
        self.turns = [ref(hold)]

    def pass_on(self, hold: Holding, now: float) -> list[Place]:
        """Give what is held to who sleeps first.

        Args:
            hold: What its owner is done with; if this returns somebody, the owner must not touch it again.
            now: The present.

        Returns:
            Who is to be woken. None: it is not passed on; it must be left on the server, and its turn ended after that.
        """
        first = self._first()
        if first is None or not self._has_turn(hold) or not self._may_pass_on(hold, now):
            return []
        hold.give_to(first, now)
        self.sleepers.popleft()
        woken = [first]
        if hold.used >= self.most and not hold.uncontended:
            woken += self.end(hold)
        return woken

    def end(self, owner: Place | Holding, given: object = ASK) -> list[Place]:
        """End a turn, and give it to who sleeps first; safe to repeat.

        Args:
            owner: Who has the turn.
            given: What the next one gets: ``ASK``, or a ticket to go on with.

        Returns:
            Who is to be woken; None: nobody sleeps, and what was to be given is still the owner's.
        """
        for index, turn in enumerate(self.turns):
            if turn() is owner:
                del self.turns[index]
                if self.sleepers or self.turns:
                    return self._serve(given)
                self.by_key.pop(self.key, None)
        return []

    def leave(self, place: Place) -> bool:
        """Take a caller out of the queue; False if it was given something first, and then it must use or return it."""
        if place.given is not None or place not in self.sleepers:
            return place.given is None
        self.sleepers.remove(place)
        return True

    def heal(self) -> list[Place]:
        """Give the turns of those that are gone, or done, to who sleeps first; who is to be woken."""
        self.turns = [turn for turn in self.turns if not _is_done(turn())]
        return self._serve(ASK) if len(self.turns) < self.capacity else []

    def _serve(self, given: object) -> list[Place]:
        if self.sleepers and (first := self._first()) is not None:
            first.given = given
            self.turns.append(ref(first))
            self.sleepers.popleft()
            return [first]
        if not self.turns:
            # Once only: who has no turn any more ends none.
            self.by_key.pop(self.key, None)
        return []

    def _first(self) -> Place | None:
        """Who sleeps first. Whoever was given something is out of the queue, also where its giver was interrupted."""
        while self.sleepers and (self.sleepers[0].given is not None or self.sleepers[0].done):
            self.sleepers.popleft()
        return self.sleepers[0] if self.sleepers else None

    def _forget_gone(self) -> bool:
        self.turns = [turn for turn in self.turns if not _is_gone(turn())]
        return len(self.turns) < self.capacity

    def _has_turn(self, hold: Holding) -> bool:
        for turn in self.turns:  # noqa: SIM110 - a generator costs as much as the rest of a hand-over's checks
            if turn() is hold:
                return True
        return False

    def _may_pass_on(self, hold: Holding, now: float) -> bool:
        options = hold.options
        if hold.used == 0:
            # Who comes back meanwhile waits for the next run, as those do who wait elsewhere.
            most = options.handover
            self.since, self.most = now, most if hold.uncontended else min(most, len(self.sleepers))
        return (
            hold.used < options.handover
            and hold.may_be_given()
            and hold.valid_until - now >= options.ticket / 2
            and (hold.used == 0 or now - self.since < options.hand_over_for)
        )


def _is_done(owner: Place | Holding | None) -> bool:
    return owner is None or owner.done


def _is_gone(owner: Place | Holding | None) -> bool:
    return owner is None or owner.lost


class WaiterState(Enum):
    """What the server knows of a waiter's token."""

    NEW = "nothing: it was not asked for, or a refusal left nothing of it"
    ASKED = "a request went out; whether it queues or holds is in its answer, or not known"
    QUEUED = "it has a ticket in the queue"
    BUSY = "nothing: somebody else holds the name, and it did not queue"


class Retry:
    """Since when and how often something has failed; ``retry.pause_after`` says for how long that goes on.

    Args:
        holds: Whether the caller holds the lock, so that it alone asks, and soon again.

    Attributes:
        since: Since when the server gives no answer, or None.
        attempt: How many tries have failed in a row.
    """

    __slots__ = ("attempt", "holds", "since")

    def __init__(self, *, holds: bool = False) -> None:
        self.holds: bool = holds
        self.since: float | None = None
        self.attempt: int = 0

    def over(self) -> None:
        """The server has answered."""
        self.since = None
        self.attempt = 0


class Waiter:
    """A token that wants a name.

    Attributes:
        token: The server token; a new one after each restart.
        state: What the server knows of the token.
        unanswered: True once a request of the token got no reply: its leave then needs a tombstone.
        late_grants: How often in a row its grant had to be asked for again: it came late, or had a ticket's life.
        rank: How many wait before it in the server's queue; None: it never had a ticket.
        expires_ms: When its ticket ends, on the server's clock.
        valid_until: The same on the runtime's clock, at the latest.
        holder: Who is in its way, for others to see; or None.
        holder_ms: How long the lease of that one lives at most; -1: it never ends.
        foreign: Whether that one is no pawlock.
        endless: Whether it was logged that it never ends.
        outcomes: What each of several servers answered; None with one.
        retry: Since when the server gives no answer; None: it never failed to.
    """

    # As attributes of the class, so that an uncontended acquisition sets only what differs.
    state: WaiterState = WaiterState.NEW
    unanswered: bool = False
    late_grants: int = 0
    rank: int | None = None
    expires_ms: int = 0
    valid_until: float = 0.0
    holder: str | None = None
    holder_ms: int = -2
    foreign: bool = False
    endless: bool = False
    outcomes: dict[str, str] | None = None
    retry: Retry | None = None

    def __init__(self, token: str) -> None:
        self.token: str = token

    @property
    def sent(self) -> bool:
        """Whether anything of the token may be on the server, or on its way there."""
        return self.state is not WaiterState.NEW

    def failing(self) -> Retry:
        """Since when and how often its questions have failed."""
        if self.retry is None:
            self.retry = Retry()
        return self.retry

    def note_unconfirmed(self, error: BaseException) -> None:
        """What was sent last may still be on its way if ``error`` is no word of the server, but a cancel or Ctrl-C."""
        if not isinstance(error, PawlockError) and self.sent:
            self.unanswered = True

    def restart(self, token: str) -> None:
        """Begin anew with a new token, shown as the old one was; who is in the way is known still."""
        secret, _, _ = token.partition("@")
        _, at, shown = self.token.partition("@")
        self.token = f"{secret}@{shown}" if at else token
        self.state, self.unanswered, self.late_grants, self.rank = WaiterState.NEW, False, 0, None
