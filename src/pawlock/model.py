"""What pawlock reports about locks: small frozen records. Imports nothing of pawlock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

__all__ = [
    "AuditEntry",
    "Done",
    "Finding",
    "Forced",
    "HolderInfo",
    "Leader",
    "LeaseState",
    "LockInfo",
    "LossReason",
    "NodeVote",
    "QuorumInfo",
    "Release",
    "Running",
    "ServerReport",
    "ServiceMetrics",
    "ServiceStats",
    "Severity",
    "WaiterInfo",
]


class LeaseState(StrEnum):
    """The state of a lease. ``LOST`` and ``RELEASED`` are final."""

    HELD = "held"
    SUSPECT = "suspect"
    LOST = "lost"
    RELEASED = "released"


class LossReason(StrEnum):
    """Why a lease was lost."""

    EXPIRED = "expired"
    TAKEN = "taken"
    DATA_LOST = "data_lost"
    QUORUM = "quorum"
    MAX_HOLD = "max_hold"
    UNREACHABLE = "unreachable"
    CLOSED = "closed"


class Release(StrEnum):
    """How a release ended. ``UNKNOWN`` means that the server did not answer; the TTL frees the lock."""

    RELEASED = "released"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeVote:
    """The answer of one of several independent masters.

    Attributes:
        node: Its address, without credentials.
        answer: Its answer as text.
        granted: Whether it voted for the token.
    """

    node: str
    answer: str
    granted: bool


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """How a lease of several independent masters was granted.

    Attributes:
        nodes: The answers when the grant was decided; for a node that was not waited for, "no answer yet".
        needed: The number of votes that is a majority.
        validity: Seconds of validity left at the grant.
        drift: Seconds that were taken off for clocks that differ.
    """

    nodes: tuple[NodeVote, ...]
    needed: int
    validity: float
    drift: float


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of an election.

    Attributes:
        identity: The leader's name: its ``identity=``, else ``host:pid/thread``.
        fence: The fencing token of its lease. A later leader has a larger one.
    """

    identity: str
    fence: int


@dataclass(frozen=True, slots=True)
class Running:
    """What ``once(...).begin()`` returns while another client runs it.

    Attributes:
        holder: ``host:pid/thread`` of the client that runs it; None if its key holds no token of pawlock.
        until: When its lease ends unless renewed, by the server's clock: for display, never to decide.
    """

    holder: str | None
    until: datetime


@dataclass(frozen=True, slots=True)
class Done:
    """What ``once(...).begin()`` returns once it is finished.

    Attributes:
        value: What it was finished with; of JSON, what ``json.loads`` makes of it.
        fence: The fencing token of the lease under which it was done.
        at: When it was finished, by the server's clock.
    """

    value: Any
    fence: int
    at: datetime


@dataclass(frozen=True, slots=True)
class WaiterInfo:
    """One waiter in the queue of a lock.

    Attributes:
        holder: ``host:pid/thread`` of the waiter.
        position: 0 is next.
        ttl_left: Seconds until its ticket expires unless renewed.
        age: Seconds since it joined the queue.
    """

    holder: str
    position: int
    ttl_left: float
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """One of several holders of a lock.

    Attributes:
        holder: ``host:pid/thread`` of the holder.
        mode: ``"read"`` or ``"write"``; of a semaphore, ``"permits"``.
        permits: How many permits it has; 1 for readers and writers.
        ttl_left: Seconds of its lease left.
    """

    holder: str
    mode: str
    permits: int
    ttl_left: float


