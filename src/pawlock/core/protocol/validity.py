"""When a lease may be relied on: pure arithmetic, in one place.

The formula is that of the Redis documentation on distributed locks: validity = ttl - elapsed - drift, with the time
taken before the request is sent. Drift is 1 % of the ttl for clock rates that differ, and 2 ms for the granularity
of Redis' expiry.
"""

from __future__ import annotations

import math

__all__ = ["DRIFT_FACTOR", "DRIFT_FLOOR", "drift", "to_ms", "valid_until"]

DRIFT_FACTOR = 0.01
DRIFT_FLOOR = 0.002


def drift(ttl: float) -> float:
    """Seconds to take off a life of ``ttl`` seconds."""
    return ttl * DRIFT_FACTOR + DRIFT_FLOOR


def valid_until(sent_at: float, left_ms: int, asked_ms: int) -> float:
    """The end of validity of a lease, on the clock of ``sent_at``.

    Args:
        sent_at: When the very request was sent that was answered, in seconds.
        left_ms: What the server said is left, in ms.
        asked_ms: What was asked for, in ms: a key of longer life (another request raised it) gives no more than that.
    """
    ttl = (left_ms if left_ms < asked_ms else asked_ms) / 1000.0  # noqa: FURB136 - min() is a call
    return sent_at + ttl - (ttl * DRIFT_FACTOR + DRIFT_FLOOR)


def to_ms(seconds: float) -> int:
    """Seconds as whole milliseconds, rounded up: the server may keep a lease longer, never shorter."""
    return math.ceil(seconds * 1000.0 - 1e-6)
