"""The mutex of several independent masters: what is sent to each of them."""

# ruff: noqa: ARG002 - the protocol of primitives names arguments that several masters have no use for

from __future__ import annotations

from functools import lru_cache

from pawl.core.names import WIRE_VERSION, helper_key
from pawl.core.primitive import Primitive
from pawl.core.runtime import Call, Reply
from pawl.core.scripts import load, pack_words
from pawl.errors import NotSupported, PawlError

__all__ = ["SCRIPTS", "QuorumMutex"]

_GRANT = load(__name__, "grant")
_RATIFY = load(__name__, "ratify")
_RENEW = load(__name__, "renew")
_LEAVE = load(__name__, "leave")
_INSPECT = load("pawl.primitives.mutex", "inspect")

SCRIPTS = (_GRANT, _RATIFY, _RENEW, _LEAVE)
"""What every acquisition may send."""


@lru_cache(maxsize=1024)
def _args(*args: int) -> bytes:
    return pack_words(*[b"%d" % arg for arg in args])


class QuorumMutex:
    """The calls of one exclusive name on one node of several. Immutable; shared by all threads and tasks.

    Its keys are those of the mutex, so that the value of a name is a plain string, here as there. Nobody queues on
    such a node: each would order its waiters differently, and grants handed to them would split the votes.

    Args:
        kind: The factory method that made it.
        name: The name as the user gave it.
        key: Its key.
    """

    transferable = False
    advice = "use rlock for re-entry"

    __slots__ = ("_dead", "_name", "_name_fence", "_queue", "key", "kind", "name")

    def __init__(self, kind: str, name: str, key: str) -> None:
        self.kind: str = kind
        self.name: str = name
        self.key: str = key
        self._name = pack_words(key.encode())
        self._name_fence = pack_words(key.encode(), helper_key(key, "fence").encode())
        helpers = (f"{WIRE_VERSION}:queue", f"{WIRE_VERSION}:tickets", f"{WIRE_VERSION}:holds")
        self._queue = pack_words(*[helper_key(key, suffix).encode() for suffix in helpers])
        self._dead = helper_key(key, f"{WIRE_VERSION}:dead:").encode()

    def grant(self, token: str, ttl_ms: int, block: int, hint: int) -> Call:
        """Ask a node for its vote; see ``grant.lua``."""
        word = token.encode()
        words = pack_words(self._dead + word, word)
        return Call(_GRANT, self._name_fence + words + _args(ttl_ms, block) + pack_words(b"%d" % hint))

    def ratify(self, token: str, fence: int, block: int) -> Call:
        """Write the fence of a grant back; see ``ratify.lua``."""
        return Call(_RATIFY, self._name_fence + pack_words(token.encode(), b"%d" % fence, b"%d" % block))

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
        """The same as ``grant`` without a wish for the fence."""
        return self.grant(token, ttl_ms, block, 0)

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
        """Not sent to several masters: what is left, and what is taken, is counted by itself."""
        raise NotSupported("nobody queues on several masters", name=self.name)

    def adopt(self, old: str, token: str, ttl_ms: int) -> Call:
        """Not possible here: ``transferable`` is False."""
        raise NotSupported("a lease of several masters stays where it is", name=self.name)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a node's vote; see ``renew.lua``."""
        return Call(_RENEW, self._name + pack_words(token.encode()) + _args(ttl_ms))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Give a node's vote back; see ``leave.lua``."""
        word = token.encode()
        return Call(_LEAVE, self._name + pack_words(self._dead + word, word) + _args(tomb_ms, close_ms))

    def inspect(self, limit: int) -> Call:
        """Read the state of the name on one node; see the mutex's ``inspect.lua``."""
        return Call(_INSPECT, self._name_fence + self._queue + _args(limit))

    def covers(self, other: Primitive) -> bool:
        """Only itself: the same kind is counted once more."""
        return other.kind == self.kind

    def raised_by(self, held: Primitive, token: str) -> Primitive | None:
        """Never: a mutex is held, or it is not."""
        return None

    def lowered(self) -> Primitive | None:
        """None: there is nothing below holding it."""
        return None

    def refusal(self, reply: Reply) -> PawlError | None:
        """None: every reply is one that each primitive gives."""
        return None
