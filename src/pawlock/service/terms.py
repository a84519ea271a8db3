"""The options with which the service acquires a lease, and how long a request keeps retrying."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pawlock.core.options import LockOptions

if TYPE_CHECKING:
    from pawlock.core.engine import Engine

__all__ = ["RETRY_FOR", "RETRY_WAITING_FOR", "options_for", "options_of_question"]

RETRY_FOR = 1.5
"""Seconds that a request keeps retrying an unreachable server, before its client is asked to retry."""
RETRY_WAITING_FOR = 10.0
"""The same for a request that waits in a queue: long enough for a failover, and it keeps its place."""


@lru_cache(maxsize=1024)
def options_for(ttl_ms: int, *, waits: bool = False, answers: float | None = None) -> LockOptions:
    """How a lease of this ttl is taken. The service renews nothing by itself: that is its client's sign of life.

    Args:
        ttl_ms: The ttl in milliseconds.
        waits: Whether the request may wait for it.
        answers: The service's ``request_timeout``; of a shorter lease it is a third of its ttl.
    """
    unavailable_after = RETRY_WAITING_FOR if waits else RETRY_FOR
    return LockOptions(
        ttl=ttl_ms / 1000,
        renew=False,
        handover=0,
        unavailable_after=unavailable_after,
        request_timeout=answers and min(answers, ttl_ms / 3000),
    )


def options_of_question(engine: Engine) -> LockOptions:
    """How something is asked for which no lease is taken."""
    answers = engine.request_timeout
    return options_for(max(1000, int((answers or 0.0) * 3000) + 1), answers=answers)
