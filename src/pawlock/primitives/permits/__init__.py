"""Permits: ``semaphore``, and both sides of an ``rwlock``. Each acquisition has a lease of its own."""

# ruff: noqa: ARG002 - each permit has one fence, and its lease stays in its process

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pawlock.core.names import WIRE_VERSION, helper_key, key_of
from pawlock.core.options import FENCE_MS, LockOptions
from pawlock.core.outcomes import Granted, LimitRefused, Noted, Outcome
from pawlock.core.primitive import ANY_LIMIT
from pawlock.core.runtime import Call
from pawlock.core.scripts import Replies, load
from pawlock.errors import LimitMismatch, NotSupported
from pawlock.primitives.packing import Named, pack, packed
from pawlock.primitives.replies import FORCE, LEAVE, LOOK, PEEK, TAKE, always, text

if TYPE_CHECKING:
    from pawlock.core.primitive import Primitive
    from pawlock.errors import PawlockError

__all__ = ["EXCLUSIVE", "NO_LIMIT", "SHARED", "Permits", "reader", "semaphore", "writer"]

_TAKE: Replies = {
    **TAKE,
    b"H": lambda fields: Granted(*fields[:3]),
    b"N": lambda fields: LimitRefused(text(fields[0]), *fields[1:]),
}

_ACQUIRE = load(__name__, "acquire", read=_TAKE)
_RENEW = load(__name__, "renew", read=_TAKE)
_LEAVE = load(__name__, "leave", read=LEAVE)
_LIMIT = load(__name__, "limit", read={b"L": always(Noted())})
_INSPECT = load(__name__, "inspect", read=LOOK)
_PEEK = load(__name__, "peek", read=PEEK)
_FORCE = load(__name__, "force", read=FORCE)

SHARED = "1"
"""The mode of a reader. Any number is a weight; a reader's is 1 where there is no limit."""

EXCLUSIVE = "x"
"""The mode of a writer: alone, however many permits there are."""

NO_LIMIT = 0


class Permits(Named):
    """The requests of one name whose holders may be many; see ``Named``.

    Args:
        kind: What the user calls it, as in ``"semaphore"``.
        name: The name as the user gave it.
        key: The name's key.
        stem: What its own keys are called: names of two stems have nothing in common.
        mode: A weight, ``SHARED`` or ``EXCLUSIVE``.
        permits: How many there are in all; ``NO_LIMIT`` for readers and writers.
        fence_ms: How long its fence and its limit are kept after the last use.
    """

    advice = "release the read lease first"

    __slots__ = (
        "_base",
        "_dead",
        "_keys",
        "_more",
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
        self._keys = pack(self.key, *[f"{self.key}:{suffix}" for suffix in ("fence", "queue", "tickets")])
        self._dead = f"{self.key}:dead:".encode()
        self._more = pack(f"{self.key}:holds")

    def of(self, kind: str, mode: str) -> Permits:
        """The same name in another mode."""
        return Permits(kind, self.name, self._base, self.stem, mode, self.permits, self.fence_ms)

    def acquire(
        self, token: str, ttl_ms: int, ticket_ms: int, *, wait: bool, block: int, channel: str, max_queue: int
    ) -> Call:
        """Take permits, or queue for them; see ``acquire.lua``."""
        how = packed(1 if wait else 0, channel, max_queue, self.fence_ms)
        return self._marked(_ACQUIRE, token.encode(), self._mode(ttl_ms, ticket_ms) + how)

    def adopt(self, old: str, token: str, ttl_ms: int) -> NoReturn:
        """Not offered: see ``transferable``."""
        raise NotSupported(f"adopt {self.name!r}: a {self.kind} lease stays in its process", name=self.name)

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a holder or a waiter, or end a downgrade; see ``renew.lua``."""
        return self._renewal(_RENEW, token, self._mode(ttl_ms, ticket_ms, channel, self.fence_ms))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Release, withdraw or undo; see ``leave.lua``."""
        return self._marked(_LEAVE, token.encode(), self._mode(tomb_ms, close_ms, self.fence_ms))

    def limit(self, permits: int) -> Call:
        """Change how many permits there are; see ``limit.lua``."""
        return Call(_LIMIT, self._keys + self._more + packed(permits, self.permits, self.fence_ms))

    def inspect(self, limit: int) -> Call:
        """Read the state of the name; see ``inspect.lua``."""
        return Call(_INSPECT, self._keys + self._more + packed(self.permits, limit))

    def peek(self) -> Call:
        """Read who holds, secrets and all; see ``peek.lua``."""
        return Call(_PEEK, self._keys + self._more)

    def force(self, value: bytes, tomb_ms: int) -> Call:
        """Take what one holder has, as ``peek`` read it; see ``force.lua``."""
        args = packed(self.permits, tomb_ms, self.fence_ms)
        return self._marked(_FORCE, value, args, value.partition(b":")[2])

    def covers(self, other: Primitive) -> bool:
        """Whether who holds this may do what ``other`` allows: a writer may read."""
        return isinstance(other, Permits) and (self.mode == EXCLUSIVE or self.mode == other.mode == SHARED)

    def lowered(self) -> Permits | None:
        """A reader, for a writer: its renewals carry the downgrade, so that it comes true whatever was lost."""
        return self.of(self.kind, SHARED) if self.mode == EXCLUSIVE else None

    def refusal(self, outcome: Outcome) -> PawlockError | None:
        """The error that an answer of these scripts stands for, if it does."""
        if not isinstance(outcome, LimitRefused):
            return None
        why, limit, declared = outcome
        if why == "weight":
            said = f"{self.mode} permits were requested, and the limit is {limit}"
        else:
            was = f" (declared as {declared})" if declared != limit else ""
            said = f"this client has permits={self.permits}, and the server has a limit of {limit}{was}"
            said += "; use one number everywhere, or change it with set_limit()"
        text = f"acquire {self.name!r}: {said}"
        return LimitMismatch(text, name=self.name, limit=limit, permits=self.permits)

    def _mode(self, *args: str | int) -> bytes:
        return packed(self.mode, self.permits, *args)


def semaphore(namespace: str, name: str, options: LockOptions, permits: int = ANY_LIMIT) -> Permits:
    """A number of permits, of which each acquisition takes one."""
    return Permits("semaphore", name, key_of(namespace, name), "permits", SHARED, permits, options.fence_ms)


def reader(namespace: str, name: str, options: LockOptions) -> Permits:
    """The side of a read-write lock that reads."""
    key = key_of(namespace, name)
    return Permits("rwlock.read", name, key, "rwlock", SHARED, fence_ms=options.fence_ms)


def writer(namespace: str, name: str, options: LockOptions) -> Permits:
    """The other side."""
    return reader(namespace, name, options).of("rwlock.write", EXCLUSIVE)
