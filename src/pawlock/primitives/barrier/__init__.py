"""The barrier: where several parties wait for each other, again and again."""

from __future__ import annotations

from pawlock.core import outcomes
from pawlock.core.names import WIRE_VERSION, helper_key
from pawlock.core.runtime import Call
from pawlock.core.scripts import Replies, Script, load
from pawlock.primitives.packing import helper, pack
from pawlock.primitives.replies import always

__all__ = ["Barrier"]

_READ: Replies = {
    b"P": lambda fields: outcomes.Passed(*fields),
    b"W": lambda fields: outcomes.Arrived(*fields[:2]) if fields else outcomes.Withdrawn(),
    b"U": lambda fields: outcomes.NotArrived(fields[0]),
    b"C": lambda fields: outcomes.Disagreed(fields[0]),
    b"X": always(outcomes.Dead()),
    b"A": always(outcomes.Absent()),
    b"I": lambda fields: outcomes.LookAtBarrier(*fields),
}

_ARRIVE = load(__name__, "arrive", read=_READ)
_LEAVE = load(__name__, "leave", read=_READ)
_INSPECT = load(__name__, "inspect", read=_READ)

_KEPT_TICKETS = 3
"""For how many lives of a ticket it is remembered who passed: a party whose message was lost asks within a third."""


class Barrier:
    """The calls of one barrier. Immutable; shared by all threads and tasks.

    Args:
        name: The name as the user gave it.
        key: The key that stands for the name.
        parties: How many pass at once.
        ticket_ms: Life of an arrival that does not ask again.
    """

    kind = "barrier"

    __slots__ = ("_dead", "_keys", "_ticket_ms", "name", "parties")

    def __init__(self, name: str, key: str, parties: int, ticket_ms: int) -> None:
        self.name: str = name
        self.parties: int = parties
        self._ticket_ms = ticket_ms
        self._keys = helper(key, "barrier", "barrier:waiting", "barrier:passed", "barrier:tickets")
        self._dead = helper_key(key, f"{WIRE_VERSION}:barrier:dead:")

    def arrive(self, token: str, channel: str, *, stay: bool) -> Call:
        """Arrive, or (``stay``) keep the place of an arrival that is known; see ``arrive.lua``."""
        keep_ms = _KEPT_TICKETS * self._ticket_ms
        return self._call(_ARRIVE, token, 1 if stay else 0, self.parties, self._ticket_ms, keep_ms, channel)

    def leave(self, token: str, tomb_ms: int) -> Call:
        """Withdraw an arrival; see ``leave.lua``."""
        return self._call(_LEAVE, token, tomb_ms)

    def inspect(self) -> Call:
        """Read how many wait; see ``inspect.lua``."""
        return Call(_INSPECT, self._keys + pack(self._dead))

    def _call(self, script: Script, token: str, *args: str | int) -> Call:
        return Call(script, self._keys + pack(self._dead + token, token, *args))
