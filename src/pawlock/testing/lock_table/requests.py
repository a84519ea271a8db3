"""What can be asked of a lock table. All lives are whole milliseconds; ``key`` says of which name."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Adopt",
    "Drop",
    "Find",
    "Force",
    "Leave",
    "Look",
    "NoteLine",
    "NoteTaken",
    "Observe",
    "Peek",
    "Publish",
    "Read",
    "ReadLines",
    "ReadTaken",
    "Recall",
    "Remember",
    "Renew",
    "Request",
    "SetLimit",
    "Swap",
    "Take",
    "Tell",
    "Unobserve",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question about one name.

    Attributes:
        key: The name, in its namespace; names of two families have nothing in common.
        family: ``"exclusive"``, ``"permits"``, ``"election"``, ``"sessions"`` or ``"history"``.
        keep_ms: How long the name's fencing tokens and its limit are remembered after their last use.
    """

    key: str
    family: str
    keep_ms: int = 0

    @property
    def name(self) -> str:
        """What requests of its sort are called, where they are counted."""
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Take(Request):
    """Take the name, or queue for it. Asked again with the same token, it changes nothing and answers the same.

    Attributes:
        token: Who asks.
        life_ms: The life of a lease.
        ticket_ms: The life of a ticket.
        wait: Whether to queue.
        channel: Where its owner hears of a grant.
        max_waiters: How many may wait.
        block: How many fencing tokens a grant reserves.
        weight: How many permits are taken.
        permits: How many there are, as the caller knows it; 0: it is no name of permits.
    """

    token: str
    life_ms: int
    ticket_ms: int
    wait: bool
    channel: str
    max_waiters: int
    block: int = 1
    weight: int = 1
    permits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap(Take):
    """Leave with one token and queue with another in one step.

    Attributes:
        old: The token that goes.
        tomb_ms: For how long it is barred.
    """

    old: str
    tomb_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew(Request):
    """Raise the life of a holder or a waiter: it creates nothing and lowers nothing.

    Attributes:
        token: Whose.
        life_ms: The life of a lease.
        ticket_ms: The life of a ticket.
        channel: Where its owner hears of a grant from now on; ``""``: where it did.
        permits: As for ``Take``.
        others: Tokens of other waiters of its client, whose tickets are raised with it.
    """

    token: str
    life_ms: int
    ticket_ms: int
    channel: str
    permits: int = 0
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(Request):
    """Release, withdraw or undo: whatever the token is, it is no more.

    Attributes:
        token: Whose.
        tomb_ms: For how long it is barred; 0: not at all.
        close_ms: For how long nobody else gets what it held; 0: at once.
        permits: As for ``Take``.
        spent: Tickets that its client served from this token, which go with it.
        look: How many of those directly behind the next holder the wake-up names, while they are of one process.
    """

    token: str
    tomb_ms: int
    close_ms: int
    permits: int = 0
    spent: tuple[str, ...] = ()
    look: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt(Request):
    """Go on with the lease of a token that was given away, once.

    Attributes:
        old: That token.
        token: The new one.
        life_ms: The life of the lease from now on.
    """

    old: str
    token: str
    life_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Request):
    """Who holds and who waits.

    Attributes:
        most: How many of each to list.
        permits: As for ``Take``.
    """

    most: int
    permits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek(Request):
    """The token of the holder: for ``Force`` alone, and shown to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Force(Request):
    """Take the name from a holder, at an operator's word.

    Attributes:
        token: The holder's, as ``Peek`` read it.
        tomb_ms: For how long it is barred.
        channel: Where the holder hears that its lease is over; ``""``: nowhere.
    """

    token: str
    tomb_ms: int
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe(Request):
    """Who leads; and be woken when that changes.

    Attributes:
        token: Who asks.
        ticket_ms: How long it is to be woken; 0: it only asks.
        channel: Where it hears.
        former: Where it heard before, or ``""``.
        most: How many may observe.
    """

    token: str
    ticket_ms: int
    channel: str
    former: str
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unobserve(Request):
    """Do not be woken any more; who sleeps is woken for the last time.

    Attributes:
        token: Whose observation.
        channel: Where it heard.
    """

    token: str
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimit(Request):
    """Change how many permits there are. No holder loses any.

    Attributes:
        limit: How many.
        declared: How many the caller knew of.
    """

    limit: int
    declared: int


# What clients publish about themselves: of a namespace, family "sessions"; of a name, family "history" ---------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Request):
    """Write a session's record, unless a newer one is there.

    Attributes:
        session: Whose.
        number: Which of its records it is.
        life_ms: For how long it is good.
        data: What it says.
    """

    session: str
    number: int
    life_ms: int
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(Request):
    """Take a session's record away.

    Attributes:
        session: Whose.
    """

    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Find(Request):
    """List the sessions that there are, in order.

    Attributes:
        prefix: What their ids begin with; ``""``: all.
        after: Behind which id; ``""``: from the first.
        limit: How many.
    """

    prefix: str
    after: str
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Request):
    """Read the records of sessions.

    Attributes:
        sessions: Their ids.
    """

    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell(Request):
    """Send a message about a token that grants nothing.

    Attributes:
        channel: Where it is heard.
        token: Which.
        over: Whether its lease is over; else its waiter is to ask.
    """

    channel: str
    token: str
    over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteTaken(Request):
    """Note that a grant was force-released.

    Attributes:
        tag: Which.
        life_ms: For how long to remember it.
    """

    tag: str
    life_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTaken(Request):
    """Which grants were taken from their holders of late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteLine(Request):
    """Write a line into the audit log, once.

    Attributes:
        line: Its id.
        data: What it says.
        limit: How many lines are kept.
        life_ms: For how long, from the last of them.
    """

    line: str
    data: str
    limit: int
    life_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLines(Request):
    """Read the newest lines of the audit log.

    Attributes:
        limit: How many.
    """

    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember(Request):
    """Write entries of a name's history.

    Attributes:
        limit: How many entries are kept.
        life_ms: For how long, from the last of them.
        lines: One for each grant: fence, ages of its begin and end in ms, how it ended, kind, tag, who.
    """

    limit: int
    life_ms: int
    lines: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall(Request):
    """Read the newest entries of a name's history, the oldest of them first.

    Attributes:
        limit: How many.
    """

    limit: int
