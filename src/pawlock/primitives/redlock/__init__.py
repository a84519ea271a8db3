"""The mutex of several independent masters: what is sent to each of them."""

# ruff: noqa: ARG002 - the protocol of primitives names arguments that several masters have no use for

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.options import FENCE_MS
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.primitive import Leaving, Primitive
from pawlock.core.protocol.quorum import QuorumCall
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import Script, load, pack_words
from pawlock.errors import NotSupported, PawlockError
from pawlock.primitives.replies import LEAVE, LOOK, VOTE

__all__ = ["SCRIPTS", "QuorumMutex"]

_GRANT = load(__name__, "grant", read=VOTE)
_RATIFY = load(__name__, "ratify", read=VOTE)
_RENEW = load(__name__, "renew", read=VOTE)
_LEAVE = load(__name__, "leave", read=LEAVE)
_INSPECT = load("pawlock.primitives.mutex", "inspect", read=LOOK)

SCRIPTS = (_GRANT, _RATIFY, _RENEW, _LEAVE)
"""What every acquisition may send."""


_quorum_call: Callable[[tuple[Script, bytes]], QuorumCall] = partial(tuple.__new__, QuorumCall)  # pyright: ignore[reportUnknownMemberType]


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
        fence_ms: How long its fence is kept after the last use.
    """

    polls = False
    transferable = False
    advice = "use rlock for re-entry"

    __slots__ = (
        *("_dead", "_fence_arg", "_name", "_name_fence", "_queue", "_renewed_ms"),
        *("fence_ms", "key", "kind", "name"),
    )

    def __init__(self, kind: str, name: str, key: str, fence_ms: int = FENCE_MS) -> None:
        self.kind: str = kind
        self.name: str = name
        self.key: str = key
        self.fence_ms: int = fence_ms
        self._name = pack_words(key.encode())
        self._name_fence = pack_words(key.encode(), helper_key(key, "fence").encode())
        helpers = (f"{WIRE_VERSION}:queue", f"{WIRE_VERSION}:tickets")
        self._queue = pack_words(*[helper_key(key, suffix).encode() for suffix in helpers])
        self._dead = helper_key(key, f"{WIRE_VERSION}:dead:").encode()
        self._fence_arg = _args(fence_ms)
        # A promise is made again once a 24th of it is over: see `term` of `_fence.lua`.
        self._renewed_ms = -(-fence_ms * 23 // 24)

    def grant(self, token: str, ttl_ms: int, block: int, proposal: int, *, clock: bool) -> QuorumCall:
        """Ask a node for its vote; see ``grant.lua``."""
        word = token.encode()
        dead = self._dead + word
        fence, last = b"%d" % proposal, b"%d" % (proposal + max(block, 1) - 1)
        plain = proposal and not clock
        promised = b"%d" % (proposal // 1000 + 1 + max(ttl_ms, self._renewed_ms)) if plain else b"0"
        body = b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
            self._name_fence, len(dead), dead, len(word), word, _args(ttl_ms), len(fence), fence,
            len(last), last, len(promised), promised, self._fence_arg,
        )  # fmt: skip
        call: QuorumCall = _quorum_call((_GRANT, body))
        if plain:
            call.asked = Granted(proposal, ttl_ms, 0)
        return call

    def ratify(self, token: str, fence: int, block: int) -> Call:
        """Write the fence of a grant back; see ``ratify.lua``."""
        words = pack_words(token.encode(), b"%d" % fence)
        return Call(_RATIFY, self._name_fence + words + _args(block, self.fence_ms))

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
        """The same as ``grant`` without a proposed fence."""
        return self.grant(token, ttl_ms, block, 0, clock=True)

    def swap(
        self,
        old: Leaving,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        block: int,
        channel: str,
        max_waiters: int,
    ) -> Call:
        """Not sent to several masters: what is left, and what is taken, is counted by itself."""
        raise NotSupported("independent masters have no queue", name=self.name)

    def adopt(self, old: str, token: str, ttl_ms: int) -> Call:
        """Not possible here: ``transferable`` is False."""
        raise NotSupported("a lease of independent masters cannot be transferred", name=self.name)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a node's vote; see ``renew.lua``."""
        return Call(_RENEW, self._name_fence + pack_words(token.encode()) + _args(ttl_ms, self.fence_ms))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Give a node's vote back; see ``leave.lua``."""
        word = token.encode()
        packed = b"$%d\r\n%b\r\n" % (len(word), word)
        dead = self._dead + word
        body = b"%b$%d\r\n%b\r\n%b%b" % (self._name, len(dead), dead, packed, _args(tomb_ms, close_ms))
        return Call(_LEAVE, body)

    def inspect(self, limit: int) -> Call:
        """Read the state of the name on one node; see the mutex's ``inspect.lua``."""
        return Call(_INSPECT, self._name_fence + self._queue + _args(limit))

    def covers(self, other: Primitive) -> bool:
        """Only itself: the same kind is counted once more."""
        return other.kind == self.kind

    def lowered(self) -> Primitive | None:
        """None: there is nothing below holding it."""
        return None

    def refusal(self, outcome: Outcome) -> PawlockError | None:
        """None: every answer is one that each primitive gives."""
        return None
