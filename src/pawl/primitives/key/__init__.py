"""The mutex of a key that is shared with other programs: the same scripts, in a variant that yields and wakes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pawl.core.protocol.key import Key, Wake
from pawl.core.protocol.options import DAY_MS
from pawl.core.protocol.primitive import Leaving
from pawl.core.protocol.runtime import Call
from pawl.core.protocol.scripts import Script, load, pack_words
from pawl.primitives.mutex import Mutex, SharedMutex

__all__ = [
    "SCRIPTS",
    "KeyMutex",
    "KeySharedMutex",
    "redisson_keys",
    "redisson_word",
    "shared_word",
    "wake_word",
]

_MUTEX = "pawl.primitives.mutex"
_NAMES = (
    "acquire", "renew", "beat", "leave", "swap", "adopt", "inspect", "peek", "force",
    "own_acquire", "own_renew", "own_leave",
)  # fmt: skip

SCRIPTS: dict[str, dict[str, Script]] = {
    wire: {load(_MUTEX, name).sha: load(_MUTEX, name, wire) for name in _NAMES}
    for wire in ("plain", "redisson")
}
"""Of each wire: the variant of each script of a mutex, by the ordinary one's hash."""


def shared_word(after_ms: int, for_ms: int, wake: str = "-") -> str:
    """The argument ``shared`` of the scripts, as ``key/_plain.lua`` reads it.

    Args:
        after_ms: How long clients of pawl may pass the name on before they leave it free for others; 0: for ever.
        for_ms: How long it is then left free; 0: never.
        wake: What a release that leaves it free tells others: ``"-"`` nothing.
    """
    return f"{after_ms} {for_ms} {wake}"


def wake_word(wake: Wake | None) -> str:
    """The last part of ``shared``: what a release that leaves the name free tells waiters of others."""
    if wake is None:
        return "-"
    if wake[0] == "push":
        return f"push:{wake[2]}:{wake[1]}"
    return f"publish:{len(wake[1].encode())}:{wake[1]}{wake[2]}"


def redisson_word(*, sharded: bool, fenced: bool, unheard: bool) -> str:
    """The last part of ``shared`` for Redisson; see ``_redisson.lua``.

    Args:
        sharded: Whether the servers are a cluster, where Redisson subscribes in another way.
        fenced: Whether the fences are of the counter of an RFencedLock.
        unheard: Whether the name is left free also while nobody of Redisson listens: its RSpinLock does not.
    """
    return f"redisson:{sharded:d}:{fenced:d}:{unheard:d}"


def redisson_keys(key: str) -> bytes:
    """What its scripts take before ``holds``: the queue of an RFairLock, and the counter of an RFencedLock."""
    # Redisson adds no braces to a name that has one.
    tagged = key if "{" in key else "{" + key + "}"
    return pack_words(f"redisson_lock_queue:{tagged}".encode(), f"redisson_lock_token:{tagged}".encode())


@lru_cache(maxsize=256)
def _words(shared: str, fence_ms: int) -> tuple[bytes, int]:
    last = pack_words(b"%d" % fence_ms)
    return pack_words(shared.encode()) + last, len(last)


class KeyMutex(Mutex):
    """The calls of one key that is shared with other programs; otherwise as ``Mutex``.

    Args:
        kind: The factory method that made it.
        name: What it is called in errors and logs.
        key: The key as it stands on the server.
        fence_ms: How long its fence is kept after the last use.
        wire: How its holder is stored.
        shared: What ``shared_word`` gave.
        source: The key as the user gave it, for who goes on with a lease elsewhere.
    """

    renews_together = False

    __slots__ = ("listed_as", "shared", "source", "wire")

    def __init__(
        self,
        kind: str,
        name: str,
        key: str,
        fence_ms: int = DAY_MS,
        *,
        wire: str,
        shared: str,
        source: Key | None = None,
    ) -> None:
        Mutex.__init__(self, kind, name, key, fence_ms)
        if wire == "redisson":
            self._holds = redisson_keys(key) + self._holds
        self.wire: str = wire
        self.shared: str = shared
        self.source: Key | None = source
        # In the records of clients, so that nobody takes it for a name of the namespace.
        self.listed_as: str = f"{kind}={wire}"

    def _variant(self, call: Call) -> Call:
        """The call of the variant: with ``shared`` before its last argument, which is always ``fence_ttl_ms``."""
        words, size = _words(self.shared, self.fence_ms)
        return Call(SCRIPTS[self.wire][call.script.sha], call.body[:-size] + words)

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
        """Take the name, or queue for it."""
        return self._variant(
            super().acquire(
                token, ttl_ms, ticket_ms, wait=wait, block=block, channel=channel, max_waiters=max_waiters
            )
        )

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
        """Leave with ``old`` and queue with ``token``."""
        return self._variant(
            super().swap(old, token, ttl_ms, ticket_ms, block=block, channel=channel, max_waiters=max_waiters)
        )

    def adopt(self, old: str, token: str, ttl_ms: int) -> Call:
        """Replace the token of a holder that gave its lease away."""
        return self._variant(super().adopt(old, token, ttl_ms))

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a holder or a waiter."""
        return self._variant(super().renew(token, ttl_ms, ticket_ms, channel))

    def beat(self, token: str, ttl_ms: int, ticket_ms: int, channel: str, others: Sequence[str]) -> Call:
        """Raise the life of a waiter, and the tickets of others of its client."""
        return self._variant(super().beat(token, ttl_ms, ticket_ms, channel, others))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Release, withdraw or undo."""
        return self._variant(super().leave(token, tomb_ms, close_ms))

    def leave_run(self, token: str, tomb_ms: int, close_ms: int, look: int, spent: Sequence[str]) -> Call:
        """``leave``, with tickets that were served from the token."""
        return self._variant(super().leave_run(token, tomb_ms, close_ms, look, spent))

    def inspect(self, limit: int) -> Call:
        """Read the state of the name."""
        call = super().inspect(limit)
        return Call(SCRIPTS[self.wire][call.script.sha], call.body)

    def peek(self) -> Call:
        """Read who holds the name, secret and all."""
        call = super().peek()
        return Call(SCRIPTS[self.wire][call.script.sha], call.body)

    def force(self, value: bytes, tomb_ms: int, channel: str) -> Call:
        """Take the name from ``value``, as ``peek`` read it."""
        return self._variant(super().force(value, tomb_ms, channel))


class KeySharedMutex(KeyMutex, SharedMutex):
    """A mutex of a shared key whose value is an explicit owner; see ``SharedMutex``.

    Args:
        kind: The factory method that made it.
        name: What it is called in errors and logs.
        key: The key as it stands on the server.
        owner: The owner, as the user gave it.
        fence_ms: How long its fence is kept after the last use.
        wire: How its holder is stored.
        shared: What ``shared_word`` gave.
        source: The key as the user gave it, for who goes on with a lease elsewhere.
    """

    transferable = False
    renews_together = False

    __slots__ = ()

    def __init__(
        self,
        kind: str,
        name: str,
        key: str,
        owner: str,
        fence_ms: int = DAY_MS,
        *,
        wire: str,
        shared: str,
        source: Key | None = None,
    ) -> None:
        KeyMutex.__init__(self, kind, name, key, fence_ms, wire=wire, shared=shared, source=source)
        self._owner = pack_words(f"owner={owner}@shared".encode())
