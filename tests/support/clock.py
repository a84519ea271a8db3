"""The clock by which leases count: it goes on while the machine is suspended."""

from __future__ import annotations

import time

__all__ = ["now"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds, as ``lease.valid_until`` has them."""
    return time.clock_gettime(_CLOCK)
