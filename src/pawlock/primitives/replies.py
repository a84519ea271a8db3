"""How the scripts answer: where the letters of replies, and the positions in them, mean something.

A reply is a list: a letter, the request id, and what the script's header says. Each script names a table (``load``) that
says for each letter what the rest of the list becomes. A letter that is not in it is ``Unexpected``. The tables of several
shapes stand here; what only one shape hears stands beside its scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from pawlock.core import outcomes
from pawlock.core.outcomes import Outcome
from pawlock.core.scripts import Replies

__all__ = ["FORCE", "LEAVE", "LOOK", "PEEK", "TAKE", "absent", "always", "text", "texts"]

Fields = Sequence[Any]


def text(word: object) -> str:
    """What a word of a server says; a word of another program may be any bytes."""
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


def texts(words: Sequence[object]) -> tuple[str, ...]:
    """The same of several."""
    return tuple(map(text, words))


def always(outcome: Outcome) -> Callable[[Fields], Outcome]:
    """A reader that knows the outcome already: a step of C, since each release takes it."""
    return partial(next, repeat(outcome))


def absent(fields: Fields) -> outcomes.Absent:
    """There was nothing to leave or to take, and what is there instead."""
    present, *forced = fields
    return outcomes.Absent(text(present), *map(bool, forced))


def _queued(fields: Fields) -> outcomes.Queued:
    rank, holder_ms, expires_ms, _, foreign = fields
    return outcomes.Queued(rank, holder_ms, expires_ms, bool(foreign))


def _busy(fields: Fields) -> outcomes.Busy:
    holder_ms, foreign, holder, *clock = fields
    return outcomes.Busy(holder_ms, bool(foreign), text(holder), *clock)


# A grant is read in a step of C: it is on the way of each lock.
_granted: Callable[[Fields], outcomes.Granted] = partial(tuple.__new__, outcomes.Granted)  # pyright: ignore[reportUnknownMemberType]

TAKE: Replies = {
    b"H": _granted,
    b"Q": _queued,
    b"B": _busy,
    b"F": lambda fields: outcomes.Full(fields[0]),
    b"X": lambda fields: outcomes.Dead(*fields),
    b"U": lambda fields: outcomes.Gone(text(fields[0]), *fields[1:]),
}
"""Of one exclusive name: taking, renewing, adopting."""

LEAVE: Replies = {b"R": always(outcomes.Released()), b"W": always(outcomes.Withdrawn()), b"A": absent}

FORCE: Replies = {b"R": lambda fields: outcomes.Forced(fields[0], text(fields[1])), b"A": absent}


# Looking -------------------------------------------------------------------------------------------------------------


def _look(fields: Fields) -> outcomes.Look:
    who, left_ms, cur, last, now_ms, foreign, holds, queued, listed, *permits = fields
    # Numbers come as text where they may be larger than a script's own.
    tickets = zip(listed[::3], map(int, listed[1::3]), map(int, listed[2::3]), strict=True)
    waiters = tuple([outcomes.Ticket(text(who), *ends) for who, *ends in tickets])
    look = outcomes.Look(text(who), left_ms, cur, last, now_ms, bool(foreign), holds, queued, waiters)
    if not permits:
        return look
    limit, used, listed, fences = permits
    rows = zip(listed[::3], listed[1::3], listed[2::3], fences, strict=True)
    holders = [
        outcomes.Holder(text(mode), text(who), int(expiry), fence) for mode, who, expiry, fence in rows
    ]
    return look._replace(holders=tuple(holders), limit=limit, used=used)


def _seen(fields: Fields) -> outcomes.Seen:
    fence, listed = fields
    return outcomes.Seen(fence, tuple(zip(listed[::2], texts(listed[1::2]), strict=True)))


LOOK: Replies = {b"I": _look}

PEEK: Replies = {b"V": _seen}
