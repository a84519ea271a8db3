"""How long to pause before the next try: exponential, capped, with full jitter."""

from __future__ import annotations

__all__ = ["full_jitter"]


def full_jitter(attempt: int, random: float, *, base: float = 0.02, cap: float = 1.0) -> float:
    """The pause before try number ``attempt`` + 1, in seconds.

    Full jitter (a uniform draw below the exponential bound) spreads clients best after a common failure; see
    "Exponential Backoff And Jitter" in the AWS Architecture Blog.

    Args:
        attempt: How many tries failed so far, from 0.
        random: A number in [0, 1).
        base: The bound of the first pause, in seconds.
        cap: The largest bound, in seconds: a server that is back is noticed within this time.
    """
    bound = min(cap, base * (1 << min(attempt, 16)))
    return bound * random
