"""The engine of a client of the HTTP service: as on one server, but the service says what wakes other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pawlock.errors import NotSupported
from pawlock.primitives.redis import RedisEngine

if TYPE_CHECKING:
    from pawlock.core.protocol.engine import ServerEngine
    from pawlock.core.protocol.key import Key
    from pawlock.core.protocol.terms import Terms

__all__ = ["SERVED", "ServedEngine"]


class ServedEngine(RedisEngine):
    """See ``ServerEngine``. What is sent through ``pawlock serve``."""

    __slots__ = ()

    def mutex_at(self, kind: str, key: Key, options: Terms, *, sharded: bool) -> NoReturn:
        """See ``ServerEngine``."""
        del kind, options, sharded
        raise NotSupported(
            f"{key.name!r} cannot be used through the HTTP service: connect to the Redis server"
        )


SERVED: ServerEngine = ServedEngine()
"""Behind ``pawlock serve``."""
