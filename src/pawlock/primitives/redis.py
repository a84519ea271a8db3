"""The engine of Redis: which class makes the requests of which primitive on one server or one group of servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pawlock.core.runtime import Request
from pawlock.primitives.key import KeyMutex
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.namespace import NamespaceKeys
from pawlock.primitives.probe import keys_to_look_at, kind_of, probe, words_for

if TYPE_CHECKING:
    from pawlock.core.key import Key
    from pawlock.core.options import LockOptions
    from pawlock.core.outcomes import Outcome
    from pawlock.core.primitive import Primitive
    from pawlock.core.runtime import Call

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
