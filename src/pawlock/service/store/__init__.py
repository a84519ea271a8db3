"""What the service keeps on the server: sessions, what each client holds, and responses to repeated requests.

All keys of a namespace lie in one hash slot. Nothing here decides who holds a name: that is the primitive's own key. If
all of this were lost, leases would still end by their ttl and be released by their tokens.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import load, pack_words
from pawlock.service.store.replies import ANSWERED, CLOSE, HOLD, KEEP, ONCE, UPDATE

__all__ = ["StoreKeys"]

_ANSWERED = load(__name__, "answered", read=ANSWERED)
_CLOSE = load(__name__, "close", read=CLOSE)
_HOLD = load(__name__, "hold", read=HOLD)
_KEEP = load(__name__, "keep", read=KEEP)
_ONCE = load(__name__, "once", read=ONCE)
_OPEN = load(__name__, "open", read=HOLD)
_UPDATE = load(__name__, "update", read=UPDATE)


def _pack(*words: str | int) -> bytes:
    return pack_words(*[str(word).encode() for word in words])


def _hashed(*parts: str) -> str:
    # Each part with its length, so that no two lists of parts look alike.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class StoreKeys:
    """The calls of one namespace. Immutable; shared by all requests.

    Args:
        namespace: The namespace as keys begin with it.
    """

    __slots__ = ("_kept", "_prefix")

    def __init__(self, namespace: str) -> None:
        self._prefix = helper_key(namespace or "pawlock:", f"{WIRE_VERSION}:http:")
        self._kept = lru_cache(maxsize=1024)(self._keys_of)

    def _of(self, what: str, *parts: str) -> bytes:
        return _pack(f"{self._prefix}{what}:{_hashed(*parts)}")

    def _keys_of(self, client: str, session: str) -> bytes:
        return self._of("holds", client) + self._of("session", client, session)

    def hold(self, client: str, token: str, what: str, session: str, *, life_ms: int, most: int) -> Call:
        """Note a lease; see ``hold.lua``."""
        bound = "1" if session else "0"
        keys = self._kept(client, session)
        return Call(_HOLD, keys + _pack(token, what, life_ms, most, bound))

    def update(self, client: str, session: str, life_ms: int, renewed: str, over: str) -> Call:
        """Update the records of leases that were renewed or have ended; see ``update.lua``."""
        keys = self._kept(client, session)
        return Call(_UPDATE, keys + _pack(life_ms, renewed, over))

    def open(self, client: str, session: str, ttl_ms: int, most: int) -> Call:
        """Open a session; see ``open.lua``."""
        return Call(_OPEN, self._session(client, session) + _pack(_hashed(session), ttl_ms, most))

    def keep(self, client: str, session: str) -> Call:
        """Keep a session alive; see ``keep.lua``."""
        return Call(_KEEP, self._session(client, session) + _pack(_hashed(session)))

    def close(self, client: str, session: str) -> Call:
        """End a session; see ``close.lua``."""
        return Call(_CLOSE, self._session(client, session) + _pack(_hashed(session)))

    def _session(self, client: str, session: str) -> bytes:
        return self._of("session", client, session) + self._of("sessions", client)

    def once(self, client: str, key: str, body: str, token: str, life_ms: int) -> Call:
        """Begin a request; see ``once.lua``."""
        return Call(_ONCE, self._of("request", client, key) + _pack(body, token, life_ms))

    def answered(
        self, client: str, key: str, token: str, attempt: int, status: str, answer: str, life_ms: int
    ) -> Call:
        """Keep an answer, or take the request back; see ``answered.lua``."""
        words = _pack(token, attempt, status, answer, life_ms)
        return Call(_ANSWERED, self._of("request", client, key) + words)
