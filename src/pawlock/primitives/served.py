"""The engine of a client of the HTTP service: as on one server, but the service says what wakes other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.protocol.key_text import text_of
from pawlock.errors import NotSupported
from pawlock.primitives.redis import RedisEngine

if TYPE_CHECKING:
    from pawlock.core.protocol.engine import ServerEngine
    from pawlock.core.protocol.key import Key
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.terms import Terms

__all__ = ["SERVED", "ServedEngine"]


class ServedEngine(RedisEngine):
    """See ``ServerEngine``. What is sent through ``pawlock serve``."""

    __slots__ = ()

    def mutex_at(
        self,
        kind: str,
        key: Key,
        options: Terms,
        owner: str | None,
        *,
        sharded: bool,  # noqa: ARG002 - the service knows
    ) -> Primitive:
        """See ``ServerEngine``: a key that one of the constructors of ``pawlock.Key`` made."""
        from pawlock.primitives.key import key_mutex, service_word, shared_times

        text = text_of(key)
        if not text:
            raise NotSupported(
                f"{key.name!r} cannot be used through the HTTP service: its wake is not that of a library, or of a "
                "registry of Spring with a colon; connect to the Redis server itself"
            )
        unheard = options.given.yield_for is not None
        shared = service_word(*shared_times(key, options), unheard=unheard, text=text)
        return key_mutex(kind, key, owner, options.given.fence_ms, shared)


SERVED: ServerEngine = ServedEngine()
"""Behind ``pawlock serve``."""
