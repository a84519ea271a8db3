"""The options of a lock: validated once, at construction, in seconds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal

from pawlock.errors import ConfigurationError

__all__ = [
    "FENCE_MS",
    "MAX_TTL",
    "MIN_TTL",
    "LockOptions",
    "OnExit",
    "OnUnavailable",
    "Renew",
    "Seconds",
    "check_callback",
    "check_choice",
    "check_count",
    "check_deadlock_after",
    "check_fence_ttl",
    "check_flag",
    "check_timeout",
    "check_ttl",
    "seconds",
]

Seconds = float | int | timedelta
"""A duration: seconds, or a ``timedelta``."""

Renew = bool | Seconds
"""Whether a lease is renewed, or how often: True (every third of its ttl), seconds or a ``timedelta``, or False."""

OnExit = Literal["raise", "warn"]
"""What a block does at its end when its lease was lost."""

OnUnavailable = Literal["raise", "local", "open"]
"""What acquire does once the server could not be reached for long enough."""

MIN_TTL = 0.05
MAX_TTL = 366 * 86400.0
FENCE_MS = 3_600_000
_LEAST_DEADLOCK_AFTER = 0.02
_MOST_LOCAL_GRANTS = 64
_MOST_REPLICAS = 100


def seconds(value: object, what: str) -> float:
    """A duration as float seconds.

    Args:
        value: A number or a ``timedelta``; never a bool or text.
        what: The option's name, for the error.

    Raises:
        ConfigurationError: It is not a duration, or NaN.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError(
            f"{what} must be a number of seconds or a timedelta, got {type(value).__name__} {value!r:.40}",
        )
    try:
        number = float(value)
    except OverflowError:
        raise ConfigurationError(f"{what} is too large") from None
    if math.isnan(number):
        raise ConfigurationError(f"{what} must be a number of seconds, got NaN")
    return number


def check_ttl(value: object, what: str = "ttl") -> float:
    """A ttl in seconds, from 50 ms to 366 days.

    Raises:
        ConfigurationError: It is outside; a lock without an end is never given.
    """
    ttl = seconds(value, what)
    if ttl < MIN_TTL:
        raise ConfigurationError(f"{what} must be at least {MIN_TTL} s, got {ttl:g}")
    if ttl > MAX_TTL:
        raise ConfigurationError(f"{what} must be at most 366 days, got {ttl:g} s")
    return ttl


def check_timeout(value: object, what: str = "timeout") -> float | None:
    """A time to wait in seconds; None or infinity waits indefinitely, 0 tries once.

    Raises:
        ConfigurationError: It is negative, NaN or not a duration.
    """
    if value is None:
        return None
    timeout = seconds(value, what)
    if timeout < 0:
        raise ConfigurationError(f"{what} must be >= 0, or None to wait indefinitely, got {timeout:g}")
    return None if math.isinf(timeout) else timeout


def check_deadlock_after(value: object) -> float:
    """After how many seconds a waiter looks for a cycle; None, as 0.0, for never.

    Raises:
        ConfigurationError: It is no duration, or below 20 ms.
    """
    if value is None:
        return 0.0
    after = _positive(value, "deadlock_after", zero=False)
    if after < _LEAST_DEADLOCK_AFTER:
        raise ConfigurationError(
            f"deadlock_after must be at least {_LEAST_DEADLOCK_AFTER} s, or None for never, got {after:g}"
        )
    return after


def check_fence_ttl(value: object) -> float:
    """How many seconds a name's fence is kept after its last use; 0 no longer than its lease.

    Raises:
        ConfigurationError: It is no duration, negative, above 0 and below 50 ms, or more than 366 days.
    """
    kept = _positive(value, "fence_ttl")
    if 0 < kept < MIN_TTL or kept > MAX_TTL:
        raise ConfigurationError(f"fence_ttl must be 0, or {MIN_TTL} s to 366 days, got {kept:g} s")
    return kept


def check_callback(
    value: object, *, may_be_async: bool, what: str = "on_lost"
) -> Callable[[Any], object] | None:
    """A callback that takes the lease, or None.

    Args:
        value: What the user gave.
        may_be_async: True in an asyncio client, where a coroutine function may be given too.
        what: The option's name, for the error.

    Raises:
        ConfigurationError: It is not callable, or a coroutine function in a client of threads.
    """
    if value is None:
        return None
    if not callable(value):
        raise ConfigurationError(f"{what} must be callable with the lease, got {type(value).__name__}")
    if not may_be_async and (
        inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None))  # noqa: B004
    ):
        raise ConfigurationError(
            f"{what} is a coroutine function, and this client is sync: pass a plain function"
        )
    return value


def check_choice(value: object, what: str, *choices: str) -> None:
    """One of several words.

    Raises:
        ConfigurationError: It is none of them.
    """
    if value not in choices:
        *most, last = map(repr, choices)
        raise ConfigurationError(f"{what} must be {', '.join(most)} or {last}, got {value!r:.40}")


def check_flag(value: object, what: str) -> bool:
    """True or False.

    Raises:
        ConfigurationError: It is neither.
    """
    if value is not True and value is not False:
        raise ConfigurationError(f"{what} must be True or False, got {value!r:.40}")
    return value


