"""The mutex of a key that is shared with other programs. Nobody queues for it: who waits polls, as they do."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pawlock.core.protocol.names import helper_key
from pawlock.core.protocol.options import FENCE_MS
from pawlock.core.protocol.runtime import Call
from pawlock.core.protocol.scripts import Script, load, pack_words
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.replies import FORCE, LEAVE

if TYPE_CHECKING:
    from pawlock.core.protocol.key import Key

__all__ = ["KeyMutex"]

_LEAVE = load(__name__, "leave", read=LEAVE)
_FORCE = load(__name__, "force", read=FORCE)


@cache
def _of_redisson(script: Script) -> Script:
    """The same script for a holder that is stored as a hash."""
    package = __name__ if script in (_LEAVE, _FORCE) else "pawlock.primitives.mutex"
    return load(package, script.name, "redisson", read=script.read)


class KeyMutex(Mutex):
    """The calls of one key that is shared with other programs; otherwise as ``Mutex``.

    Args:
        kind: The factory method that made it.
        key: The key as the user gave it.
        fence_ms: How long its fence is kept after the last use.
        sharded: Whether the servers are a cluster, where Redisson publishes in another way.

    Attributes:
        source: The key as the user gave it, for who goes on with a lease elsewhere.
        hears: What wakes a waiter early: ``publish`` and a channel, ``push`` and a list; None: nothing does.
    """

    polls = True

    __slots__ = ("_redisson", "_tells", "hears", "listed_as", "renews_together", "source")

    def __init__(self, kind: str, key: Key, fence_ms: int = FENCE_MS, *, sharded: bool = False) -> None:
        super().__init__(kind, key.name, key.key, fence_ms)
        self.source: Key = key
        # In lists and records of waiters, so that nobody takes it for a name of the namespace.
        self.listed_as: str = f"{kind}={key.wire}"
        self._redisson: bool = key.wire == "redisson"
        # One script serves many names, each as a string.
        self.renews_together: bool = not self._redisson
        self.hears: tuple[str, str] | None = None
        self._tells: tuple[bytes, bytes] | None = None
        if self._redisson:
            # Redisson adds no braces to a name that has one.
            tagged = key.key if "{" in key.key else "{" + key.key + "}"
            channel, how = f"redisson_lock__channel:{tagged}", "spublish" if sharded else "publish"
            counter = (
                f"redisson_lock_token:{tagged}" if key.fence == "redisson" else helper_key(key.key, "fence")
            )
            self._more = pack_words(counter.encode())
            self._set_wake(how, channel, "0", f"redisson_lock_queue:{tagged}")
            self.hears = None if sharded else ("publish", channel)
        elif key.wake is not None:
            how, where, what = key.wake
            pushes = how == "push"
            self._set_wake(how, "" if pushes else where, str(what), where if pushes else key.key)
            self.hears = how, where

    def _set_wake(self, how: str, where: str, what: str, other: str) -> None:
        words = pack_words(how.encode(), where.encode(), what.encode())
        self._tells = pack_words(other.encode()), words

    def _of_wire(self, call: Call) -> Call:
        return Call(_of_redisson(call.script), call.body) if self._redisson else call

    def acquire(
        self,
        token: str,
        ttl_ms: int,
        ticket_ms: int,
        *,
        wait: bool,  # noqa: ARG002 - nobody queues
        block: int,
        channel: str,  # noqa: ARG002 - nor is anybody handed it
        max_waiters: int,
    ) -> Call:
        """Take the name if it is free."""
        return self._of_wire(
            super().acquire(
                token, ttl_ms, ticket_ms, wait=False, block=block, channel="", max_waiters=max_waiters
            )
        )

    def adopt(self, old: str, token: str, ttl_ms: int) -> Call:
        """Replace the token of a holder that gave its lease away."""
        return self._of_wire(super().adopt(old, token, ttl_ms))

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Call:
        """Raise the life of a holder."""
        return self._of_wire(super().renew(token, ttl_ms, ticket_ms, channel))

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Call:
        """Release or undo."""
        return self._telling(_LEAVE, super().leave(token, tomb_ms, close_ms), token.encode())

    def inspect(self, limit: int) -> Call:
        """Read the state of the name."""
        return self._of_wire(super().inspect(limit))

    def peek(self) -> Call:
        """Read who holds the name, secret and all."""
        return self._of_wire(super().peek())

    def force(self, value: bytes, tomb_ms: int) -> Call:
        """Take the name from ``value``, as ``peek`` read it."""
        return self._telling(_FORCE, super().force(value, tomb_ms), value)

    def _telling(self, script: Script, call: Call, token: bytes) -> Call:
        """What gives the name back, with what wakes waiters of the other library."""
        if self._tells is None:
            return call
        other, words = self._tells
        keys = self._keys + pack_words(self._dead + token)
        rest = call.body[len(keys) :].removeprefix(self._more)
        return self._of_wire(Call(script, b"".join((keys, other, self._more, words, rest))))
