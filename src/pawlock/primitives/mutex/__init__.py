"""The mutex: ``lock``, ``rlock`` and ``fair_lock``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.options import FENCE_MS
from pawlock.core.protocol.runtime import Call, make_call
from pawlock.core.protocol.scripts import SIZES, Script, for_several, load, pack_words
from pawlock.model import LossReason
from pawlock.primitives.replies import FORCE, LEAVE, LOOK, PEEK, RENEW_ALL, TAKE

if TYPE_CHECKING:
    from pawlock.core.protocol.outcomes import Outcome
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.errors import PawlockError

__all__ = ["Mutex"]

_ACQUIRE = load(__name__, "acquire", read=TAKE)
_RENEW = load(__name__, "renew", read=TAKE)
_LEAVE = load(__name__, "leave", read=LEAVE)
_ADOPT = load(__name__, "adopt", read=TAKE)
_INSPECT = load(__name__, "inspect", read=LOOK)
_RENEW_ALL = load(__name__, "renew_all", read=RENEW_ALL)
_PEEK = load(__name__, "peek", read=PEEK)
_FORCE = load(__name__, "force", read=FORCE)

_FENCE = b"fence"
_QUEUE, _TICKETS, _DEAD = (f"{WIRE_VERSION}:{helper}".encode() for helper in ("queue", "tickets", "dead:"))
_REST = b"$%%d\r\n%%b%b\r\n$%%d\r\n%%b%b\r\n" % (_QUEUE, _TICKETS)


@lru_cache(maxsize=1024)
def _args(*args: str | int) -> bytes:
    # The same few tuples come again and again: a lock's numbers, and the channel of the thread or loop.
    return pack_words(*[str(arg).encode() for arg in args])


class Mutex:
    """The calls of one exclusive name. Immutable; shared by all threads and tasks.

    Args:
        kind: The factory method that made it.
        name: The name as the user gave it.
        key: Its key.
        fence_ms: How long its fence is kept after the last use.
    """

    transferable = True
    renews_together: bool = True
    polls = False
    unheard = LossReason.UNREACHABLE
    advice = "use rlock for re-entry"

    __slots__ = ("_dead", "_keys", "_more", "_no_tomb", "_two", "fence_ms", "key", "kind", "name")

    def __init__(self, kind: str, name: str, key: str, fence_ms: int = FENCE_MS) -> None:
        self.kind: str = kind
        self.name: str = name
        self.key: str = key
        # In few steps: many programs make a lock for each thing that they work on.
        word, root = key.encode(), helper_key(key, "").encode()
        size = len(root)
        two = b"$%d\r\n%b\r\n$%d\r\n%b%b\r\n" % (len(word), word, size + len(_FENCE), root, _FENCE)
        self._two = len(two)
        self._keys = two + _REST % (size + len(_QUEUE), root, size + len(_TICKETS), root)
        self._dead = root + _DEAD
        # A key behind the others, of a wire that has one.
        self._more = b""
        self.fence_ms: int = fence_ms
        self._no_tomb = _args(0, 0, fence_ms)

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
        word = token.encode()
        size = len(word)
        dead = self._dead
        body = b"".join((
            self._keys, SIZES[len(dead) + size], dead, word, b"\r\n", self._more, SIZES[size], word, b"\r\n",
            _args(ttl_ms, ticket_ms, 1 if wait else 0, block, channel, max_waiters, self.fence_ms),
        ))  # fmt: skip
        return make_call((_ACQUIRE, body))

    def adopt(self, old: str, token: str, ttl_ms: int) -> Call:
        """Replace the token of a holder that gave its lease away; see ``adopt.lua``."""
        return self._with_tomb(_ADOPT, token, _args(old, ttl_ms, self.fence_ms))

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a holder or a waiter; see ``renew.lua``."""
        word = token.encode()
        args = _args(ttl_ms, ticket_ms, channel, self.fence_ms)
        body = b"%b%b$%d\r\n%b\r\n%b" % (self._keys, self._more, len(word), word, args)
        return make_call((_RENEW, body))

    @staticmethod
    def renew_all(holders: Sequence[tuple[Mutex, str, int]]) -> Call:
        """Raise the lives of several holders, each of a name of its own; see ``renew_all.lua``."""
        parts: list[bytes] = [mutex.name_and_fence for mutex, _, _ in holders]
        for mutex, token, ttl_ms in holders:
            word = token.encode()
            parts.append(b"$%d\r\n%b\r\n%b" % (len(word), word, _args(ttl_ms, mutex.fence_ms)))
        return make_call((for_several(_RENEW_ALL, len(holders)), b"".join(parts)))

    @property
    def name_and_fence(self) -> bytes:
        """The first two of its keys."""
        return self._keys[: self._two]

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Release, withdraw or undo; see ``leave.lua``."""
        args = _args(tomb_ms, close_ms, self.fence_ms) if tomb_ms or close_ms else self._no_tomb
        word = token.encode()
        size = len(word)
        dead = self._dead
        body = b"".join((
            self._keys, SIZES[len(dead) + size], dead, word, b"\r\n", self._more, SIZES[size], word, b"\r\n", args
        ))  # fmt: skip
        return make_call((_LEAVE, body))

    def covers(self, other: Primitive) -> bool:
        """Whether who holds this may take ``other`` again: an ``rlock`` by an ``rlock``."""
        return self.kind == other.kind

    def lowered(self) -> Primitive | None:
        """None: there is nothing below holding it."""
        return None

    def refusal(self, outcome: Outcome) -> PawlockError | None:  # noqa: ARG002
        """None: it has no answers of its own."""
        return None

    def inspect(self, limit: int) -> Call:
        """Read the state of the name; see ``inspect.lua``."""
        return Call(_INSPECT, self._keys + self._more + _args(limit))

    def peek(self) -> Call:
        """Read who holds the name, secret and all; see ``peek.lua``."""
        return Call(_PEEK, self._keys + self._more)

    def force(self, value: bytes, tomb_ms: int) -> Call:
        """Take the name from ``value``, as ``peek`` read it; see ``force.lua``."""
        dead = pack_words(self._dead + value)
        words = (value, b"%d" % tomb_ms, b"%d" % self.fence_ms)
        return Call(_FORCE, self._keys + dead + self._more + pack_words(*words))

    def _with_tomb(self, script: Script, token: str, args: bytes) -> Call:
        word = token.encode()
        size = len(word)
        dead = self._dead
        body = b"".join((
            self._keys, SIZES[len(dead) + size], dead, word, b"\r\n", self._more, SIZES[size], word, b"\r\n",
            args,
        ))  # fmt: skip
        return Call(script, body)
