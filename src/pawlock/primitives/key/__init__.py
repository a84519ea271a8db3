"""The mutex of a key that is shared with other programs. Nobody queues for it: who waits polls, as they do."""

# ruff: noqa: ARG002 - nobody queues for it, nor is anybody handed it

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pawlock.core.names import helper_key
from pawlock.core.options import FENCE_MS
from pawlock.core.runtime import Call
from pawlock.core.scripts import Script, load
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.packing import pack
from pawlock.primitives.replies import FORCE, LEAVE

if TYPE_CHECKING:
    from pawlock.core.key import Key

__all__ = ["KeyMutex"]

_TELLING = {"_LEAVE": load(__name__, "leave", read=LEAVE), "_FORCE": load(__name__, "force", read=FORCE)}
"""What wakes waiters of another library, too."""


@cache
def _of_redisson() -> dict[str, Script]:
    """The scripts for a holder that is stored as a hash."""
    mutex: dict[str, Script] = {
        name: getattr(Mutex, name) for name in ("_ACQUIRE", "_RENEW", "_ADOPT", "_INSPECT", "_PEEK")
    }
    return {
        name: load(package, script.name, "redisson", read=script.read)
        for package, scripts in (("pawlock.primitives.mutex", mutex), (__name__, _TELLING))
        for name, script in scripts.items()
    }


class KeyMutex(Mutex):
    """The requests of one key that is shared with other programs; otherwise as ``Mutex``.

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

    def __init__(self, kind: str, key: Key, fence_ms: int = FENCE_MS, *, sharded: bool = False) -> None:
        redisson = key.wire == "redisson"
        # Redisson adds no braces to a name that has one.
        tagged = key.key if "{" in key.key else "{" + key.key + "}"
        counter = f"redisson_lock_token:{tagged}" if key.fence == "redisson" else helper_key(key.key, "fence")
        super().__init__(kind, key.name, key.key, fence_ms, pack(counter) if redisson else b"")
        self.source: Key = key
        # In lists and records of waiters, so that nobody takes it for a name of the namespace.
        self.listed_as: str = f"{kind}={key.wire}"
        # One script serves many names, each as a string.
        self.renews_together: bool = not redisson
        self.hears: tuple[str, str] | None = None
        self._seen = self._more
        if redisson:
            channel, how = f"redisson_lock__channel:{tagged}", "spublish" if sharded else "publish"
            self._tell(_of_redisson(), f"redisson_lock_queue:{tagged}", how, channel, "0")
            self.hears = None if sharded else ("publish", channel)
        elif key.wake is not None:
            how, where, what = key.wake
            self._tell(
                _TELLING, where if how == "push" else key.key, how, "" if how == "push" else where, what
            )
            self.hears = how, where

    def _tell(self, scripts: dict[str, Script], other: str, *words: str | int) -> None:
        """Run other scripts: who gives the name back wakes waiters of the other library."""
        for name, script in scripts.items():
            setattr(self, name, script)
        self._parting = b"\r\n" + pack(other) + self._more + pack(*words)

    def acquire(
        self, token: str, ttl_ms: int, ticket_ms: int, *, wait: bool, block: int, channel: str, max_queue: int
    ) -> Call:
        """Take the name if it is free."""
        return super().acquire(
            token, ttl_ms, ticket_ms, wait=False, block=block, channel="", max_queue=max_queue
        )
