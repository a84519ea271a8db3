"""The mutex: ``lock``, ``rlock`` and ``fair_lock``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pawlock.core.names import WIRE_VERSION, helper_key, key_of
from pawlock.core.options import FENCE_MS
from pawlock.core.outcomes import AllRenewed
from pawlock.core.runtime import Call, make_call
from pawlock.core.scripts import SIZES, Script, for_several, load, pack_words
from pawlock.primitives.packing import Named, packed
from pawlock.primitives.replies import FORCE, LEAVE, LOOK, PEEK, TAKE

if TYPE_CHECKING:
    from pawlock.core.options import LockOptions

__all__ = ["Mutex", "mutex"]

_RENEW_ALL = load(__name__, "renew_all", read={b"H": lambda fields: AllRenewed(*fields)})

_FENCE = b"fence"
_QUEUE, _TICKETS, _DEAD = (f"{WIRE_VERSION}:{helper}".encode() for helper in ("queue", "tickets", "dead:"))
_REST = b"$%%d\r\n%%b%b\r\n$%%d\r\n%%b%b\r\n" % (_QUEUE, _TICKETS)


class Mutex(Named):
    """The requests of one exclusive name; see ``Named``.

    Args:
        kind: The factory method that made it.
        name: The name as the user gave it.
        key: Its key.
        fence_ms: How long its fence is kept after the last use.
        more: A key behind the others, packed, of what has one.
    """

    transferable = True
    renews_together: bool = True
    advice = "use rlock for re-entry"

    # What a shape runs that is a mutex and something more.
    _ACQUIRE: Script = load(__name__, "acquire", read=TAKE)
    _RENEW: Script = load(__name__, "renew", read=TAKE)
    _LEAVE: Script = load(__name__, "leave", read=LEAVE)
    _ADOPT: Script = load(__name__, "adopt", read=TAKE)
    _FORCE: Script = load(__name__, "force", read=FORCE)
    _INSPECT: Script = load(__name__, "inspect", read=LOOK)
    _PEEK: Script = load(__name__, "peek", read=PEEK)

    __slots__ = (
        *("_after", "_dead", "_keys", "_more", "_no_tomb", "_parting", "_seen", "_two"),
        *("fence_ms", "key", "kind", "name"),
    )

    def __init__(self, kind: str, name: str, key: str, fence_ms: int = FENCE_MS, more: bytes = b"") -> None:
        self.kind: str = kind
        self.name: str = name
        self.key: str = key
        # In few steps: many programs make a lock for each thing that they work on.
        word = key.encode(errors="surrogateescape")
        size = len(root := helper_key(key, "").encode(errors="surrogateescape"))
        two = b"$%d\r\n%b\r\n$%d\r\n%b%b\r\n" % (len(word), word, size + len(_FENCE), root, _FENCE)
        self._two = len(two)
        self._keys = two + _REST % (size + len(_QUEUE), root, size + len(_TICKETS), root)
        self._dead = root + _DEAD
        self._more = more
        # Behind the key of the tombstone: of what takes the name, what gives it back, and what only looks.
        self._after = self._parting = b"\r\n" + more
        self._seen = b""
        self.fence_ms: int = fence_ms
        self._no_tomb = packed(0, 0, fence_ms)

    def acquire(
        self, token: str, ttl_ms: int, ticket_ms: int, *, wait: bool, block: int, channel: str, max_queue: int
    ) -> Call:
        """Take the name, or queue for it; see ``acquire.lua``."""
        word = token.encode()
        size = len(word)
        dead = self._dead
        body = b"".join((
            self._keys, SIZES[len(dead) + size], dead, word, self._after, SIZES[size], word, b"\r\n",
            packed(ttl_ms, ticket_ms, 1 if wait else 0, block, channel, max_queue, self.fence_ms),
        ))  # fmt: skip
        return make_call((self._ACQUIRE, body))

    def adopt(self, old: str, token: str, ttl_ms: int) -> Call:
        """Replace the token of a holder that gave its lease away; see ``adopt.lua``."""
        return self._marked(self._ADOPT, token.encode(), packed(old, ttl_ms, self.fence_ms))

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a holder or a waiter; see ``renew.lua``."""
        return self._renewal(self._RENEW, token, packed(ttl_ms, ticket_ms, channel, self.fence_ms))

    @staticmethod
    def renew_all(holders: Sequence[tuple[Mutex, str, int]]) -> Call:
        """Raise the lives of several holders, each of a name of its own; see ``renew_all.lua``."""
        parts: list[bytes] = [mutex.name_and_fence for mutex, _, _ in holders]
        for mutex, token, ttl_ms in holders:
            parts += pack_words(token.encode()), packed(ttl_ms, mutex.fence_ms)
        return make_call((for_several(_RENEW_ALL, len(holders)), b"".join(parts)))

    @property
    def name_and_fence(self) -> bytes:
        """The first two of its keys."""
        return self._keys[: self._two]

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Release, withdraw or undo; see ``leave.lua``."""
        args = packed(tomb_ms, close_ms, self.fence_ms) if tomb_ms or close_ms else self._no_tomb
        word = token.encode()
        size = len(word)
        dead = self._dead
        body = b"".join((
            self._keys, SIZES[len(dead) + size], dead, word, self._parting, SIZES[size], word, b"\r\n", args
        ))  # fmt: skip
        return make_call((self._LEAVE, body))

    def inspect(self, limit: int) -> Call:
        """Read the state of the name; see ``inspect.lua``."""
        return Call(self._INSPECT, self._keys + self._seen + packed(limit))

    def peek(self) -> Call:
        """Read who holds the name, secret and all; see ``peek.lua``."""
        return Call(self._PEEK, self._keys + self._seen)

    def force(self, value: bytes, tomb_ms: int) -> Call:
        """Take the name from ``value``, as ``peek`` read it; see ``force.lua``."""
        word = pack_words(value)
        dead = pack_words(self._dead + value)[:-2]
        return Call(
            self._FORCE, b"".join((self._keys, dead, self._parting, word, packed(tomb_ms, self.fence_ms)))
        )


def mutex(kind: str, namespace: str, name: str, options: LockOptions) -> Mutex:
    """The ``lock``, ``rlock`` or ``fair_lock`` of a name."""
    return Mutex(kind, name, key_of(namespace, name), options.fence_ms)
