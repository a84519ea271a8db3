"""What a primitive gives to the core: which requests to send. It knows keys, nothing of waiting or nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.outcomes import Outcome
from pawlock.errors import PawlockError
from pawlock.model import LossReason

__all__ = ["TOMB_MS", "PolledPrimitive", "Primitive", "TogetherPrimitive", "listed_as"]


class Primitive(Protocol):
    """The calls of one name. All times are whole milliseconds of server life."""

    kind: str
    """The primitive's name in the public API, as in ``"lock"``."""
    name: str
    """The name as the user gave it."""
    key: str
    """Its key on the server."""

    def acquire(
        self, token: str, ttl_ms: int, ticket_ms: int, *, wait: bool, block: int, channel: str, max_queue: int
    ) -> Request:
        """Take the name, or queue for it: ``Granted``, ``Queued``, ``Busy``, ``Full``, ``Dead``, or what it refuses."""
        ...

    polls: bool
    """Whether nobody can queue for it, and who waits asks again and again (``PolledPrimitive``)."""
    transferable: bool
    """Whether another process may go on with a lease: its token is the name's value."""

    def adopt(self, old: str, token: str, ttl_ms: int) -> Request:
        """Replace the token of a holder that gave its lease away. Only the first of several does.

        Answered with ``Granted``, ``Gone`` or ``Dead``.
        """
        ...

    def renew(self, token: str, ttl_ms: int, ticket_ms: int, channel: str) -> Request:
        """Raise the life of a holder or a waiter; never creates, never lowers: ``Granted``, ``Queued`` or ``Gone``."""
        ...

    def leave(self, token: str, tomb_ms: int, close_ms: int) -> Request:
        """End the token, whatever it is: ``Released``, ``Withdrawn``, ``Absent`` or ``NotRecorded``."""
        ...

    def inspect(self, limit: int) -> Request:
        """Read the state of the name and its first ``limit`` waiters: ``Look``."""
        ...

    def covers(self, other: Primitive) -> bool:
        """Whether who holds this may do what ``other``, of the same key, allows: then it is counted once more."""
        ...

    def lowered(self) -> Primitive | None:
        """What is left of it after a downgrade, sent as a renewal; None if there is nothing to lower."""
        ...

    unheard: LossReason
    """Why a lease is lost whose last renewals got no answer."""
    advice: str
    """What to do instead of waiting for oneself."""

    def refusal(self, outcome: Outcome) -> PawlockError | None:
        """The error that an answer of its own stands for (``LimitRefused``, ``Finished``); None if it is none."""
        ...


def listed_as(primitive: Primitive) -> str:
    """The kind of a primitive in lists and records of waiters: of a key that is shared with others, with its wire."""
    return getattr(primitive, "listed_as", primitive.kind)


class PolledPrimitive(Primitive, Protocol):
    """A primitive that other programs share, and for which nobody queues."""

    hears: tuple[str, str] | None
    """What wakes who waits early: ``"publish"`` and a channel, ``"push"`` and a list; None: nothing does."""


class TogetherPrimitive(Primitive, Protocol):
    """A primitive of which one script renews several holders (``renews_together``)."""

    @staticmethod
    def renew_all(holders: Sequence[tuple[Any, str, int]]) -> Request:
        """Raise the lives of several holders, each with its primitive, token and ttl in ms: ``AllRenewed``."""
        ...


TOMB_MS = 60_000
"""Life of a tombstone in ms: how late a copy of a request may arrive and still find its token dead."""