def _positive(value: object, what: str, *, zero: bool = True, most: float = math.inf) -> float:
    number = seconds(value, what)
    if number < 0 or math.isinf(number) or (number == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise ConfigurationError(f"{what} must be a finite number of seconds, {least}, got {number:g}")
    if number > most:
        raise ConfigurationError(f"{what} must be at most 366 days, got {number:g} s")
    return number


def check_count(value: object, what: str, least: int, most: int) -> int:
    """A whole number within bounds.

    Raises:
        ConfigurationError: It is no int, or outside.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{what} must be an int, got {type(value).__name__} {value!r:.40}")
    if not least <= value <= most:
        raise ConfigurationError(f"{what} must be {least} to {most}, got {value}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOptions:
    """How a lock behaves. Each value is checked when the object is made.

    Durations are seconds, or a ``timedelta``. Negative values, NaN and, but for ``timeout``, infinity are refused; so are
    0 and None where they are not named.

    Args:
        ttl: TTL of a lease on the server without renewal; 0.05 to 366 days, default 30 (it survives a GC pause or a
            failover, and a crashed holder blocks the lock for no longer). A lease is renewed every third of it.
        renew: Whether the lease is renewed while it is held, in asyncio also while the event loop is blocked. True
            (default): every ttl/3, which leaves two retries before the lease expires. A duration: that often; it must be
            more than 0 and below ttl/2. False: never.
        timeout: How long acquire waits; None (default) or infinity waits indefinitely, 0 tries once.
        unavailable_after: How long to keep retrying an unreachable server; default 10, long enough for a failover;
            0 gives up with the first failure.
        max_hold: The lease is lost this long after the grant (or after the last ``beat()``); None (default) never.
            Needs renewal.
        min_hold: The lock stays held at least this long after the grant, even when released sooner; default 0. It
            keeps a job that is shorter than the skew of its schedulers from running twice.
        handover: How many consecutive grants, within 20 ms, may go to waiters of the same client without the server;
            default 64, which is the most: each grant reserves that many fencing tokens, which must not overtake the
            server's clock. 0 keeps strict FIFO order among all clients.
        ticket_ttl: TTL of a waiter's ticket on the server; None (default): min(3, ttl), which survives a brief pause.
            At least 0.05, at most ttl. Dead waiters delay the others by at most this, in all.
        max_waiters: ``QueueFull`` beyond this many waiters on the server; default 10,000, at least 1: a bound for its memory.
        replicas: How many replicas must have a grant, and each renewal, before it counts; default 0. With fewer,
            acquire releases the grant and raises ``NotReplicated``.
        on_lost: Called with the lease once it is lost.
        on_exit: What a ``with`` block does at its end when the lease was lost: ``"raise"`` (default) or ``"warn"``.
        on_unavailable: What acquire does once the server could not be reached for ``unavailable_after`` (or until the
            end of ``timeout``): ``"raise"`` (default) ``BackendUnavailable``; ``"local"`` locks among the threads and
            tasks of this process only; ``"open"`` continues without any lock. Both return a lease with ``degraded`` set
            and fence 0.

    Raises:
        ConfigurationError: A value that can never work.
    """

    ttl: float = 30.0
    renew: Renew = True
    timeout: float | None = None
    unavailable_after: float = 10.0
    max_hold: float | None = None
    min_hold: float = 0.0
    handover: int = 64
    ticket_ttl: float | None = None
    max_waiters: int = 10_000
    replicas: int = 0
    on_lost: Callable[[Any], object] | None = None
    on_exit: OnExit = "raise"
    on_unavailable: OnUnavailable = "raise"

    def __post_init__(self) -> None:
        put = object.__setattr__
        ttl = check_ttl(self.ttl)
        put(self, "ttl", ttl)
        put(self, "timeout", check_timeout(self.timeout))
        put(self, "unavailable_after", _positive(self.unavailable_after, "unavailable_after"))
        put(self, "min_hold", _positive(self.min_hold, "min_hold", most=MAX_TTL))
        put(self, "handover", check_count(self.handover, "handover", 0, _MOST_LOCAL_GRANTS))
        put(self, "max_waiters", check_count(self.max_waiters, "max_waiters", 1, 10_000_000))
        ticket_ttl = min(3.0, ttl) if self.ticket_ttl is None else check_ttl(self.ticket_ttl, "ticket_ttl")
        if ticket_ttl > ttl:
            raise ConfigurationError(f"ticket_ttl must be at most ttl ({ttl:g} s), got {ticket_ttl:g}")
        put(self, "ticket_ttl", ticket_ttl)
        self._check_renewal(ttl)
        check_callback(self.on_lost, may_be_async=True)
        put(self, "replicas", check_count(self.replicas, "replicas", 0, _MOST_REPLICAS))
        check_choice(self.on_exit, "on_exit", "raise", "warn")
        check_choice(self.on_unavailable, "on_unavailable", "raise", "local", "open")

    def _check_renewal(self, ttl: float) -> None:
        put = object.__setattr__
        if not isinstance(self.renew, bool):
            every = _positive(self.renew, "renew", zero=False)
            if every >= ttl / 2:
                raise ConfigurationError(f"renew must be below half the TTL ({ttl / 2:g} s), got {every:g}")
            put(self, "renew", every)
        if self.max_hold is not None:
            put(self, "max_hold", _positive(self.max_hold, "max_hold", zero=False))
            if not self.renew:
                raise ConfigurationError("max_hold has no effect with renew=False: set ttl instead")

    @property
    def interval(self) -> float:
        """Seconds between two renewals; without renewal, what they would be."""
        return self.ttl / 3 if isinstance(self.renew, bool) else seconds(self.renew, "renew")

    def but(self, **changes: Any) -> LockOptions:
        """These options with some changed, checked again; a changed ttl brings its own renewal and ticket defaults."""
        if not changes:
            return self
        if "ttl" in changes:
            # How often it is renewed belongs to the ttl; whether it is renewed does not.
            renew = self.renew if isinstance(self.renew, bool) else True
            changes = {"renew": renew, "ticket_ttl": None} | changes
        return replace(self, **changes)

    @classmethod
    def known(cls) -> frozenset[str]:
        """The names of all options."""
        return frozenset(f.name for f in fields(cls) if f.init)
