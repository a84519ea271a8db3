"""The latch: a count that goes down to 0, and those that wait for that."""

from __future__ import annotations

from pawlock.core import outcomes
from pawlock.core.runtime import Call
from pawlock.core.scripts import Replies, load
from pawlock.primitives.packing import helper, pack
from pawlock.primitives.replies import always

__all__ = ["Latch"]

_READ: Replies = {
    b"D": always(outcomes.Noted()),
    b"R": always(outcomes.Noted()),
    b"C": lambda fields: outcomes.Disagreed(fields[0]),
    b"O": lambda fields: outcomes.Open(*fields),
    b"N": lambda fields: outcomes.Shut(fields[0], fields[1], waits=False),
    b"W": lambda fields: outcomes.Shut(fields[0], fields[1], waits=True),
    b"L": always(outcomes.LatchLost()),
    b"F": lambda fields: outcomes.Full(fields[0]),
    b"A": always(outcomes.Absent()),
    b"I": lambda fields: outcomes.LookAtLatch(*fields),
}

_COUNT_DOWN = load(__name__, "count_down", read=_READ)
_WAIT = load(__name__, "wait", read=_READ)
_LEAVE = load(__name__, "leave", read=_READ)
_RESET = load(__name__, "reset", read=_READ)
_INSPECT = load(__name__, "inspect", read=_READ)


class Latch:
    """The calls of one latch. Immutable; shared by all threads and tasks.

    Args:
        name: The name as the user gave it.
        key: The key that stands for the name.
        count: From where it counts down.
        ttl_ms: Life of the latch after its last use.
        ticket_ms: Life of a waiter that does not ask again.
        remember_ms: How long a request is remembered, so that a copy of it counts nothing.
        max_waiters: How many may wait at once.
    """

    kind = "latch"

    __slots__ = ("_both", "_keys", "_max_waiters", "_remember_ms", "_ticket_ms", "_ttl_ms", "count", "name")

    def __init__(
        self, name: str, key: str, count: int, ttl_ms: int, ticket_ms: int, remember_ms: int, max_waiters: int
    ) -> None:
        self.name: str = name
        self.count: int = count
        self._ttl_ms, self._ticket_ms = ttl_ms, ticket_ms
        self._remember_ms, self._max_waiters = remember_ms, max_waiters
        self._both = helper(key, "latch", "latch:waiters")
        self._keys = self._both + helper(key, "latch:seen")

    def count_down(self, token: str, part: str, n: int) -> Call:
        """Count down by ``n``, once for each token and each part; see ``count_down.lua``."""
        args = pack(token, part, n, self.count, self._ttl_ms, self._remember_ms)
        return Call(_COUNT_DOWN, self._keys + args)

    def wait(self, token: str, round_: int, channel: str, former: str) -> Call:
        """Ask whether it is open, and be woken when it opens; see ``wait.lua``."""
        numbers = pack(token, round_, self.count, self._ttl_ms, self._ticket_ms)
        return Call(_WAIT, self._keys + numbers + pack(channel, former, self._max_waiters))

    def leave(self, token: str, round_: int, channel: str) -> Call:
        """End a wait; see ``leave.lua``."""
        return Call(_LEAVE, self._both + pack(token, round_, channel))

    def reset(self, token: str) -> Call:
        """Begin a new round; see ``reset.lua``."""
        return Call(_RESET, self._keys + pack(token, self.count, self._ttl_ms, self._remember_ms))

    def inspect(self) -> Call:
        """Read what is left; see ``inspect.lua``."""
        return Call(_INSPECT, self._keys)
