"""What clients publish about themselves: their sessions, and the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import for_several, load, pack_words
from pawlock.primitives.replies import SESSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SessionKeys"]

_PUBLISH = load(__name__, "publish", read=SESSIONS)
_DROP = load(__name__, "drop", read=SESSIONS)
_FIND = load(__name__, "find", read=SESSIONS)
_READ = load(__name__, "read", read=SESSIONS)
_TELL = load(__name__, "tell", read=SESSIONS)
_NOTE = load(__name__, "note", read=SESSIONS)
_LINES = load(__name__, "lines", read=SESSIONS)
_TAKE = load(__name__, "take", read=SESSIONS)
_TAKEN = load(__name__, "taken", read=SESSIONS)


def _pack(*words: str | int) -> bytes:
    return pack_words(*[str(word).encode() for word in words])


class SessionKeys:
    """The calls of one namespace. Immutable; shared by all threads and tasks.

    Args:
        namespace: The namespace as keys begin with it.
    """

    __slots__ = ("_audit", "_order", "_prefix", "_sessions", "_taken")

    def __init__(self, namespace: str) -> None:
        # No namespace holds a colon, so the empty one meets no other.
        root = namespace or "pawlock:"
        self._prefix = helper_key(root, f"{WIRE_VERSION}:session:")
        self._sessions = _pack(helper_key(root, f"{WIRE_VERSION}:sessions"))
        self._order = _pack(helper_key(root, f"{WIRE_VERSION}:sessions:order"))
        self._audit = _pack(helper_key(root, f"{WIRE_VERSION}:audit"))
        self._taken = _pack(helper_key(root, f"{WIRE_VERSION}:taken"))

    def publish(self, session: str, number: int, ttl_ms: int, data: str) -> Call:
        """Write a session's record; see ``publish.lua``."""
        keys = _pack(self._prefix + session) + self._sessions + self._order + self._taken
        return Call(_PUBLISH, keys + _pack(session, number, ttl_ms, data))

    def drop(self, session: str) -> Call:
        """Take a session's record away; see ``drop.lua``."""
        return Call(_DROP, _pack(self._prefix + session) + self._sessions + self._order + _pack(session))

    def find(self, prefix: str, after: str, limit: int) -> Call:
        """List sessions; see ``find.lua``."""
        return Call(_FIND, self._sessions + self._order + _pack(prefix, after, limit))

    def read(self, sessions: Sequence[str]) -> Call:
        """Read the records of sessions; see ``read.lua``."""
        return Call(for_several(_READ, len(sessions)), _pack(*[self._prefix + one for one in sessions]))

    def tell(self, channel: str, token: str) -> Call:
        """Report to a client that the lease of a token is over; see ``tell.lua``."""
        return Call(_TELL, self._sessions + _pack(channel, token, 0))

    def wake(self, channel: str, token: str) -> Call:
        """Wake a waiter, whatever it is by then; see ``tell.lua``."""
        return Call(_TELL, self._sessions + _pack(channel, token, 1))

    def take(self, tag: str, life_ms: int) -> Call:
        """Note that a token was taken from its holder; see ``take.lua``."""
        return Call(_TAKE, self._taken + _pack(tag, life_ms))

    def taken(self) -> Call:
        """Read which tokens were taken from their holders; see ``taken.lua``."""
        return Call(_TAKEN, self._taken)

    def note(self, line: str, data: str, limit: int, life_ms: int) -> Call:
        """Write a line into the audit log; see ``note.lua``."""
        return Call(_NOTE, self._audit + _pack(line, data, limit, life_ms))

    def audit_log(self, limit: int) -> Call:
        """Read the audit log; see ``lines.lua``."""
        return Call(_LINES, self._audit + _pack(limit))
