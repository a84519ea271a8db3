"""The options with which the service acquires a lease, and how long a request keeps retrying."""

from __future__ import annotations

from functools import lru_cache

from pawlock.core.options import LockOptions

__all__ = ["RETRY_FOR", "RETRY_WAITING_FOR", "options_for"]

RETRY_FOR = 1.5
"""Seconds that a request keeps retrying an unreachable server, before its client is asked to retry."""
RETRY_WAITING_FOR = 10.0
"""The same for a request that waits in a queue: long enough for a failover, and it keeps its place."""


@lru_cache(maxsize=1024)
def options_for(ttl_ms: int, *, waits: bool = False) -> LockOptions:
    """How a lease of this ttl is taken. The service renews nothing by itself: that is its client's sign of life."""
    unavailable_after = RETRY_WAITING_FOR if waits else RETRY_FOR
    return LockOptions(ttl=ttl_ms / 1000, renew=False, handover=0, unavailable_after=unavailable_after)
