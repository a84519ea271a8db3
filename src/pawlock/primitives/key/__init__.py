"""The mutex of a key that is shared with other programs: the same scripts, in a variant that yields and wakes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pawlock.core.protocol.key import Key, Wake
from pawlock.core.protocol.options import DAY_MS
from pawlock.core.protocol.primitive import Leaving
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import Script, load, pack_words
from pawlock.primitives.mutex import Mutex, SharedMutex

if TYPE_CHECKING:
    from pawlock.core.protocol.terms import Terms

__all__ = [
    "SCRIPTS",
    "KeyMutex",
    "KeySharedMutex",
    "key_mutex",
    "read_service_word",
    "redisson_keys",
    "redisson_names",
    "redisson_word",
    "service_word",
    "shared_times",
    "shared_word",
    "wake_of",
    "wake_word",
]

_MUTEX = "pawlock.primitives.mutex"
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
        after_ms: How long clients of pawlock may pass the name on before they leave it free for others; 0: for ever.
        for_ms: How long it is then left free; 0: never.
        wake: What a release that leaves it free sends to others: ``"-"`` nothing.
    """
    return f"{after_ms} {for_ms} {wake}"


def wake_word(wake: Wake | None) -> str:
    """The last part of ``shared``: what a release that leaves the name free sends to waiters of others."""
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


_SPRING_MS = 95
"""How long a key of Spring is left free: its spin lock polls every 100 ms, and hits nineteen windows of twenty. With
105 ms clients of pawlock had only seven tenths of the grants that they have without windows."""


def shared_times(key: Key, options: Terms) -> tuple[int, int]:
    """After how many milliseconds the name is left free for others, and for how long."""
    # A key that is published is one of Spring's.
    slow = options.given.yield_for is None and key.wake is not None and key.wake[0] == "publish"
    return options.given.yield_after_ms, _SPRING_MS if slow else options.given.yield_for_ms


def wake_of(key: Key, *, sharded: bool, unheard: bool) -> str:
    """The last part of ``shared`` for a key; see ``redisson_word`` for the two flags."""
    if key.wire == "plain":
        return wake_word(key.wake)
    return redisson_word(sharded=sharded, fenced=key.fence == "redisson", unheard=unheard)


def service_word(after_ms: int, for_ms: int, *, unheard: bool, text: str) -> str:
    """The argument ``shared`` as a client of the HTTP service sends it.

    What a release sends to others depends on the server, and the service must be able to check it: the client says
    which key it is, and the service writes the rest.

    Args:
        after_ms: As for ``shared_word``.
        for_ms: As for ``shared_word``.
        unheard: As for ``redisson_word``.
        text: The key as text, see ``core.protocol.key_text``.
    """
    return f"{after_ms} {for_ms} {unheard:d} {text}"


_SERVICE_WORD = re.compile(r"(\d{1,11}) (\d{1,5}) ([01]) (.{1,1000})", re.ASCII)


def read_service_word(word: str) -> tuple[int, int, bool, str] | None:
    """What ``service_word`` was made of; None if it made none such."""
    found = _SERVICE_WORD.fullmatch(word)
    return None if found is None else (int(found[1]), int(found[2]), found[3] == "1", found[4])


def redisson_names(key: str) -> tuple[str, str]:
    """What its scripts take before ``holds``: the queue of an RFairLock, and the counter of an RFencedLock."""
    # Redisson adds no braces to a name that has one.
    tagged = key if "{" in key else "{" + key + "}"
    return f"redisson_lock_queue:{tagged}", f"redisson_lock_token:{tagged}"


def redisson_keys(key: str) -> bytes:
    """The same as they are sent."""
    queue, counter = redisson_names(key)
    return pack_words(queue.encode(), counter.encode())


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


def key_mutex(kind: str, key: Key, owner: str | None, fence_ms: int, shared: str) -> KeyMutex:
    """The mutex of a key; with an owner, one that several processes hold together."""
    if owner is None:
        return KeyMutex(kind, key.name, key.key, fence_ms, wire=key.wire, shared=shared, source=key)
    return KeySharedMutex(kind, key.name, key.key, owner, fence_ms, wire=key.wire, shared=shared, source=key)
