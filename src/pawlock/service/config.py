"""The configuration of the service: checked once, before it listens."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from pawlock.core.protocol.options import check_count, seconds
from pawlock.errors import ConfigurationError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client, that is one bearer token, may use up.

    Args:
        locks: Leases at once in one namespace, over all instances; default 1,000.
        sessions: Sessions at once in one namespace, over all instances; default 100.
        waiters: Requests that wait at once, on one instance; default 5,000.
        streams: Streams of events at once, on one instance; default 20.
        namespaces: Namespaces that this client was the first to use, at once, on one instance; default 64.
        rate: Requests a second on one instance, with bursts of twice as many; default 20,000. 0: no limit.
        max_ttl: The longest ttl of a lease or session in seconds; default 3600.
        max_wait: The longest wait of one request in seconds; default 60, after which proxies cut connections.
        body: The longest body of a request in bytes; default 16384.

    Raises:
        ConfigurationError: A value that can never work.
    """

    locks: int = 1000
    sessions: int = 100
    waiters: int = 5000
    streams: int = 20
    namespaces: int = 64
    rate: float = 20000.0
    max_ttl: float = 3600.0
    max_wait: float = 60.0
    body: int = 16384

    def __post_init__(self) -> None:
        """Check each of them."""
        for name in ("locks", "sessions", "waiters", "streams", "namespaces", "body"):
            least = 256 if name == "body" else 1
            check_count(getattr(self, name), f"limits.{name}", least, 10_000_000)
        for name, least_seconds in (("max_ttl", 1.0), ("max_wait", 0.0), ("rate", 0.0)):
            number = seconds(getattr(self, name), f"limits.{name}")
            if not least_seconds <= number <= 366 * 86400 or math.isinf(number):
                raise ConfigurationError(
                    f"limits.{name} must be {least_seconds:g} to {366 * 86400}, got {number:g}"
                )

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """The names of all limits."""
        return tuple(f.name for f in fields(cls))
