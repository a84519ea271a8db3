"""What an engine answers: one small immutable record for each thing that may have come of a request.

Which of them a request may be answered with stands at the method that makes it (``primitive``). How a
server encodes them is known to its engine alone. Times are whole milliseconds; ``left`` is what is left of a life at
the answer, and ``expires`` an end by the server's clock. What others see of a token (``holder``, ``who``) is ``""`` if
there is nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "ENDLESS_MS",
    "NOBODY_MS",
    "Absent",
    "AllRenewed",
    "Arrived",
    "Busy",
    "Dead",
    "Disagreed",
    "Finished",
    "Forced",
    "Forgotten",
    "Full",
    "Gone",
    "Granted",
    "Holder",
    "Keys",
    "KindOfKey",
    "LatchLost",
    "Leading",
    "LimitRefused",
    "Look",
    "LookAtBarrier",
    "LookAtLatch",
    "LookAtResult",
    "NotArrived",
    "NotRecorded",
    "Noted",
    "Open",
    "Outcome",
    "Passed",
    "Queued",
    "Released",
    "Seen",
    "ServerFacts",
    "Shut",
    "Texts",
    "Ticket",
    "Unexpected",
    "Withdrawn",
]

NOBODY_MS = -2
"""What is left of a life where nobody holds the name."""

ENDLESS_MS = -1
"""The same of a holder that another program gave no expiry."""


# Taking, renewing, leaving -------------------------------------------------------------------------------------------


class Granted(NamedTuple):
    """The token holds the name; also what a renewal of a holder, or an adoption, is answered with.

    Attributes:
        fence: Its fencing token; 0 or less: granted unseen, and of no use.
        left_ms: What is left of its life.
        clock: The server's clock, in ms; of one of several masters in µs, 0: it was not read.
    """

    fence: int
    left_ms: int
    clock: int


class Queued(NamedTuple):
    """The token waits in the queue.

    Attributes:
        rank: How many stand before it.
        holder_ms: What is left of the holder's life; of several holders, of the first that ends.
        expires_ms: When its ticket ends.
        foreign: Whether the holder is another program's.
    """

    rank: int
    holder_ms: int
    expires_ms: int
    foreign: bool


class Busy(NamedTuple):
    """Somebody else holds the name, and the token does not wait.

    Attributes:
        holder_ms: What is left of the holder's life.
        foreign: Whether it is another program's.
        holder: Who it is.
        clock: As of ``Granted``, of one of several masters.
        outcomes: Of several servers, what each of them said, by its address; None of one.
    """

    holder_ms: int
    foreign: bool
    holder: str
    clock: int = 0
    outcomes: dict[str, str] | None = None


class Full(NamedTuple):
    """So many wait, or observe, already that the token may not."""

    waiters: int


class Dead(NamedTuple):
    """The token was left behind, with a tombstone: it is never granted again.

    Attributes:
        clock: As of ``Granted``, of one of several masters.
    """

    clock: int = 0


class Gone(NamedTuple):
    """The token neither holds nor waits.

    Attributes:
        present: Who has the name instead: ``"none"``, ``"held"``, ``"other"`` (a client of pawlock) or ``"foreign"``.
        clock: As of ``Granted``, of one of several masters.
    """

    present: str
    clock: int = 0


class LimitRefused(NamedTuple):
    """A number of permits that does not go with what the server knows.

    Attributes:
        why: ``"weight"`` or ``"limit"``.
        limit: The limit that counts.
        declared: What was declared for it.
    """

    why: str
    limit: int
    declared: int


class Released(NamedTuple):
    """The token held the name, and is over."""


class Withdrawn(NamedTuple):
    """The token waited, and is over."""


class Absent(NamedTuple):
    """There was nothing to leave, or to take away.

    Attributes:
        present: As of ``Gone``; of ``force``, who holds the name now (``""``: another program).
        forced: Whether an operator took the name from the token; None: that is not known.
    """

    present: str = "none"
    forced: bool | None = None


class NotRecorded(NamedTuple):
    """A result that was not recorded, for certain: its token does not hold the name. Otherwise as ``Absent``."""

    present: str
    forced: bool | None


class AllRenewed(NamedTuple):
    """Several holders were renewed together.

    Attributes:
        lefts_ms: What is left of the life of each; 0 of one that has to be renewed by itself.
        clock: The server's clock.
    """

    lefts_ms: Sequence[int]
    clock: int


# Looking, listing, forcing -------------------------------------------------------------------------------------------


class Ticket(NamedTuple):
    """One waiter in a look.

    Attributes:
        who: Who waits.
        number: Its ticket: the server's clock in µs when it was drawn, or one more than the last.
        expires_ms: When it ends.
    """

    who: str
    number: int
    expires_ms: int


class Holder(NamedTuple):
    """One of several holders in a look.

    Attributes:
        mode: How it holds: a weight, or ``"x"``.
        who: Who it is.
        expires_ms: When it ends.
        fence: Its own fence; None: all have that of the name.
    """

    mode: str
    who: str
    expires_ms: int
    fence: int | None = None


class Look(NamedTuple):
    """The state of a name.

    Attributes:
        holder: Who holds it; of several, the one that ends last.
        left_ms: What is left of its life, ``NOBODY_MS`` or ``ENDLESS_MS``.
        fence: Its fence.
        last: The last fence that was given out; 0: none is remembered.
        now_ms: The server's clock.
        foreign: Whether another program holds it.
        holds: How many hold it, or how often.
        queue_length: How many wait.
        waiters: The first of them.
        holders: Each holder, where there may be several; None: there is one at most.
        limit: How many permits there are; 0: that has no meaning here.
        used: How many are taken.
    """

    holder: str
    left_ms: int
    fence: int
    last: int
    now_ms: int
    foreign: bool = False
    holds: int = 0
    queue_length: int = 0
    waiters: Sequence[Ticket] = ()
    holders: Sequence[Holder] | None = None
    limit: int = 0
    used: int = 0


class Seen(NamedTuple):
    """Who holds a name, secret and all: for the next request only.

    Attributes:
        fence: The fence of the present grant.
        holders: Each holder: what ``force`` takes it from, which is shown to nobody, and what may be shown.
    """

    fence: int
    holders: Sequence[tuple[Any, str]]


class Forced(NamedTuple):
    """The name was taken from its holder: the fence that it rose to, and what is shown of the holder."""

    fence: int
    holder: str


class KindOfKey(NamedTuple):
    """What stands at a key, in the words of its server, and the fields of a small hash."""

    kind: str
    fields: Sequence[bytes]


class ServerFacts(NamedTuple):
    """What a server says of itself, as text; ``""`` if it does not say; and its clock in µs."""

    info: str
    now_us: int


# Elections, results --------------------------------------------------------------------------------------------------


class Leading(NamedTuple):
    """Who leads; ``leader`` is ``""`` if nobody does."""

    leader: str
    left_ms: int
    fence: int


class Finished(NamedTuple):
    """It was done: the result, the fence under which it was, and when."""

    type: str
    data: bytes
    fence: int
    at_ms: int


class LookAtResult(NamedTuple):
    """What is known of a result without its value; ``type`` is ``""`` if there is none."""

    type: str
    size: int
    fence: int
    at_ms: int
    left_ms: int


class Forgotten(NamedTuple):
    """The record of a result is gone; whether there was one."""

    deleted: bool


# Latches, barriers ---------------------------------------------------------------------------------------------------


class Disagreed(NamedTuple):
    """Others declared another number, for the same latch or barrier."""

    declared: int


class LookAtLatch(NamedTuple):
    """The state of a latch; ``initial`` is 0 if there is none."""

    initial: int
    left: int
    round: int
    waiters: int


class Open(NamedTuple):
    """The latch was opened; the round that the caller waited in, 0 if that is not said."""

    round: int = 0


class Shut(NamedTuple):
    """The latch is not open: what is left of its count, in which round, and whether the caller is registered."""

    left: int
    round: int
    waits: bool


class LatchLost(NamedTuple):
    """The server lost the latch that the caller waits for."""


class LookAtBarrier(NamedTuple):
    """The state of a barrier: how many wait, and of how many; ``parties`` is 0 if none has arrived."""

    arrived: int
    parties: int


class Passed(NamedTuple):
    """All have arrived: the caller's place among them, from 0."""

    place: int
    round: int


class Arrived(NamedTuple):
    """The caller waits for others; so many have arrived in this round."""

    arrived: int
    round: int


class NotArrived(NamedTuple):
    """The caller's arrival is not known any more; the barrier's present round."""

    round: int


# Namespaces ----------------------------------------------------------------------------------------------------------


class Noted(NamedTuple):
    """What was to be written is written."""

    now_ms: int = 0


class Texts(NamedTuple):
    """Texts of clients: lines of the audit log, or records of who waits with their clients before them."""

    now_ms: int
    texts: Sequence[str]


class Keys(NamedTuple):
    """Some keys of a server.

    Attributes:
        cursor: Where to go on; ``"0"`` at the end.
        total: How many keys the server has in all.
        found: Those that fit.
    """

    cursor: str
    total: int
    found: Sequence[str]


# All -----------------------------------------------------------------------------------------------------------------


class Unexpected(NamedTuple):
    """An answer that no request of pawlock gets."""

    answer: Any


Outcome: TypeAlias = Any
"""Any of these; ``Any``, since which ones a request is answered with is known where it is made."""
