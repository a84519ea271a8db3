"""Permits: ``semaphore``, and both sides of an ``rwlock``. Each acquisition has a lease of its own."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.options import FENCE_MS
from pawlock.core.protocol.outcomes import LimitRefused, Outcome
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import SIZES, Script, load, pack_words
from pawlock.errors import LimitMismatch, NotSupported
from pawlock.model import LossReason
from pawlock.primitives.replies import FORCE, LEAVE, LIMIT, LOOK_AT_PERMITS, PEEK, PERMITS

if TYPE_CHECKING:
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.errors import PawlockError

__all__ = ["EXCLUSIVE", "NO_LIMIT", "SHARED", "Permits"]

_ACQUIRE = load(__name__, "acquire", read=PERMITS)
_RENEW = load(__name__, "renew", read=PERMITS)
_LEAVE = load(__name__, "leave", read=LEAVE)
_LIMIT = load(__name__, "limit", read=LIMIT)
_INSPECT = load(__name__, "inspect", read=LOOK_AT_PERMITS)
_PEEK = load(__name__, "peek", read=PEEK)
_FORCE = load(__name__, "force", read=FORCE)

SHARED = "1"
"""The mode of a reader. Any number is a weight; a reader's is 1 where there is no limit."""

EXCLUSIVE = "x"
"""The mode of a writer: alone, however many permits there are."""

NO_LIMIT = 0

_COVERS = {EXCLUSIVE: (EXCLUSIVE, SHARED), SHARED: (SHARED,)}


@lru_cache(maxsize=1024)
def _args(*args: str | int) -> bytes:
    # The same few tuples come again and again: a lock's numbers, and the channel of the thread or loop.
    return pack_words(*[str(arg).encode() for arg in args])


class Permits:
    """The calls of one name whose holders may be many. Immutable; shared by all threads and tasks.

    Args:
        kind: What the user calls it, as in ``"semaphore"``.
        name: The name as the user gave it.
        key: The name's key.
        stem: What its own keys are called: names of two stems have nothing in common.
        mode: A weight, ``SHARED`` or ``EXCLUSIVE``.
        permits: How many there are in all; ``NO_LIMIT`` for readers and writers.
        fence_ms: How long its fence and its limit are kept after the last use.
    """

    polls = False
    unheard = LossReason.UNREACHABLE
    transferable = False
    advice = "release the read lease first"

    __slots__ = (
        "_base",
        "_dead",
        "_holds",
        "_keys",
        "fence_ms",
        "key",
        "kind",
        "mode",
        "name",
        "permits",
        "stem",
    )

    def __init__(
        self,
        kind: str,
        name: str,
        key: str,
        stem: str,
        mode: str,
        permits: int = NO_LIMIT,
        fence_ms: int = FENCE_MS,
    ) -> None:
        self.kind: str = kind
        self.name: str = name
        self.key: str = helper_key(key, f"{WIRE_VERSION}:{stem}")
        self.stem: str = stem
        self.mode: str = mode
        self.permits: int = permits
        self.fence_ms: int = fence_ms
        self._base = key
        keys = [f"{self.key}:{suffix}".encode() for suffix in ("fence", "queue", "tickets")]
        self._keys = pack_words(self.key.encode(), *keys)
        self._holds = pack_words(f"{self.key}:holds".encode())
        self._dead = f"{self.key}:dead:".encode()

    def of(self, kind: str, mode: str) -> Permits:
        """The same name in another mode."""
        return Permits(kind, self.name, self._base, self.stem, mode, self.permits, self.fence_ms)

    def acquire(
        self,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        wait: bool,
        block: int,  # noqa: ARG002  (each permit has one fence)
        channel: str,
        max_waiters: int,
    ) -> Call:
        """Take permits, or queue for them; see ``acquire.lua``."""
        args = _args(
            self.mode, self.permits, ttl_ms, ticket_ms, 1 if wait else 0, channel, max_waiters, self.fence_ms
        )  # fmt: skip
        return self._with_tomb(_ACQUIRE, token, args)

    def adopt(self, old: str, token: str, ttl_ms: int) -> NoReturn:  # noqa: ARG002
        """Not offered: see ``transferable``."""
        raise NotSupported(f"adopt {self.name!r}: a {self.kind} lease stays in its process", name=self.name)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a holder or a waiter, or end a downgrade; see ``renew.lua``."""
        word = token.encode()
        args = _args(self.mode, self.permits, ttl_ms, ticket_ms, channel, self.fence_ms)
        return Call(_RENEW, b"%b%b$%d\r\n%b\r\n%b" % (self._keys, self._holds, len(word), word, args))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Release, withdraw or undo; see ``leave.lua``."""
        return self._with_tomb(
            _LEAVE, token, _args(self.mode, self.permits, tomb_ms, close_ms, self.fence_ms)
        )

    def limit(self, permits: int) -> Call:
        """Change how many permits there are; see ``limit.lua``."""
        return Call(_LIMIT, self._keys + self._holds + _args(permits, self.permits, self.fence_ms))

    def inspect(self, limit: int) -> Call:
        """Read the state of the name; see ``inspect.lua``."""
        return Call(_INSPECT, self._keys + self._holds + _args(self.permits, limit))

    def peek(self) -> Call:
        """Read who holds, secrets and all; see ``peek.lua``."""
        return Call(_PEEK, self._keys + self._holds)

    def force(self, value: bytes, tomb_ms: int) -> Call:
        """Take what one holder has, as ``peek`` read it; see ``force.lua``."""
        dead = pack_words(self._dead + value.partition(b":")[2])
        args = pack_words(value) + _args(self.permits, tomb_ms, self.fence_ms)
        return Call(_FORCE, b"".join((self._keys, dead, self._holds, args)))

    def covers(self, other: Primitive) -> bool:
        """Whether who holds this may do what ``other`` allows: a writer may read."""
        return isinstance(other, Permits) and other.mode in _COVERS.get(self.mode, ())

    def lowered(self) -> Permits | None:
        """A reader, for a writer: its renewals carry the downgrade, so that it comes true whatever was lost."""
        return self.of(self.kind, SHARED) if self.mode == EXCLUSIVE else None

    def refusal(self, outcome: Outcome) -> PawlockError | None:
        """The error that an answer of these scripts stands for, if it does."""
        if not isinstance(outcome, LimitRefused):
            return None
        why, limit, declared = outcome
        if why == "weight":
            text = f"acquire {self.name!r}: {self.mode} permits were requested, and the limit is {limit}"
        else:
            text = (
                f"acquire {self.name!r}: this client has permits={self.permits}, and the server has a limit of {limit}"
                + (f" (declared as {declared})" if declared != limit else "")
                + "; use one number everywhere, or change it with set_limit()"
            )
        return LimitMismatch(text, name=self.name, limit=limit, permits=self.permits)

    def _with_tomb(self, script: Script, token: str, args: bytes) -> Call:
        word = token.encode()
        size = len(word)
        dead = self._dead
        body = b"".join((
            self._keys, SIZES[len(dead) + size], dead, word, b"\r\n", self._holds, SIZES[size], word, b"\r\n", args
        ))  # fmt: skip
        return Call(script, body)
