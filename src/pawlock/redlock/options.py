"""How several independent masters are treated: the options of Redlock."""

from __future__ import annotations

from dataclasses import dataclass

from pawlock.core.options import FENCE_MS, MAX_TTL, check_flag, seconds
from pawlock.errors import ConfigurationError

__all__ = ["RedlockOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedlockOptions:
    """How a client treats its independent masters. Durations in seconds.

    Attributes:
        node_timeout: How long one node may take to answer before its vote counts as missing; None: four times what the
            slowest of a majority takes for a round trip, from 0.05 to 2 seconds.
        drift_factor: The part of the ttl by which clocks may differ in rate while it lasts.
        drift_floor: What is taken off every validity besides.
        max_ttl: The longest ttl of any client of these nodes: a node that restarted is not asked for that long.
        fresh: True to count nodes that are younger than ``max_ttl`` when the client first sees them.
    """

    node_timeout: float | None = None
    drift_factor: float = 0.01
    drift_floor: float = 0.002
    max_ttl: float = 60.0
    fresh: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.node_timeout is not None:
            put(self, "node_timeout", _within(self.node_timeout, "node_timeout", 0.001, 60.0))
        put(self, "drift_factor", _within(self.drift_factor, "drift_factor", 0.0, 0.5))
        put(self, "drift_floor", _within(self.drift_floor, "drift_floor", 0.0, 60.0))
        put(self, "max_ttl", _within(self.max_ttl, "max_ttl", 0.05, MAX_TTL))
        check_flag(self.fresh, "fresh")

    def drift(self, ttl: float) -> float:
        """Seconds to take off a life of ``ttl`` seconds."""
        return ttl * self.drift_factor + self.drift_floor

    def valid_until(self, sent_at: float, left_ms: int, asked_ms: int) -> float:
        """The end of validity of a grant, on the clock of ``sent_at``; see ``pawlock.core.records``."""
        ttl = min(left_ms, asked_ms) / 1000.0
        return sent_at + ttl - (ttl * self.drift_factor + self.drift_floor)

    def check_ttl(self, ttl: float) -> None:
        """Refuse leases that a node which restarted may have forgotten when it is asked again.

        Args:
            ttl: Their ttl in seconds.

        Raises:
            ConfigurationError: It is above ``max_ttl``.
        """
        if ttl > self.max_ttl:
            raise ConfigurationError(
                f"ttl is {ttl:g} s, above max_ttl {self.max_ttl:g} s: a node gets no vote for max_ttl after a restart, "
                "so max_ttl must be the longest TTL of all clients of these nodes"
            )

    def check_fence_ttl(self, fence_ttl: float) -> None:
        """Refuse fences that are forgotten sooner than a node that restarted is asked again.

        Raises:
            ConfigurationError: It is below ``max_ttl``; where that is more than an hour, below an hour.
        """
        least = min(self.max_ttl, FENCE_MS / 1000)
        if fence_ttl < least:
            raise ConfigurationError(
                f"fence_ttl must be at least {least:g} s (max_ttl) on independent masters, got {fence_ttl:g}: "
                "their clocks differ, so fencing tokens depend on what a majority remembers"
            )


def _within(value: object, what: str, least: float, most: float) -> float:
    number = seconds(value, what)
    if not least <= number <= most:
        raise ConfigurationError(f"{what} must be {least:g} to {most:g}, got {number:g}")
    return number
