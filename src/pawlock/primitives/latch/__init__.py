"""The latch: a count that goes down to 0, and those that wait for that."""

from __future__ import annotations

from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import load, pack_words
from pawlock.primitives.replies import COUNT, LOOK_AT_LATCH

__all__ = ["Latch"]

_COUNT_DOWN = load(__name__, "count_down", read=COUNT)
_WAIT = load(__name__, "wait", read=COUNT)
_LEAVE = load(__name__, "leave", read=COUNT)
_RESET = load(__name__, "reset", read=COUNT)
_INSPECT = load(__name__, "inspect", read=LOOK_AT_LATCH)


def _args(*args: str | int) -> bytes:
    return pack_words(*[str(arg).encode() for arg in args])


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
        latch = f"{WIRE_VERSION}:latch"
        keys = [helper_key(key, suffix).encode() for suffix in (latch, f"{latch}:waiters", f"{latch}:seen")]
        self._keys = pack_words(*keys)
        self._both = pack_words(*keys[:2])

    def count_down(self, token: str, part: str, n: int) -> Call:
        """Count down by ``n``, once for each token and each part; see ``count_down.lua``."""
        return Call(
            _COUNT_DOWN, self._keys + _args(token, part, n, self.count, self._ttl_ms, self._remember_ms)
        )

    def wait(self, token: str, round_: int, channel: str, former: str) -> Call:
        """Ask whether it is open, and be woken when it opens; see ``wait.lua``."""
        args = _args(
            token, round_, self.count, self._ttl_ms, self._ticket_ms, channel, former, self._max_waiters
        )
        return Call(_WAIT, self._keys + args)

    def leave(self, token: str, round_: int, channel: str) -> Call:
        """End a wait; see ``leave.lua``."""
        return Call(_LEAVE, self._both + _args(token, round_, channel))

    def reset(self, token: str) -> Call:
        """Begin a new round; see ``reset.lua``."""
        return Call(_RESET, self._keys + _args(token, self.count, self._ttl_ms, self._remember_ms))

    def inspect(self) -> Call:
        """Read what is left; see ``inspect.lua``."""
        return Call(_INSPECT, self._keys)
