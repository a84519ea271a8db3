"""The mutex: ``lock``, ``rlock`` and their shared form for an explicit ``owner=``."""

from __future__ import annotations

from pawl.core.names import WIRE_VERSION, helper_key
from pawl.core.runtime import Call
from pawl.core.scripts import load

__all__ = ["Mutex", "SharedMutex"]

_ACQUIRE = load(__name__, "acquire")
_RENEW = load(__name__, "renew")
_LEAVE = load(__name__, "leave")
_SWAP = load(__name__, "swap")
_INSPECT = load(__name__, "inspect")
_OWN_ACQUIRE = load(__name__, "own_acquire")
_OWN_RENEW = load(__name__, "own_renew")
_OWN_LEAVE = load(__name__, "own_leave")


class Mutex:
    """The calls of one exclusive name. Immutable; shared by all threads and tasks.

    Args:
        kind: The factory method that made it.
        name: The name as the user gave it.
        key: Its key.
    """

    __slots__ = ("_dead", "_holds", "_keys", "key", "kind", "name")

    def __init__(self, kind: str, name: str, key: str) -> None:
        self.kind = kind
        self.name = name
        self.key = key
        names = (
            key,
            *(helper_key(key, s) for s in ("fence", f"{WIRE_VERSION}:queue", f"{WIRE_VERSION}:tickets")),
        )
        self._keys = tuple(name.encode() for name in names)
        self._holds = helper_key(key, f"{WIRE_VERSION}:holds").encode()
        self._dead = helper_key(key, f"{WIRE_VERSION}:dead:")

    def acquire(
        self,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        wait: bool,
        block: int,
        channel: str,
        max_waiters: int,
    ) -> Call:
        """Take the name, or queue for it; see ``acquire.lua``."""
        keys = (*self._keys, (self._dead + token).encode(), self._holds)
        return Call(_ACQUIRE, keys, (token, ttl_ms, ticket_ms, 1 if wait else 0, block, channel, max_waiters))

    def swap(
        self,
        old: str,
        tomb_ms: int,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        block: int,
        channel: str,
        max_waiters: int,
    ) -> Call:
        """Leave with ``old`` and queue with ``token``; see ``swap.lua``."""
        keys = (*self._keys, (self._dead + old).encode(), (self._dead + token).encode(), self._holds)
        return Call(_SWAP, keys, (old, tomb_ms, token, ttl_ms, ticket_ms, block, channel, max_waiters))

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a holder or a waiter; see ``renew.lua``."""
        return Call(_RENEW, (*self._keys, self._holds), (token, ttl_ms, ticket_ms, channel))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Release, withdraw or undo; see ``leave.lua``."""
        keys = (*self._keys, (self._dead + token).encode(), self._holds)
        return Call(_LEAVE, keys, (token, tomb_ms, close_ms))

    def inspect(self, limit: int) -> Call:
        """Read the state of the name; see ``inspect.lua``."""
        return Call(_INSPECT, (*self._keys, self._holds), (limit,))


class SharedMutex(Mutex):
    """A mutex whose value is an explicit owner: several holds, of any process, count as one owner.

    Args:
        kind: The factory method that made it.
        name: The name as the user gave it.
        key: Its key.
        owner: The owner, as the user gave it.
    """

    __slots__ = ("_owner",)

    def __init__(self, kind: str, name: str, key: str, owner: str) -> None:
        super().__init__(kind, name, key)
        self._owner = f"owner={owner}@shared"

    def acquire(
        self,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        wait: bool,
        block: int,
        channel: str,
        max_waiters: int,
    ) -> Call:
        """Take the name for the owner, re-enter it, or queue; see ``own_acquire.lua``."""
        keys = (*self._keys, (self._dead + token).encode(), self._holds)
        mode = 1 if wait else 0
        return Call(
            _OWN_ACQUIRE, keys, (token, self._owner, ttl_ms, ticket_ms, mode, block, channel, max_waiters)
        )

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a hold or a waiter; see ``own_renew.lua``."""
        return Call(_OWN_RENEW, (*self._keys, self._holds), (token, self._owner, ttl_ms, ticket_ms, channel))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """End one hold; see ``own_leave.lua``."""
        keys = (*self._keys, (self._dead + token).encode(), self._holds)
        return Call(_OWN_LEAVE, keys, (token, self._owner, tomb_ms, close_ms))