@dataclass(frozen=True, slots=True)
class LockInfo:
    """The state of a lock on the server at one moment; it may have changed since.

    Attributes:
        name: The lock name.
        held: Whether a client holds it.
        holder: ``host:pid/thread`` of the holder; ``""`` when free or when the holder is not pawlock's. Inside a client
            a lock may have been handed on since, to another thread or task of the same process.
        foreign: True if the key holds a value that pawlock did not write.
        ttl_left: Seconds of the holder's lease left; 0 when free, ``inf`` for a key without a TTL.
        fence: The fencing token of the current or last grant; None if there was none, or if the holder is not pawlock's.
        count: How many hold it (1 for a lock, 0 when free).
        queue_length: The number of waiters in the queue on the server. The waiters of one client for a ``lock`` share one
            place there.
        waiters: The first of them, in FIFO order; from ``locks()``, the first one alone.
        limit: The number of permits of a semaphore; None without a limit.
        used: The number of permits in use.
        holders: All holders of a semaphore or an rwlock, expiring soonest first.
        kind: The kind that was requested; from ``locks()``, ``"lock"`` (also an ``rlock`` or ``fair_lock``),
            ``"semaphore"``, ``"rwlock"``, ``"election"`` or ``"once"``.
        host: The holder's machine, ``""`` if not known.
        pid: The holder's process, None if not known.
        since: When the holder's client acquired it, in Unix time by the server's clock; None if not known.
        waiting: How many wait: those in the queue, and threads and tasks that have waited inside a client for a second or
            more (``deadlock_after``).
        longest_wait: Seconds that the first of them has waited, by the server's clock; 0 if nobody waits, None where no
            waiter was asked for.
        held_as: From ``client.inspect()``, of a name that is free as a lock: ``"semaphore"``, ``"rwlock"``,
            ``"election"`` or ``"once"`` if it is held as that; ``""`` elsewhere. They are separate things of one name.
    """

    name: str
    held: bool
    holder: str
    foreign: bool
    ttl_left: float
    fence: int | None
    count: int
    queue_length: int
    waiters: tuple[WaiterInfo, ...] = ()
    limit: int | None = None
    used: int = 0
    holders: tuple[HolderInfo, ...] = ()
    kind: str = ""
    host: str = ""
    pid: int | None = None
    since: float | None = None
    waiting: int = 0
    longest_wait: float | None = 0.0
    held_as: str = ""


@dataclass(frozen=True, slots=True)
class Forced:
    """What was taken away by a force release.

    Attributes:
        name: The name.
        holder: ``host:pid/thread`` of who held it, of several the first ten; ``""`` if the holder was not pawlock's.
        fence: A fence above all that the holder was given: what is written to can refuse it from now on.
        kind: As what it was held: ``"lock"``, ``"semaphore"``, ``"rwlock"``, ``"election"`` or ``"once"``.
        count: How many leases ended: of a semaphore or an rwlock there may be several.
    """

    name: str
    holder: str
    fence: int
    kind: str = "lock"
    count: int = 1


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action of an operator.

    Attributes:
        at: When, in Unix time by the server's clock.
        who: Who did it: ``user@host``, what ``by=`` said, or ``token`` and the id of a token of the service.
        action: What: ``"force_release"``.
        name: To which name.
        text: The reason that the operator gave.
        outcome: ``"released"``, ``"free"`` (nobody held it), ``"changed"`` (it changed hands each time that it was to
            be taken: nothing was), or ``"unknown"``: it was begun and its end never written.
        holder: Who held it.
        fence: The fence that the name rose to, or None.
        kind: As what it was held.
    """

    at: float
    who: str
    action: str
    name: str
    text: str
    outcome: str
    holder: str
    fence: int | None
    kind: str = "lock"


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """The server's state of a lock at one moment, and the counters of this client's lock service.

    Attributes:
        name: The name asked for.
        holder: ``service:`` and a digest of the identifier that holds it, ``host:pid/thread`` of another holder; ``""``
            when free.
        ttl_left: Seconds of the holder's lease left; 0 when free.
        count: How many times it is held by its identifier, over all processes.
        queue_length: How many waiters stand in the queue on the server.
        acquired: Grants to callers of this client.
        waits: Acquisitions that callers of this client began.
        waiting: How many of them are waiting now.
        failures: Acquisitions, renewals and releases of this client that failed.
    """

    name: str
    holder: str
    ttl_left: float
    count: int
    queue_length: int
    acquired: int
    waits: int
    waiting: int
    failures: int


@dataclass(frozen=True, slots=True)
class ServiceStats:
    """The counters of one client's lock service since the client was created, over all names.

    Attributes:
        names: Names that callers of this client hold now, as far as it knows: a lost hold counts until its release.
        holds: How many times they are held.
        acquired: Grants to callers.
        released: Holds that callers released.
        waits: Acquisitions that callers began.
        waiting: How many of them are waiting now.
        failures: Acquisitions, renewals and releases that failed.
    """

    names: int
    holds: int
    acquired: int
    released: int
    waits: int
    waiting: int
    failures: int


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    UNKNOWN = "unknown"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked.

    Attributes:
        check: What was checked, in a word that does not change.
        severity: How bad it is.
        text: What was found.
        promise: The guarantee that it affects, or "".
        fix: What to do, or "".
    """

    check: str
    severity: Severity
    text: str
    promise: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What ``check()`` found at one server.

    Attributes:
        server: Its address, without credentials.
        findings: What was found there.
    """

    server: str
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Severity:
        """The worst of them."""
        order = list(Severity)
        return max((finding.severity for finding in self.findings), key=order.index, default=Severity.OK)
