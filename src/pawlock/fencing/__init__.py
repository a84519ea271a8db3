"""Guards that compare fences: for SQL, SQLAlchemy and Redis.

A lock cannot stop a holder that was paused and writes late; what it writes to can. Each guard here keeps the greatest
fence that it has seen beside the data and refuses a lower one with ``StaleFence``. The rule is claim, read, write:
``claim`` writes the fence before anything is read, so that no earlier holder can change what was read. Fence 0, that of
a degraded lease, is always refused. Only fences of an exclusive lock may be used so: those of a semaphore, or of
readers, do no more than order the grants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.fencing._fence import Fenced, fence_of
from pawlock.fencing.redis import AsyncRedisGuard, RedisGuard
from pawlock.fencing.sql import Cursor, Dialect, FencedTable, ParamStyle

if TYPE_CHECKING:
    from pawlock.fencing.orm import FencedMixin

__all__ = [
    "AsyncRedisGuard",
    "Cursor",
    "Dialect",
    "Fenced",
    "FencedMixin",
    "FencedTable",
    "ParamStyle",
    "RedisGuard",
    "fence_of",
]


def __getattr__(name: str) -> object:
    # SQLAlchemy is optional: only who asks for its mixin needs it.
    if name == "FencedMixin":
        from pawlock.fencing.orm import FencedMixin

        return FencedMixin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
