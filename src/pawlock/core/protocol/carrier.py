"""What carries requests to a server, and brings back its replies and notifications.

A request is what an engine's primitives make (``engine``); nobody here or above knows what is in one. Its answer is one
of the records of ``outcomes``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from pawlock.core.protocol.outcomes import Outcome

__all__ = ["DEAF", "Acknowledged", "Carrier", "Fault", "FaultKind", "Request", "Wakeup"]

Request: TypeAlias = Any
"""What an engine's primitives make and its carrier takes: opaque to everybody between the two.

It has a ``name``, under which requests of its sort are counted.
"""

DEAF = "-"
"""The channel of a caller that cannot listen: it polls instead."""


class Wakeup(NamedTuple):
    """The message by which the server notifies a waiter of its grant. Only a hint until it is checked."""

    fence: int
    expires_ms: int


class FaultKind(StrEnum):
    """What a server did instead of answering; the core decides what follows from it."""

    UNREACHABLE = "unreachable"
    UNANSWERED = "unanswered"
    NOT_READY = "not_ready"
    LATE = "late"
    READ_ONLY = "read_only"
    OUT_OF_MEMORY = "out_of_memory"
    DENIED = "denied"
    WRONG_KEY = "wrong_key"
    SCRIPT = "script"
    UNSUPPORTED = "unsupported"
    NOT_REDIS = "not_redis"
    NO_TLS = "no_tls"
    REDIRECTED = "redirected"
    CLOSED = "closed"


class Fault(Exception):
    """A request that ended without an answer of its own.

    Attributes:
        kind: What happened.
        text: The server's or the system's words, without secrets.
        maybe_applied: True if the server may have carried it out.
        final: True if another try can only fail the same way.
        outcomes: Of several servers, what each of them said, by its address; None of one.
    """

    def __init__(
        self,
        kind: FaultKind,
        text: str,
        *,
        maybe_applied: bool = False,
        final: bool = False,
        outcomes: dict[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.maybe_applied = maybe_applied
        self.final = final
        self.outcomes = outcomes

    def bare(self) -> Self:
        """Without the frames that it passed through: kept beyond its ``except``, it keeps alive what they hold.

        Since Python 3.13 that is also what their callers hold: the lease that one of them gives to its user.
        """
        for kept in ("__cause__", "__context__"):
            setattr(self, kept, None)
        return self.with_traceback(None)


Acknowledged: TypeAlias = "tuple[Outcome | Fault, int]"
"""An outcome, and how many replicas have what its request wrote."""


class Carrier(Protocol):
    """The connections of a client to its server. All times are seconds.

    The same request, with the same token, may be sent again, and is answered alike.
    """

    def now(self) -> float:
        """The present, on the clock of every deadline, which also counts suspends."""
        ...

    def random(self) -> float:
        """A number in [0, 1), for jitter."""
        ...

    def new_token(self) -> str:
        """A token that was never used before: 128 random bits, and who asks."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let a little time pass, also while the client closes."""
        ...

    async def ready(self, timeout: float) -> None:
        """Connect the present caller's link and confirm its wake-up subscription. Raises ``Fault``."""
        ...

    def channel(self) -> str:
        """The channel on which the present caller hears hand-offs; ``""`` before ``ready``, else maybe ``DEAF``."""
        ...

    @property
    def several(self) -> bool:
        """Whether there are several servers, and the key of a request says which one it is for."""
        ...

    async def call(self, call: Request, timeout: float) -> Outcome:
        """Send one request, and wait for its answer. Raises ``Fault``; after ``timeout`` seconds, ``UNANSWERED``."""
        ...

    async def call_many(self, calls: Sequence[Request], timeout: float) -> list[Outcome | Fault]:
        """Send several requests at once; one outcome each, in order."""
        ...

    async def call_replicated(
        self, calls: Sequence[Request], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """The same, on a connection that nobody else uses meanwhile, and ``WAIT`` for replicas behind it.

        Returns:
            One outcome each, in order, and how many replicas have what it wrote. Raises ``Fault``.
        """
        ...

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """Wait for the hand-off message of ``token``; None after ``timeout``, or when the link had to be renewed."""
        ...

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """Sleep, but no longer than until another program sends what wakes its waiters, where that can be heard.

        Args:
            hears: ``"publish"`` and a channel, or ``"push"`` and a list.
            seconds: For how long at most.

        Raises:
            Fault: The client is closed.
        """
        ...

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """One of the keys that a function makes of numbers for each server that has some of all. Raises ``Fault``."""
        ...
