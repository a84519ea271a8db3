"""A primitive of somebody else, of its own shape: so much in each period, for all clients together, and no lease.

This folder is all of it, and no file of pawlock knows of it. Here is what is sent, and what the answers become; what is
done with them in ``operation.py``; its class in ``aio/``, from which that in ``sync/`` is written; its plan, its factory
and its entry in ``entry.py``.
"""

from __future__ import annotations

from typing import NamedTuple

from pawlock.core.outcomes import Disagreed, Look
from pawlock.core.runtime import Call
from pawlock.core.scripts import Replies, load
from pawlock.primitives.packing import apart, pack

__all__ = ["Quota", "Spent", "Taken"]


class Taken(NamedTuple):
    """So much is left of the period."""

    left: int


class Spent(NamedTuple):
    """Less is left than was asked for, and how long the period lasts yet."""

    left: int
    ends_ms: int


_TAKE: Replies = {
    b"T": lambda fields: Taken(*fields),
    b"S": lambda fields: Spent(*fields),
    b"C": lambda fields: Disagreed(*fields),
}
_LOOK: Replies = {
    b"I": lambda fields: Look("", fields[1], 0, 0, fields[2], holds=fields[0]),
}

_SCRIPT = load(__name__, "take", read=_TAKE)
_INSPECT = load(__name__, "inspect", read=_LOOK)


class Quota:
    """The calls of one quota."""

    kind = "quota"

    def __init__(self, namespace: str, name: str, limit: int = 0, period_ms: int = 0) -> None:
        self.name: str = name
        self.key: str = apart(namespace, "quota", name)
        self.limit: int = limit
        self._period_ms = period_ms

    def take(self, token: str, n: int) -> Call:
        """Take ``n`` parts, once for each token in a period; see ``take.lua``."""
        return Call(_SCRIPT, pack(self.key, token, n, self.limit, self._period_ms))

    def inspect(self, limit: int) -> Call:
        """Read what was taken, as the list of locks does: nobody waits on the server; see ``inspect.lua``."""
        return Call(_INSPECT, pack(self.key))
