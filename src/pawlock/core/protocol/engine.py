"""What an engine must offer: what a server that keeps locks is asked, and how it answers.

An engine is two things. It *makes requests*: one object for each name, a primitive, whose methods make what is sent to
take the name or queue for it, to renew, to leave, to look, to list, to force (``ServerEngine``; ``Primitive`` and what
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

from pawlock.core.protocol.carrier import Carrier, Request
from pawlock.core.protocol.key import Key
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.primitive import Primitive
from pawlock.core.protocol.terms import Terms

__all__ = [
    "ANY_LIMIT",
    "BallotCalls",
    "BarrierCalls",
    "Carrier",
    "Forceable",
    "Found",
    "LatchCalls",
    "Namespace",
    "NamespaceCalls",
    "OnceCalls",
    "PermitCalls",
    "Request",
    "ServerEngine",
]


ANY_LIMIT = 1_000_000_000
"""For who looks at a semaphore without declaring a number: that of the server counts, if it keeps one."""


class PermitCalls(Primitive, Protocol):
    """One side of a semaphore or an rwlock; see ``Primitive``."""

    @property
    def mode(self) -> str:
        """How it is held: a weight (``"1"`` reads), ``"x"``: a writer."""
        ...

    @property
    def permits(self) -> int:
        """How many permits there are in all; 0 of an rwlock."""
        ...

    def of(self, kind: str, mode: str) -> PermitCalls:
        """The same name in another mode."""
        ...

    def limit(self, permits: int) -> Request:
        """Change how many permits there are: ``LimitChanged``."""
        ...


class BallotCalls(Primitive, Protocol):
    """What the calls of an election are made by: those of a mutex, and two for observers."""

    def observe(self, token: str, ticket_ms: int, channel: str, former: str) -> Request:
        """Read who leads, and be woken when that changes: ``Leading`` or ``Full``."""
        ...

    def unobserve(self, token: str, channel: str) -> Request:
        """End an observation: ``Absent``."""
        ...


class OnceCalls(Primitive, Protocol):
    """What is done once: a mutex whose ``acquire`` and ``renew`` may say ``Finished``, and some more."""

    def finishing(self, kind: str, data: bytes, keep_ms: int, fence: int) -> Primitive:
        """The same name, whose release records a result: ``Released`` or ``NotRecorded``."""
        ...

    def forget(self) -> Request:
        """Delete the record of the result: ``Forgotten``."""
        ...

    def look(self) -> Request:
        """Read what is recorded of the result, without the value: ``LookAtResult``."""
        ...


class Forceable(Protocol):
    """A name that an operator may take from its holder."""

    def peek(self) -> Request:
        """Read who holds, secret and all: ``Seen``."""
        ...

    def force(self, value: Any, tomb_ms: int) -> Request:
        """Take the name from a holder, as ``peek`` read it: ``Forced``, or ``Absent`` if it does not hold any more."""
        ...


class LatchCalls(Protocol):
    """What the calls of a latch are made by."""

    @property
    def name(self) -> str:
        """The name as the user gave it."""
        ...

    @property
    def count(self) -> int:
        """From where it counts down."""
        ...

    def count_down(self, token: str, part: str, n: int) -> Request:
        """Count down by ``n``, once for each token and each part: ``CountedDown`` or ``Disagreed``."""
        ...

    def wait(self, token: str, round_: int, channel: str, former: str) -> Request:
        """Ask for it, and be woken when it opens: ``Open``, ``Shut``, ``LatchLost``, ``Full``, ``Disagreed``."""
        ...

    def leave(self, token: str, round_: int, channel: str) -> Request:
        """End a wait: ``Open`` if it was opened meanwhile, else ``Absent``."""
        ...

    def reset(self, token: str) -> Request:
        """Begin a new round: ``CountedDown``."""
        ...

    def inspect(self) -> Request:
        """Read what is left: ``LookAtLatch``."""
        ...


class BarrierCalls(Protocol):
    """What the calls of a barrier are made by."""

    @property
    def name(self) -> str:
        """The name as the user gave it."""
        ...

    @property
    def parties(self) -> int:
        """How many pass at once."""
        ...

    def arrive(self, token: str, channel: str, *, stay: bool) -> Request:
        """Arrive, or keep a known arrival: ``Passed``, ``Arrived``, ``NotArrived``, ``Disagreed`` or ``Dead``."""
        ...

    def leave(self, token: str, tomb_ms: int) -> Request:
        """Withdraw an arrival: ``Withdrawn``, ``Absent``, or ``Passed`` if it came too late."""
        ...

    def inspect(self) -> Request:
        """Read how many wait: ``LookAtBarrier``."""
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


class ServerEngine(Protocol):
    """Makes the requests of one kind of server: a primitive for each name that a client asks for.

    A kind of primitive that it does not have it refuses with ``NotSupported``, before anything is sent.
    """

    def mutex(self, kind: str, name: str, key: str, options: Terms) -> Primitive:
        """A ``lock``, ``rlock`` or ``fair_lock``: one holder at a time, and a queue."""
        ...

    def mutex_at(self, kind: str, key: Key, options: Terms, *, sharded: bool) -> Primitive:
        """The same for a key that programs of other libraries lock too."""
        ...

    def semaphore(self, name: str, key: str, permits: int, options: Terms) -> PermitCalls:
        """A number of permits, of which each acquisition takes one; ``ANY_LIMIT``: as many as the server knows of."""
        ...

    def rwlock(self, name: str, key: str, options: Terms) -> tuple[PermitCalls, PermitCalls]:
        """The two sides of a read-write lock: to read and to write."""
        ...

    def election(self, name: str, namespace: str, options: Terms) -> BallotCalls:
        """An election, which has nothing in common with a lock of that name."""
        ...

    def once(self, name: str, namespace: str, options: Terms) -> OnceCalls:
        """What is done once, which has nothing in common with a lock of that name."""
        ...

    def latch(self, name: str, key: str, count: int, options: Terms, remember_ms: int) -> LatchCalls:
        """A latch; requests that were seen are remembered for so long."""
        ...

    def barrier(self, name: str, key: str, parties: int, options: Terms) -> BarrierCalls:
        """A barrier."""
        ...

    def names(self, namespace: str) -> NamespaceCalls | None:
        """The calls about a namespace as a whole; None: there is no server that has all of it."""
        ...

    def probe(self, namespace: str, key: str = "") -> Request | None:
        """What asks a server, of a cluster that of the key, about itself: ``ServerFacts``; None: nothing to ask."""
        ...

    def explain_keys(self, refused: Request) -> Sequence[tuple[Request, Callable[[Outcome], str]]]:
        """What to ask to explain why the server refused a request for what its keys hold.

        Each with a function that puts its answer into words; ``""``: there is nothing to explain.
        """
        ...
