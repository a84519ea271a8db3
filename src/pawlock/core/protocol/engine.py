"""What an engine must offer: what a server that keeps locks is asked, and how it answers.

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

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from pawlock.core.protocol.carrier import Carrier, Request
from pawlock.core.protocol.primitive import Primitive

__all__ = ["ANY_LIMIT", "Carrier", "Forceable", "Found", "Namespace", "NamespaceCalls", "Request"]


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
        finder: Given ``everywhere``, whether all namespaces are meant: what says of a key which name it is held by, if any.
    """

    calls: NamespaceCalls
    look: Callable[[str, str], Primitive | None]
    finder: Callable[..., Callable[[str], Found | None]]
