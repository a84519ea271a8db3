"""The options of a lock: each stated once, checked when it is given, in seconds.

A new option is a field of ``LockOptions``, with its text, and a key of the narrowest ``…Kwargs`` that may have it. What the
environment, the command, the table of the documentation and the local queue make of it follows from its metadata:

* ``check``: what a value must be; given the value and the option's name. None is let through where it is the default.
* ``caller``: it is its caller's own, so waiters that differ in it may go on for each other; else they may not.
* ``environment``: it has a variable, ``PAWLOCK_`` and its name.
* ``flag``: it is a flag of the command, in seconds, with this help.
* ``client``: only a client has it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, NamedTuple, TypedDict, get_args

from pawlock.errors import ConfigurationError

__all__ = [
    "DRIFT_FACTOR",
    "DRIFT_FLOOR",
    "FENCE_MS",
    "MAX_TTL",
    "BarrierKwargs",
    "LatchKwargs",
    "LockKwargs",
    "LockOptions",
    "OnExit",
    "OnUnavailable",
    "OnceKwargs",
    "PermitKwargs",
    "Renew",
    "Rhythm",
    "Seconds",
    "check_callback",
    "check_choice",
    "check_count",
    "check_deadlock_after",
    "check_flag",
    "check_timeout",
    "check_ttl",
    "drift",
    "seconds",
    "to_ms",
]


DRIFT_FACTOR = 0.01
DRIFT_FLOOR = 0.002
"""Of each life, 1 % is taken off for clock rates that differ, and 2 ms for the granularity of Redis' expiry."""


def drift(ttl: float) -> float:
    """Seconds to take off a life of ``ttl`` seconds."""
    return ttl * DRIFT_FACTOR + DRIFT_FLOOR


def to_ms(seconds: float) -> int:
    """Seconds as whole milliseconds, rounded up: the server may keep a lease longer, never shorter."""
    return math.ceil(seconds * 1000.0 - 1e-6)


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
            f"{what} must be a number of seconds or a timedelta, got {type(value).__name__} {value!r:.40}"
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
    if after < 0.02:
        raise ConfigurationError(f"deadlock_after must be at least 0.02 s, or None for never, got {after:g}")
    return after


def _check_fence_ttl(value: object, what: str) -> float:
    kept = _positive(value, what)
    if 0 < kept < MIN_TTL or kept > MAX_TTL:
        raise ConfigurationError(f"{what} must be 0, or {MIN_TTL} s to 366 days, got {kept:g} s")
    return kept


def _check_renew(value: object, what: str) -> Renew:
    return value if isinstance(value, bool) else _positive(value, what, zero=False)


def check_callback(
    value: object, what: str = "on_lost", *, may_be_async: bool = True
) -> Callable[[Any], object] | None:
    """A callback that takes the lease, or None.

    Args:
        value: What the user gave.
        what: The option's name, for the error.
        may_be_async: True in an asyncio client, where a coroutine function may be given too.

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
        text = "is a coroutine function, and this client is sync: pass a plain function"
        raise ConfigurationError(f"{what} {text}")
    return value


def check_choice(value: object, what: str, choices: Sequence[str]) -> object:
    """One of several words.

    Raises:
        ConfigurationError: It is none of them.
    """
    if value not in choices:
        *most, last = map(repr, choices)
        raise ConfigurationError(f"{what} must be {', '.join(most)} or {last}, got {value!r:.40}")
    return value


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


_more_than_0 = partial(_positive, zero=False, most=MAX_TTL)
_FOR_FAR_SERVERS = {"check": _more_than_0, "caller": True, "client": True, "environment": True}


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


class BarrierKwargs(TypedDict, total=False):
    """The options of a barrier as keyword arguments; see ``LockOptions``."""

    timeout: Seconds | None
    ticket_ttl: Seconds | None
    unavailable_after: Seconds


class LatchKwargs(BarrierKwargs, total=False):
    """The options of a latch as keyword arguments."""

    ttl: Seconds
    max_waiters: int


class OnceKwargs(LatchKwargs, total=False):
    """The options of what is done once as keyword arguments."""

    renew: Renew
    max_hold: Seconds | None
    on_lost: Callable[[Any], object] | None


class PermitKwargs(OnceKwargs, total=False):
    """The options of a semaphore or an rwlock as keyword arguments."""

    min_hold: Seconds
    replicas: int
    on_exit: OnExit
    on_unavailable: OnUnavailable


class LockKwargs(PermitKwargs, total=False):
    """The options of a lock as keyword arguments."""

    handover: int


class Rhythm(NamedTuple):
    """When a lease is renewed, and for how long; of a lease that was extended it is another than its lock's."""

    ttl: float
    """Seconds asked for at each renewal."""
    every: float
    """Seconds between renewals."""
    hold_limit: float | None = None
    """When ``max_hold`` ends it, or None."""

    @property
    def ttl_ms(self) -> int:
        """The ttl in whole milliseconds."""
        return to_ms(self.ttl)


