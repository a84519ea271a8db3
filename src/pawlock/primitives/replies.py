"""How the scripts answer: the one place where the letters of replies, and the positions in them, mean something.

A reply is a list: a letter, the request id, and what the script's header says. Each script names one of the tables
below (``load``), which says for each letter what the rest of the list becomes. A letter that is not in it is
``Unexpected``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from pawlock.core.protocol.outcomes import (
    Absent,
    AllRenewed,
    Arrived,
    AsAsked,
    Busy,
    Dead,
    Disagreed,
    Finished,
    Forced,
    Forgotten,
    Full,
    Gone,
    Granted,
    Holder,
    Keys,
    KindOfKey,
    LatchLost,
    Leading,
    LimitRefused,
    Look,
    LookAtBarrier,
    LookAtLatch,
    LookAtResult,
    NotArrived,
    Noted,
    NotRecorded,
    Open,
    Outcome,
    Passed,
    Queued,
    Released,
    Seen,
    ServerFacts,
    Shut,
    Texts,
    Ticket,
    Withdrawn,
)
from pawlock.core.protocol.scripts import Readers

__all__ = [
    "BARRIER",
    "BEGIN",
    "COUNT",
    "FINISH",
    "FORCE",
    "KIND",
    "LEAVE",
    "LIMIT",
    "LOOK",
    "LOOK_AT_BARRIER",
    "LOOK_AT_LATCH",
    "LOOK_AT_PERMITS",
    "LOOK_AT_RESULT",
    "NAMESPACE",
    "OBSERVE",
    "PEEK",
    "PERMITS",
    "PROBE",
    "RENEW_ALL",
    "TAKE",
    "VOTE",
    "always",
    "text",
]

Fields = Sequence[Any]


def text(word: object) -> str:
    """What a word of a server says; a word of another program may be any bytes."""
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


def always(outcome: Outcome) -> Callable[[Fields], Outcome]:
    """A reader that knows the outcome already: a step of C, since each release takes it."""
    return partial(next, repeat(outcome))


def _queued(fields: Fields) -> Queued:
    rank, holder_ms, expires_ms, _, foreign = fields
    return Queued(rank, holder_ms, expires_ms, bool(foreign))


def _busy(fields: Fields) -> Busy:
    holder_ms, foreign, holder, *clock = fields
    return Busy(holder_ms, bool(foreign), text(holder), clock[0] if clock else 0)


def _gone(fields: Fields) -> Gone:
    present, *clock = fields
    return Gone(text(present), clock[0] if clock else 0)


def _absent(fields: Fields) -> Absent:
    present, *forced = fields
    return Absent(text(present), bool(forced[0]) if forced else None)


# A grant is read in a step of C: it is on the way of each lock.
_granted: Callable[[Fields], Granted] = partial(tuple.__new__, Granted)  # pyright: ignore[reportUnknownMemberType]

_WAITS: dict[bytes, Callable[[Fields], Outcome]] = {
    b"Q": _queued,
    b"B": _busy,
    b"F": lambda fields: Full(fields[0]),
    b"X": lambda fields: Dead(*fields[:1]),
    b"U": _gone,
}

TAKE = Readers({b"H": _granted, **_WAITS})
"""Of one exclusive name: taking, renewing, adopting."""

PERMITS = Readers(
    {
        **TAKE,
        b"H": lambda fields: Granted(*fields[:3]),
        b"N": lambda fields: LimitRefused(text(fields[0]), fields[1], fields[2]),
    }
)
"""The same of permits."""

BEGIN = Readers({**TAKE, b"D": lambda fields: Finished(text(fields[0]), *fields[1:4])})
"""The same of what is done once."""

VOTE = Readers({**TAKE, b"H": lambda fields: Granted(*fields) if fields else AsAsked()})
"""Of one of several masters."""

LEAVE = Readers({b"R": always(Released()), b"W": always(Withdrawn()), b"A": _absent})

FINISH = Readers({b"R": always(Released()), b"L": lambda fields: NotRecorded(*_absent(fields))})

RENEW_ALL = Readers({b"H": lambda fields: AllRenewed(fields[0], fields[1])})

LIMIT = Readers({b"L": always(Noted())})


# Looking -------------------------------------------------------------------------------------------------------------


def _waiters(listed: Sequence[Any]) -> tuple[Ticket, ...]:
    # Numbers come as text where they may be larger than a script's own.
    found = zip(listed[::3], listed[1::3], listed[2::3], strict=True)
    return tuple([Ticket(text(who), int(number), int(expiry)) for who, number, expiry in found])


def _holders(listed: Sequence[Any], fences: Sequence[int] | None = None) -> tuple[Holder, ...]:
    own: Sequence[int | None] = fences if fences is not None else [None] * (len(listed) // 3)
    return tuple(
        [
            Holder(text(mode), text(who), int(expiry), fence)
            for mode, who, expiry, fence in zip(listed[::3], listed[1::3], listed[2::3], own, strict=True)
        ]
    )


def _look(fields: Fields) -> Look:
    who, left_ms, cur, last, now_ms, foreign, holds, queue_length, listed = fields
    return Look(
        text(who),
        left_ms,
        cur,
        last,
        now_ms,
        bool(foreign),
        holds,
        queue_length,
        _waiters(listed),
    )


def _look_at_permits(fields: Fields) -> Look:
    who, left_ms, cur, last, now_ms, foreign, holds, queue_length, listed = fields[:9]
    limit, used, holders, fences = fields[9:]
    return Look(
        text(who), left_ms, cur, last, now_ms, bool(foreign), holds, queue_length, _waiters(listed),
        _holders(holders, fences), limit, used,
    )  # fmt: skip


LOOK = Readers({b"I": _look})

LOOK_AT_PERMITS = Readers({b"I": _look_at_permits})

PEEK = Readers(
    {
        b"V": lambda fields: Seen(
            fields[0], tuple(zip(fields[1][::2], map(text, fields[1][1::2]), strict=True))
        )
    }
)

FORCE = Readers(
    {
        b"R": lambda fields: Forced(fields[0], text(fields[1])),
        b"A": lambda fields: Absent(text(fields[0])),
    }
)

KIND = Readers({b"K": lambda fields: KindOfKey(text(fields[0]), fields[1])})

PROBE = Readers({b"P": lambda fields: ServerFacts(text(fields[0]), fields[1])})


# Others --------------------------------------------------------------------------------------------------------------

OBSERVE = Readers(
    {
        b"I": lambda fields: Leading(text(fields[0]), fields[1], fields[2]),
        b"F": lambda fields: Full(fields[0]),
        b"A": always(Absent()),
    }
)

LOOK_AT_RESULT = Readers(
    {
        b"I": lambda fields: LookAtResult(text(fields[0]), *fields[1:5]),
        b"R": lambda fields: Forgotten(bool(fields[0])),
    }
)

COUNT = Readers(
    {
        b"D": always(Noted()),
        b"R": always(Noted()),
        b"C": lambda fields: Disagreed(fields[0]),
        b"O": lambda fields: Open(*fields[:1]),
        b"N": lambda fields: Shut(fields[0], fields[1], waits=False),
        b"W": lambda fields: Shut(fields[0], fields[1], waits=True),
        b"L": always(LatchLost()),
        b"F": lambda fields: Full(fields[0]),
        b"A": always(Absent()),
    }
)
"""Of a latch."""

LOOK_AT_LATCH = Readers({b"I": lambda fields: LookAtLatch(*fields[:4])})

BARRIER = Readers(
    {
        b"P": lambda fields: Passed(*fields[:2]),
        b"W": lambda fields: Arrived(*fields[:2]) if fields else Withdrawn(),
        b"U": lambda fields: NotArrived(fields[0]),
        b"C": lambda fields: Disagreed(fields[0]),
        b"X": always(Dead()),
        b"A": always(Absent()),
    }
)

LOOK_AT_BARRIER = Readers({b"I": lambda fields: LookAtBarrier(*fields[:2])})


def _texts(words: Sequence[Any]) -> tuple[str, ...]:
    return tuple([text(word) for word in words])


NAMESPACE = Readers(
    {
        b"A": lambda fields: Texts(fields[0], _texts(fields[1])),
        b"N": lambda fields: Noted(fields[0]),
        b"K": lambda fields: Keys(text(fields[0]), fields[1], _texts(fields[2])),
    }
)
