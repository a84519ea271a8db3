"""The barrier: where several parties wait for each other, again and again."""

from __future__ import annotations

from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import Script, load, pack_words
from pawlock.primitives.replies import BARRIER, LOOK_AT_BARRIER

__all__ = ["Barrier"]

_ARRIVE = load(__name__, "arrive", read=BARRIER)
_LEAVE = load(__name__, "leave", read=BARRIER)
_INSPECT = load(__name__, "inspect", read=LOOK_AT_BARRIER)

_KEPT_TICKETS = 3
"""For how many lives of a ticket it is remembered who passed: a party whose message was lost asks within a third."""


def _args(*args: str | int) -> bytes:
    return pack_words(*[str(arg).encode() for arg in args])


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
        barrier = f"{WIRE_VERSION}:barrier"
        suffixes = (barrier, f"{barrier}:waiting", f"{barrier}:passed", f"{barrier}:tickets")
        self._keys = pack_words(*[helper_key(key, suffix).encode() for suffix in suffixes])
        self._dead = helper_key(key, f"{barrier}:dead:")

    def arrive(self, token: str, channel: str, *, stay: bool) -> Call:
        """Arrive, or (``stay``) keep the place of an arrival that is known; see ``arrive.lua``."""
        keep_ms = _KEPT_TICKETS * self._ticket_ms
        args = (1 if stay else 0, self.parties, self._ticket_ms, keep_ms, channel)
        return self._call(_ARRIVE, token, *args)

    def leave(self, token: str, tomb_ms: int) -> Call:
        """Withdraw an arrival; see ``leave.lua``."""
        return self._call(_LEAVE, token, tomb_ms)

    def inspect(self) -> Call:
        """Read how many wait; see ``inspect.lua``."""
        return Call(_INSPECT, self._keys + _args(self._dead))

    def _call(self, script: Script, token: str, *args: str | int) -> Call:
        return Call(script, self._keys + _args(self._dead + token, token, *args))