@dataclass(frozen=True, kw_only=True)
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
        fence_ttl: Of a client alone: how long the server keeps the fence of a lock after its last use; default 3600, at most
            366 days; 0 no longer than its lease.
        request_timeout: Of a client alone: how long to wait for one answer of the server before the request counts as
            unanswered; None (default): a third of ``ticket_ttl``, but at most 1, for a server whose answers take less
            than that. At most a third of ``ticket_ttl``, which is by default as much longer as that needs, and at most
            half of what is left of ttl when it is renewed (of the defaults, a third of ttl): a renewal without an
            answer, and the question of a waiter, must be repeated before the lease, or the ticket, ends.
        connect_timeout: Of a client alone: how long the connect (with TLS) may take, and the login as long again; None
            (default): as long as an answer. At least 0.25, to which less is raised; at most 366 days. The end of
            ``timeout`` ends it sooner.

    Raises:
        ConfigurationError: A value that can never work.
    """

    ttl: float = field(
        default=30.0,
        metadata={
            "check": check_ttl,
            "environment": True,
            "flag": "Lease TTL: how long it remains after a crash (default: 30s).",
        },
    )
    renew: Renew = field(default=True, metadata={"check": _check_renew})
    timeout: float | None = field(
        default=None, metadata={"check": check_timeout, "environment": True, "caller": True}
    )
    unavailable_after: float = field(default=10.0, metadata={"check": _positive, "caller": True})
    max_hold: float | None = field(
        default=None,
        metadata={
            "check": partial(_positive, zero=False),
            "flag": "End the command after TIME (exit 76).",
        },
    )
    min_hold: float = field(
        default=0.0,
        metadata={
            "check": partial(_positive, most=MAX_TTL),
            "flag": "Keep the lock for at least TIME, even if the command exits sooner.",
        },
    )
    handover: int = field(default=64, metadata={"check": partial(check_count, least=0, most=64)})
    ticket_ttl: float | None = field(default=None, metadata={"check": check_ttl})
    max_waiters: int = field(
        default=10_000, metadata={"check": partial(check_count, least=1, most=10_000_000), "caller": True}
    )
    replicas: int = field(default=0, metadata={"check": partial(check_count, least=0, most=100)})
    on_lost: Callable[[Any], object] | None = field(default=None, metadata={"check": check_callback})
    on_exit: OnExit = field(
        default="raise", metadata={"check": partial(check_choice, choices=get_args(OnExit))}
    )
    on_unavailable: OnUnavailable = field(
        default="raise", metadata={"check": partial(check_choice, choices=get_args(OnUnavailable))}
    )
    fence_ttl: float = field(
        default=FENCE_MS / 1000, metadata={"check": _check_fence_ttl, "caller": True, "client": True}
    )
    request_timeout: float | None = field(default=None, metadata=_FOR_FAR_SERVERS)
    connect_timeout: float | None = field(default=None, metadata=_FOR_FAR_SERVERS)

    hand_over_for: ClassVar[float] = 0.02
    """Seconds that a run of local grants may last, so that other clients wait no longer than that."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None or one.default is not None:
                object.__setattr__(self, one.name, one.metadata["check"](value, one.name))
        if self.ticket > self.ttl:
            raise ConfigurationError(f"ticket_ttl must be at most ttl ({self.ttl:g} s), got {self.ticket:g}")
        if not isinstance(self.renew, bool) and self.rhythm.every >= self.ttl / 2:
            raise ConfigurationError(
                f"renew must be below half the TTL ({self.ttl / 2:g} s), got {self.renew}"
            )
        if self.max_hold is not None and not self.renew:
            raise ConfigurationError("max_hold has no effect with renew=False: set ttl instead")
        most = min(self.ticket / 3, (self.ttl - self.rhythm.every) / 2)
        if self.request_timeout is not None and self.request_timeout > most * (1 + 1e-9):
            text = f"request_timeout is {self.request_timeout:g} s, and must be at most {most:g} s with ttl={self.ttl:g}"
            raise ConfigurationError(f"{text}: no request could be repeated before a lease or a ticket ends")

    # What the steps of a lock read, each worked out once.

    @cached_property
    def ttl_ms(self) -> int:
        """The ttl in whole milliseconds."""
        return to_ms(self.ttl)

    @cached_property
    def ticket(self) -> float:
        """Seconds that a ticket lives."""
        usual = max(3.0, 3 * (self.request_timeout or 0.0))
        return min(usual, self.ttl) if self.ticket_ttl is None else self.ticket_ttl

    @cached_property
    def ticket_ms(self) -> int:
        """The same in whole milliseconds."""
        return to_ms(self.ticket)

    @cached_property
    def answer_within(self) -> float:
        """Seconds that one question may take: a third of a ticket's life, so that two tries fit in it."""
        return self.request_timeout or min(1.0, self.ticket / 3)

    @cached_property
    def rhythm(self) -> Rhythm:
        """When a lease is renewed; without renewal, when it would be."""
        every = self.ttl / 3 if isinstance(self.renew, bool) else seconds(self.renew, "renew")
        return Rhythm(self.ttl, every)

    @cached_property
    def renewed(self) -> Rhythm | None:
        """The same of a lease whose renewals are plain: it is renewed, with the ttl of its lock, and without an end."""
        return self.rhythm if self.renew else None

    @cached_property
    def block(self) -> int:
        """How many fences a grant reserves."""
        return self.handover + 1 if self.hands_over else 1

    @cached_property
    def fence_ms(self) -> int:
        """How long the server keeps a fence after its last use."""
        return to_ms(self.fence_ttl)

    @cached_property
    def queue_group(self) -> str:
        """All that must be the same for one waiter to go on for another; text, because its hash is worked out once."""
        values = [getattr(self, one.name) for one in fields(self) if "caller" not in one.metadata]
        # The callback's id cannot come again while its lock is alive.
        return " ".join(str(id(value) if callable(value) else value) for value in values)

    @property
    def confirms(self) -> bool:
        """Whether a lease that was handed on by another client is asked for once more before it counts."""
        # A hand-off lives on its ticket's expiry, on one server: too little where more was asked for.
        return not self.renew or self.replicas > 0

    @property
    def hands_over(self) -> bool:
        """Whether grants may pass from waiter to waiter inside the client.

        Not without renewal and not with ``min_hold``: there the lease belongs to one holder alone.
        """
        return self.handover > 0 and bool(self.renew) and self.min_hold == 0

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
    def known(cls, note: str = "", *, client: bool = False) -> dict[str, Any]:
        """The options of a lock with their metadata: all, or those that have this note there.

        Args:
            note: The note.
            client: Whether those that only a client has are among them.
        """
        wanted = {one.name: one.metadata for one in fields(cls) if client or "client" not in one.metadata}
        return {name: about for name, about in wanted.items() if not note or note in about}
