"""The election: a mutex whose holder leads, and observers that are notified of each change."""

from __future__ import annotations

from functools import lru_cache

from pawlock.core.protocol.names import WIRE_VERSION, helper_key, key_of
from pawlock.core.protocol.options import FENCE_MS
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import Script, load, pack_words
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.replies import FORCE, LEAVE, OBSERVE, TAKE

__all__ = ["Ballot", "ballot_key"]

_ACQUIRE = load(__name__, "acquire", read=TAKE)
_RENEW = load(__name__, "renew", read=TAKE)
_LEAVE = load(__name__, "leave", read=LEAVE)
_OBSERVE = load(__name__, "observe", read=OBSERVE)
_FORCE = load(__name__, "force", read=FORCE)
_UNOBSERVE = load(__name__, "hush", read=OBSERVE)


@lru_cache(maxsize=1024)
def _args(*args: str | int) -> bytes:
    return pack_words(*[str(arg).encode() for arg in args])


def ballot_key(namespace: str, name: str) -> str:
    """The key of an election.

    Args:
        namespace: What ``check_namespace`` returned.
        name: 1 to 200 bytes of text.

    Raises:
        ConfigurationError: The name can never work.
    """
    # No name can be escaped to this: an escape is a % and two digits or capitals.
    return key_of(f"{namespace}:%election", name) if namespace else f"%election:{name}"


class Ballot(Mutex):
    """The calls of one election: those of a mutex, in scripts that also notify the observers.

    Args:
        name: The name as the user gave it.
        key: Its key, which no lock has.
        max_observers: How many may observe at once.
        fence_ms: How long its fence is kept after the last use.
    """

    transferable = False
    renews_together = False

    __slots__ = ("_max_observers", "_observed", "_observers")

    def __init__(self, name: str, key: str, max_observers: int, fence_ms: int = FENCE_MS) -> None:
        super().__init__("election", name, key, fence_ms)
        observers = helper_key(key, f"{WIRE_VERSION}:observers").encode()
        self._observers = pack_words(observers)
        self._observed = pack_words(key.encode(), helper_key(key, "fence").encode(), observers)
        self._max_observers = max_observers

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
        """Stand for election; see ``acquire.lua``."""
        args = _args(ttl_ms, ticket_ms, 1 if wait else 0, block, channel, max_waiters, self.fence_ms)
        return self._ballot(_ACQUIRE, token, args)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a leader or a candidate; see ``renew.lua``."""
        args = pack_words(token.encode()) + _args(ttl_ms, ticket_ms, channel, self.fence_ms)
        return Call(_RENEW, self._keys + self._observers + args)

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Resign, withdraw or undo; see ``leave.lua``."""
        return self._ballot(_LEAVE, token, _args(tomb_ms, close_ms, self.fence_ms))

    def force(self, value: bytes, tomb_ms: int) -> Call:
        """End the leader's term; see ``force.lua``."""
        dead = pack_words(self._dead + value)
        words = pack_words(value, b"%d" % tomb_ms, b"%d" % self.fence_ms)
        return Call(_FORCE, b"".join((self._keys, dead, self._observers, words)))

    def observe(self, token: str, ticket_ms: int, channel: str, former: str) -> Call:
        """Read who leads, and be woken when that changes; see ``observe.lua``."""
        args = _args(token, ticket_ms, channel, former, self._max_observers)
        return Call(_OBSERVE, self._observed + args)

    def unobserve(self, token: str, channel: str) -> Call:
        """End an observation; see ``hush.lua``."""
        return Call(_UNOBSERVE, self._observers + _args(token, channel))

    def _ballot(self, script: Script, token: str, args: bytes) -> Call:
        word = token.encode()
        dead = pack_words(self._dead + word)
        return Call(script, b"".join((self._keys, dead, self._observers, pack_words(word), args)))
