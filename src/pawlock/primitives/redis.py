"""The engine of Redis: which class makes the requests of which primitive on one server or one group of servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pawlock.core.protocol.carrier import Request
from pawlock.primitives.barrier import Barrier
from pawlock.primitives.election import Ballot, ballot_key
from pawlock.primitives.key import KeyMutex
from pawlock.primitives.latch import Latch
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.namespace import NamespaceKeys
from pawlock.primitives.once import OnceMutex, once_key
from pawlock.primitives.permits import EXCLUSIVE, SHARED, Permits
from pawlock.primitives.probe import keys_to_look_at, kind_of, probe, words_for

if TYPE_CHECKING:
    from pawlock.core.protocol.key import Key
    from pawlock.core.protocol.options import LockOptions
    from pawlock.core.protocol.outcomes import Outcome
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.runtime import Call

__all__ = ["REDIS", "RedisEngine"]


class RedisEngine:
    """What is sent to one server, a group behind Sentinels, a cluster: a primitive for each name that a client asks for.

    A kind that is not to be had (``RedlockEngine``) is refused with ``NotSupported``, before anything is sent.
    """

    __slots__ = ()

    def mutex(self, kind: str, name: str, key: str, options: LockOptions) -> Primitive:
        """A ``lock``, ``rlock`` or ``fair_lock``: one holder at a time, and a queue."""
        return Mutex(kind, name, key, options.fence_ms)

    def mutex_at(self, kind: str, key: Key, options: LockOptions, *, sharded: bool) -> Primitive:
        """The same for a key that programs of other libraries lock too."""
        return KeyMutex(kind, key, options.fence_ms, sharded=sharded)

    def semaphore(self, name: str, key: str, permits: int, options: LockOptions) -> Permits:
        """A number of permits, of which each acquisition takes one; ``ANY_LIMIT``: as many as the server knows of."""
        return Permits("semaphore", name, key, "permits", SHARED, permits, fence_ms=options.fence_ms)

    def rwlock(self, name: str, key: str, options: LockOptions) -> tuple[Permits, Permits]:
        """The two sides of a read-write lock: to read and to write."""
        reader = Permits("rwlock.read", name, key, "rwlock", SHARED, fence_ms=options.fence_ms)
        return reader, reader.of("rwlock.write", EXCLUSIVE)

    def election(self, name: str, namespace: str, options: LockOptions) -> Ballot:
        """An election, which has nothing in common with a lock of that name."""
        return Ballot(name, ballot_key(namespace, name), options.max_waiters, options.fence_ms)

    def once(self, name: str, namespace: str, options: LockOptions) -> OnceMutex:
        """What is done once, which has nothing in common with a lock of that name."""
        return OnceMutex(name, once_key(namespace, name), options.fence_ms)

    def latch(self, name: str, key: str, count: int, options: LockOptions, remember_ms: int) -> Latch:
        """A latch; requests that were seen are remembered for so long."""
        return Latch(name, key, count, options.ttl_ms, options.ticket_ms, remember_ms, options.max_waiters)

    def barrier(self, name: str, key: str, parties: int, options: LockOptions) -> Barrier:
        """A barrier."""
        return Barrier(name, key, parties, options.ticket_ms)

    def names(self, namespace: str) -> NamespaceKeys | None:
        """The calls about a namespace as a whole; None: there is no server that has all of it."""
        return NamespaceKeys(namespace)

    def probe(self, namespace: str, key: str = "") -> Request | None:
        """What asks a server, of a cluster that of the key, about itself: ``ServerFacts``; None: nothing to ask."""
        return probe(namespace, key)

    def explain_keys(self, refused: Call) -> Sequence[tuple[Request, Callable[[Outcome], str]]]:
        """What to ask to explain why the server refused a request for what its keys hold.

        Each with a function that puts its answer into words; ``""``: there is nothing to explain.
        """
        return [
            (kind_of(key), partial(words_for, key, redisson)) for key, redisson in keys_to_look_at(refused)
        ]


REDIS = RedisEngine()
"""One server, a group behind Sentinels, a cluster."""
