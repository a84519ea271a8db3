"""How the scripts of the service answer, and how what others answer is passed on; see ``primitives.replies``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pawlock.core.scripts import Readers
from pawlock.primitives.replies import always, text

__all__ = [
    "ANSWERED", "CLOSE", "HOLD", "KEEP", "ONCE", "UPDATE", "Answered", "Begun", "Counted", "Kept",
    "KeyReused", "NoSession", "Noted", "TakenBack",
]  # fmt: skip


class Counted(NamedTuple):
    """A lease is noted, or a session open."""


class NoSession(NamedTuple):
    """There is no such session."""


class Kept(NamedTuple):
    """A session: its ttl (0: it ended just now), and each of its leases, by token and words."""

    ttl_ms: int
    leases: Sequence[tuple[str, str]]


class Noted(NamedTuple):
    """What became of leases is noted; whether there is such a session."""

    in_session: bool


class Begun(NamedTuple):
    """A request with a key of its own, under way: its token, which attempt this is, and whether it is the first."""

    token: str
    attempt: int
    first: bool


class Answered(NamedTuple):
    """The same, answered before."""

    status: int
    body: bytes


class KeyReused(NamedTuple):
    """The same key came with another request."""


class TakenBack(NamedTuple):
    """The answer is kept; of a request that was taken back, whether nobody else goes on with its token."""

    alone: bool


def _pairs(words: Sequence[Any]) -> tuple[tuple[str, str], ...]:
    return tuple([(text(token), text(what)) for token, what in zip(words[::2], words[1::2], strict=True)])


_LOST = {b"S": always(NoSession())}

HOLD = Readers({**_LOST, b"G": always(Counted()), b"O": always(Counted())})

KEEP = Readers({**_LOST, b"K": lambda fields: Kept(fields[1], _pairs(fields[2]))})

CLOSE = Readers({**_LOST, b"K": lambda fields: Kept(0, _pairs(fields[0]))})

UPDATE = Readers({b"T": lambda fields: Noted(bool(fields[0]))})


ONCE = Readers(
    {
        b"N": lambda fields: Begun(text(fields[0]), int(fields[1]), first=True),
        b"P": lambda fields: Begun(text(fields[0]), int(fields[1]), first=False),
        b"D": lambda fields: Answered(int(fields[0]), fields[1]),
        b"M": always(KeyReused()),
    }
)

ANSWERED = Readers({b"A": lambda fields: TakenBack(bool(fields[0]))})
