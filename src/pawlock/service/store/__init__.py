"""What the service keeps on the server: sessions, what is held, and responses to repeated requests.

All keys of a namespace lie in one hash slot. Nothing here decides who holds a name: that is the primitive's own key. If
all of this were lost, leases would still end by their ttl and be released by their tokens.
"""

from __future__ import annotations

import hashlib

from pawlock.core.names import WIRE_VERSION, helper_key
from pawlock.core.runtime import Call
from pawlock.core.scripts import load, pack_words
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

    __slots__ = ("_prefix",)

    def __init__(self, namespace: str) -> None:
        self._prefix = helper_key(namespace or "pawlock:", f"{WIRE_VERSION}:http:")

    def _of(self, what: str, *parts: str) -> bytes:
        return _pack(f"{self._prefix}{what}:{_hashed(*parts)}")

    def hold(self, client: str, token: str, what: str, session: str) -> Call:
        """Note a lease in its session; see ``hold.lua``."""
        return Call(_HOLD, self._of("session", client, session) + _pack(token, what))

    def update(self, client: str, session: str, over: str) -> Call:
        """Take what is over out of a session; see ``update.lua``."""
        return Call(_UPDATE, self._of("session", client, session) + _pack(over))

    def open(self, client: str, session: str, ttl_ms: int) -> Call:
        """Open a session; see ``open.lua``."""
        return Call(_OPEN, self._of("session", client, session) + _pack(ttl_ms))

    def keep(self, client: str, session: str) -> Call:
        """Keep a session alive; see ``keep.lua``."""
        return Call(_KEEP, self._of("session", client, session))

    def close(self, client: str, session: str) -> Call:
        """End a session; see ``close.lua``."""
        return Call(_CLOSE, self._of("session", client, session))

    def once(self, client: str, key: str, body: str, token: str, life_ms: int) -> Call:
        """Begin a request; see ``once.lua``."""
        return Call(_ONCE, self._of("request", client, key) + _pack(body, token, life_ms))

    def answered(
        self, client: str, key: str, token: str, attempt: int, status: str, answer: str, life_ms: int
    ) -> Call:
        """Keep an answer, or take the request back; see ``answered.lua``."""
        words = _pack(token, attempt, status, answer, life_ms)
        return Call(_ANSWERED, self._of("request", client, key) + words)
