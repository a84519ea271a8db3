"""The engine of several independent masters (Redlock): which class makes the requests of which primitive.

A module of its own, so that a client of one server loads nothing of Redlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.primitives.redis import RedisEngine
from pawlock.primitives.redlock import QuorumMutex

if TYPE_CHECKING:
    from pawlock.core.protocol.engine import ServerEngine
    from pawlock.core.protocol.key import Key
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.terms import Terms

__all__ = ["MASTERS", "MastersEngine"]


class MastersEngine(RedisEngine):
    """Several independent masters, of which a majority grants; what they cannot keep is refused before."""

    __slots__ = ()

    def mutex(self, kind: str, name: str, key: str, options: Terms) -> Primitive:
        """See ``ServerEngine``."""
        return QuorumMutex(kind, name, key, options.fence_ms)

    def mutex_at(
        self,
        kind: str,
        key: Key,
        options: Terms,
        *,
        sharded: bool,  # noqa: ARG002 - it is not
    ) -> Primitive:
        """See ``ServerEngine``: only plain keys have a form in common with others there."""
        return QuorumMutex(kind, key.name, key.key, options.fence_ms)

    def names(self, namespace: str) -> None:  # noqa: ARG002
        """See ``ServerEngine``: no two clients would read the same record."""
        return


MASTERS: ServerEngine = MastersEngine()
"""Several independent masters."""
