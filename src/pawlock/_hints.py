"""Hints for callers that use the names of another lock library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

__all__ = ["Hinting", "refuse_words", "words_for"]

_ON_THE_LEASE = frozenset({
    "beat", "check", "count", "detach", "extend", "fence", "fences", "lost", "release", "remaining", "state", "token",
    "ttl", "valid_until",
})  # fmt: skip
"""What a lease has, and a lock has not: the lock is a description, and holds nothing."""

_ELSEWHERE = {
    "do_release": "release the lease that acquire() returned",
    "is_locked": "use locked()",
    "owned": "use the truth value of the lease that acquire() returned: bool(lease)",
    "reacquire": "call extend(lease.ttl) of the lease that acquire() returned",
    "refresh": "call extend(ttl) of the lease that acquire() returned",
    "renew": "a lease is renewed automatically; extend(ttl) of the lease that acquire() returned sets its TTL",
    "unlock": "release the lease that acquire() returned",
}

_WORDS = {
    "blocking_timeout": "redis-py's blocking_timeout is timeout",
    "blocking": "redis-py's blocking=False is try_acquire()",
    "lock_timeout": "redis-py's timeout, the TTL of the lock, is ttl",
    "expire": "the TTL of a lock is ttl",
    "lease_time": "Redisson's leaseTime is ttl, with renew=False",
    "wait_time": "Redisson's waitTime is timeout",
    "auto_renewal": "python-redis-lock's auto_renewal is renew, and on by default",
    "on_contended": "it belongs to the decorator: @client.lock(name)(on_contended=…)",
    "sleep": "pawlock does not poll: remove it",
    "thread_local": "a lease can be passed from thread to thread: remove it",
    "retry_count": "pawlock waits in a queue: pass timeout",
    "retry_delay": "pawlock waits in a queue: pass timeout",
}


def words_for(unknown: Iterable[str]) -> list[str]:
    """Pawlock's words for arguments of other libraries; nothing for one that is not known."""
    return [_WORDS[name] for name in unknown if name in _WORDS]


def refuse_words(method: str, unknown: Iterable[str]) -> NoReturn:
    """Refuse keyword arguments that a method does not have, as Python does, and give pawlock's words for them.

    Raises:
        TypeError: Always.
    """
    first = min(unknown)
    text = f"{method}() got an unexpected keyword argument {first!r}"
    raise TypeError("; ".join([text, *words_for([first])]))


def _where(kind: str, name: str) -> str:
    said = f"{kind!r} object has no attribute {name!r}"
    if name in _ON_THE_LEASE:
        doing = (
            f"{name} the lease" if name in ("release", "extend", "detach") else f"call {name} of the lease"
        )
        return f"{said}: {doing} that acquire() returned"
    return f"{said}: {_ELSEWHERE[name]}" if name in _ELSEWHERE else said


class Hinting:
    """A lock that says where to find what other libraries, and leases, have."""

    __slots__ = ()

    # Type checkers are not to believe that it has every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say where it is.

            Raises:
                AttributeError: Always.
            """
            raise AttributeError(_where(type(self).__name__, name), name=name, obj=self)
