"""What is sent to each of several independent masters, and the engine that makes it.

The keys are those of the mutex, so that the value of a name is a plain string, here as there. Nobody queues on such a
node: each would order its waiters differently, and grants handed to them would split the votes.
"""

# ruff: noqa: ARG002 - the protocol of primitives names arguments that several masters have no use for

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pawlock.core.options import FENCE_MS
from pawlock.core.primitive import TOMB_MS, Primitive
from pawlock.core.runtime import Call, Request
from pawlock.core.scripts import Script, load, pack_words
from pawlock.errors import NotSupported
from pawlock.model import LossReason
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.redis import RedisEngine
from pawlock.primitives.replies import LEAVE, TAKE

if TYPE_CHECKING:
    from pawlock.core.key import Key
    from pawlock.core.options import LockOptions
    from pawlock.redlock.options import RedlockOptions

__all__ = ["SCRIPTS", "RedlockEngine", "RedlockMutex", "Vote"]

_GRANT = load("pawlock.redlock", "grant", read=TAKE)
_RENEW = load("pawlock.redlock", "renew", read=TAKE)
_LEAVE = load("pawlock.redlock", "leave", read=LEAVE)

SCRIPTS = (_GRANT, _RENEW, _LEAVE)
"""What a node is to know before it is asked."""


class Vote(NamedTuple):
    """The request for a grant: what is asked of each node follows from what the nodes said before.

    Attributes:
        mutex: Makes what is asked.
        token: The token that is to hold the name.
        ttl_ms: The life of a vote.
        block: How many fences are reserved.
    """

    mutex: RedlockMutex
    token: str
    ttl_ms: int
    block: int

    @property
    def name(self) -> str:
        """Under which such requests are counted."""
        return _GRANT.name


def _call(script: Script, keys: bytes, token: str, *numbers: int) -> Call:
    return Call(script, keys + pack_words(token.encode(), *[b"%d" % number for number in numbers]))


class RedlockMutex(Mutex):
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
    renews_together = False
    unheard = LossReason.QUORUM

    __slots__ = ("_options",)

    def __init__(
        self, kind: str, name: str, key: str, options: RedlockOptions, fence_ms: int = FENCE_MS
    ) -> None:
        super().__init__(kind, name, key, fence_ms)
        self._options = options

    def acquire(self, token: str, ttl_ms: int, ticket_ms: int, *, block: int, **more: object) -> Request:
        """Ask for a grant by a majority."""
        return Vote(self, token, ttl_ms, block)

    def grant(self, vote: Vote, proposal: int) -> Call:
        """Ask a node for its vote, with the fence that is proposed, 0: any; see ``grant.lua``."""
        keys = self.name_and_fence + pack_words(self._dead + vote.token.encode())
        return _call(_GRANT, keys, vote.token, proposal, vote.ttl_ms, vote.block, self.fence_ms)

    def ratify(self, vote: Vote, fence: int) -> Call:
        """Write the fence of a grant back to a node that holds the token; see ``renew.lua``."""
        keys = self.name_and_fence
        return _call(_RENEW, keys, vote.token, fence, vote.ttl_ms, vote.block, self.fence_ms)

    def adopt(self, old: str, token: str, ttl_ms: int) -> Call:
        """Not possible here: ``transferable`` is False."""
        raise NotSupported("a lease of independent masters cannot be transferred", name=self.name)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a vote; see ``renew.lua``. Raises ``ConfigurationError`` if it is too long."""
        self._options.check_ttl(ttl_ms / 1000)
        return _call(_RENEW, self.name_and_fence, token, 0, ttl_ms, 0, self.fence_ms)

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Give a vote back, be it given already or still to come; see ``leave.lua``.

        Always with a tombstone: of some nodes nobody has waited for the vote, and what is sent over another connection
        may come before it.
        """
        keys = pack_words(self.key.encode(errors="surrogateescape"), self._dead + token.encode())
        return _call(_LEAVE, keys, token, max(tomb_ms, TOMB_MS), close_ms)


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
