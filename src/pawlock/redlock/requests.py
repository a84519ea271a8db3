"""What is sent to each of several independent masters, and the engine that makes it.

The keys are those of the mutex, so that the value of a name is a plain string, here as there. Nobody queues on such a
node: each would order its waiters differently, and grants handed to them would split the votes.
"""

# ruff: noqa: ARG002 - the protocol of primitives names arguments that several masters have no use for

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.options import FENCE_MS
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.primitive import TOMB_MS, Primitive
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import load, pack_words
from pawlock.errors import NotSupported, PawlockError
from pawlock.model import LossReason
from pawlock.primitives.redis import RedisEngine
from pawlock.primitives.replies import LEAVE, LOOK, VOTE

if TYPE_CHECKING:
    from pawlock.core.protocol.key import Key
    from pawlock.core.protocol.options import LockOptions
    from pawlock.redlock.options import RedlockOptions

__all__ = ["SCRIPTS", "RedlockEngine", "RedlockMutex", "Vote"]

_GRANT = load("pawlock.redlock", "grant", read=VOTE)
_RATIFY = load("pawlock.redlock", "ratify", read=VOTE)
_RENEW = load("pawlock.redlock", "renew", read=VOTE)
_LEAVE = load("pawlock.redlock", "leave", read=LEAVE)
_INSPECT = load("pawlock.primitives.mutex", "inspect", read=LOOK)

SCRIPTS = (_GRANT, _RATIFY, _RENEW, _LEAVE)
"""What a node is to know before it is asked."""


@lru_cache(maxsize=1024)
def _args(*args: int) -> bytes:
    return pack_words(*[b"%d" % arg for arg in args])


class Vote:
    """The request for a grant: what is asked of each node follows from what the nodes said before.

    Attributes:
        token: The token that is to hold the name.
        ttl_ms: The life of a vote.
    """

    name: str = _GRANT.name

    __slots__ = ("_block", "_mutex", "token", "ttl_ms")

    def __init__(self, mutex: RedlockMutex, token: str, ttl_ms: int, block: int) -> None:
        self.token: str = token
        self.ttl_ms: int = ttl_ms
        self._mutex = mutex
        self._block = block

    def grant(self, proposal: int, *, clock: bool) -> Call:
        """Ask a node for its vote.

        Args:
            proposal: The fence that the candidate would like; 0: any.
            clock: Whether the node is to return its clock.
        """
        return self._mutex.grant(self.token, self.ttl_ms, self._block, proposal, clock=clock)

    def ratify(self, fence: int) -> Call:
        """Write the fence of the grant back to a node that holds the token."""
        return self._mutex.ratify(self.token, fence, self._block)

    def undo(self) -> Call:
        """Take the vote back, be it given already or still to come."""
        return self._mutex.leave(self.token, TOMB_MS, 0)


class RedlockMutex:
    """The requests of one exclusive name. Immutable; shared by all threads and tasks.

    Args:
        kind: The factory method that made it.
        name: The name as the user gave it.
        key: Its key.
        options: How the masters are treated.
        fence_ms: How long its fence is kept after the last use.
    """

    polls = True
    hears = None
    transferable = False
    advice = "use rlock for re-entry"
    unheard = LossReason.QUORUM

    __slots__ = (
        *("_dead", "_fence_arg", "_name", "_name_fence", "_options", "_queue", "_renewed_ms"),
        *("fence_ms", "key", "kind", "name"),
    )

    def __init__(
        self, kind: str, name: str, key: str, options: RedlockOptions, fence_ms: int = FENCE_MS
    ) -> None:
        self.kind: str = kind
        self.name: str = name
        self.key: str = key
        self.fence_ms: int = fence_ms
        self._options = options
        self._name = pack_words(key.encode())
        self._name_fence = pack_words(key.encode(), helper_key(key, "fence").encode())
        helpers = (f"{WIRE_VERSION}:queue", f"{WIRE_VERSION}:tickets")
        self._queue = pack_words(*[helper_key(key, suffix).encode() for suffix in helpers])
        self._dead = helper_key(key, f"{WIRE_VERSION}:dead:").encode()
        self._fence_arg = _args(fence_ms)
        # A promise is made again once a 24th of it is over: see `term` of `_fence.lua`.
        self._renewed_ms = -(-fence_ms * 23 // 24)

    def grant(self, token: str, ttl_ms: int, block: int, proposal: int, *, clock: bool) -> Call:
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
        return Call(_GRANT, body)

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
    ) -> Vote:
        """Ask for a grant by a majority."""
        return Vote(self, token, ttl_ms, block)

    def adopt(self, old: str, token: str, ttl_ms: int) -> Call:
        """Not possible here: ``transferable`` is False."""
        raise NotSupported("a lease of independent masters cannot be transferred", name=self.name)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a vote; see ``renew.lua``. Raises ``ConfigurationError`` if it is too long."""
        self._options.check_ttl(ttl_ms / 1000)
        return Call(_RENEW, self._name_fence + pack_words(token.encode()) + _args(ttl_ms, self.fence_ms))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Give a vote back; see ``leave.lua``.

        Always with a tombstone: of some nodes nobody has waited for the vote, and what is sent over another connection
        may come before it.
        """
        word = token.encode()
        dead = self._dead + word
        body = b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
            self._name, len(dead), dead, len(word), word, _args(max(tomb_ms, TOMB_MS), close_ms)
        )  # fmt: skip
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


class RedlockEngine(RedisEngine):
    """Several independent masters, of which a majority grants; what they cannot keep is refused before.

    Args:
        options: How they are treated.
    """

    __slots__ = ("_options",)

    def __init__(self, options: RedlockOptions) -> None:
        self._options = options

    def mutex(self, kind: str, name: str, key: str, options: LockOptions) -> Primitive:
        """See ``RedisEngine``."""
        return RedlockMutex(kind, name, key, self._options, options.fence_ms)

    def mutex_at(self, kind: str, key: Key, options: LockOptions, *, sharded: bool) -> Primitive:
        """See ``RedisEngine``: only plain keys have a form in common with others there."""
        return RedlockMutex(kind, key.name, key.key, self._options, options.fence_ms)

    def names(self, namespace: str) -> None:
        """See ``RedisEngine``: no two clients would read the same record."""
        return
