"""What a primitive gives to the core: which requests to send. It knows keys, nothing of waiting or nodes.

An engine is two things. It *makes requests*: one object for each name, a primitive, whose methods make what is sent to
take the name or queue for it, to renew, to leave, to look, to list, to force (``Primitive``, and what
extends that). And it *carries* them, and notifies waiters that they were granted the name (``Carrier``, a part of a
``Runtime``). Requests are opaque to everybody else, and are answered with the records of ``outcomes``.

Redis is the first engine: its requests are runs of scripts, of which ``pawlock.primitives`` knows what they take and how
they answer, and ``pawlock.transport`` how they are sent.

What every engine promises: a name is given to one token at a time (of permits: to as many as there are); the same
request with the same token changes nothing and is answered alike; a token that was left is never granted again while
its tombstone lives; no expiry of what is held falls, except at its owner's word; fences rise with every grant; and who
waits is notified of its grant by a message, which may get lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Carrier, Request
from pawlock.errors import PawlockError
from pawlock.model import LossReason

__all__ = [
    "ANY_LIMIT",
    "TOMB_MS",
    "Carrier",
    "Forceable",
    "Found",
    "Namespace",
    "NamespaceCalls",
    "PolledPrimitive",
    "Primitive",
    "Request",
    "TogetherPrimitive",
    "listed_as",
]


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


ANY_LIMIT = 1_000_000_000
"""For who looks at a semaphore without declaring a number: that of the server counts, if it keeps one."""


class Forceable(Protocol):
    """A name that an operator may take from its holder."""

    def peek(self) -> Request:
        """Read who holds, secret and all: ``Seen``."""
        ...

    def force(self, value: Any, tomb_ms: int) -> Request:
        """Take the name from a holder, as ``peek`` read it: ``Forced``, or ``Absent`` if it does not hold any more."""
        ...


class NamespaceCalls(Protocol):
    """The calls about a namespace as a whole."""

    def scan_key(self, number: int) -> str:
        """A key that selects the server to scan; see ``Carrier.key_for_each``."""
        ...

    def scan(self, node: str, cursor: str, count: int, *, everywhere: bool) -> Request:
        """Look at the next keys of one server for names of the namespace, or of any: ``Keys``."""
        ...

    def write_waits(
        self, process: str, client: str, record: str, channel: str = "", token: str = ""
    ) -> Request:
        """Write what the waiters of a client of a process wait for, and wake one: ``Noted``."""
        ...

    def read_waits(self, process: str) -> Request:
        """Read what the clients of a process wait for: ``Texts``, each client before its record."""
        ...

    def note(self, line: str, data: str, limit: int, life_ms: int) -> Request:
        """Write a line into the audit log: ``Noted``."""
        ...

    def audit_log(self, limit: int) -> Request:
        """Read the audit log: ``Texts``."""
        ...


class Found(NamedTuple):
    """A name whose key is there: its namespace, what it is called in a list, and what looks at it."""

    namespace: str
    kind: str
    primitive: Primitive


class Namespace(NamedTuple):
    """What an operator, and who looks for deadlocks, ask a namespace with.

    Attributes:
        calls: What to send.
        look: The primitive of a kind and name, for who looks at it; None of a kind that cannot be inspected.
        beside_locks: The kinds, beside those of locks, that a name may be held as.
        finder: Given ``everywhere``, whether all namespaces are meant: what says of a key which name it is held by, if any.
    """

    calls: NamespaceCalls
    look: Callable[[str, str], Primitive | None]
    beside_locks: Callable[[], Sequence[str]]
    finder: Callable[..., Callable[[str], Found | None]]
