"""Every error that pawl raises, in one tree.

::

    PawlError
    ├── NotAcquired            ordinary: somebody else holds it (.holder)
    │   ├── AcquireTimeout     also a TimeoutError (.waited, .position)
    │   ├── QueueFull          more waiters than max_waiters
    │   └── DeadlockDetected   waiting could never end (.cycle)
    ├── ClientClosed           the client was closed, before or while waiting
    ├── NotHeld                release or extend of what is not ours
    ├── LeaseLost              the lease ended under its owner (.reason)
    ├── StaleFence             the protected resource has seen a newer holder
    ├── ClockDrift             validity was used up before the grant arrived
    ├── BackendError           the server refused or could not be asked
    │   ├── BackendUnavailable
    │   ├── BackendOutOfMemory
    │   ├── BackendReadOnly
    │   ├── BackendDenied
    │   ├── NotReplicated      fewer replicas acknowledged than were asked for
    │   ├── QuorumNotReached   a majority of several masters did not answer (.outcomes)
    │   ├── ScriptError
    │   └── WrongKey
    ├── NotSupported           a thing that this server or topology cannot keep safe
    └── ConfigurationError     also a ValueError; before anything is sent
        └── LimitMismatch      the server keeps another number (.limit, .permits)

Each class carries a stable ``code`` for logs and services, keeps its values as attributes, and survives pickling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

__all__ = [
    "AcquireTimeout",
    "BackendDenied",
    "BackendError",
    "BackendOutOfMemory",
    "BackendReadOnly",
    "BackendUnavailable",
    "ClientClosed",
    "ClockDrift",
    "ConfigurationError",
    "DeadlockDetected",
    "LeaseLost",
    "LimitMismatch",
    "NotAcquired",
    "NotHeld",
    "NotReplicated",
    "NotSupported",
    "PawlError",
    "QueueFull",
    "QuorumNotReached",
    "ScriptError",
    "StaleFence",
    "WrongKey",
]


class PawlError(Exception):
    """The root: catch it to catch everything that pawl raises on purpose.

    Attributes:
        code: A stable word for logs, services and dashboards.
        name: The name of the lock concerned, or None.
    """

    code: str = "PAWL_ERROR"

    def __init__(self, message: str = "", *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class NotAcquired(PawlError):
    """The lock was not granted, and that is an ordinary outcome: somebody else has it.

    Cause: another owner holds the name. Solution: try later, wait longer, or hold it for less time elsewhere.

    Attributes:
        holder: Who holds it (``host:pid/thread``), or None where that is not known. Never a token.
    """

    code = "LOCK_NOT_ACQUIRED"

    def __init__(self, message: str = "", *, name: str | None = None, holder: str | None = None) -> None:
        super().__init__(message, name=name)
        self.holder = holder


class AcquireTimeout(NotAcquired, TimeoutError):
    """The wait for the lock took longer than ``timeout``; nothing of it is left on the server.

    Cause: the holder kept the name longer than the caller would wait. Solution: a longer ``timeout``, a shorter
    section, a finer name; ``holder`` says whom to look at.

    Attributes:
        waited: Seconds waited.
        position: The place in the queue when it gave up (0 is next), or None if it never queued.
        outcomes: With several independent masters, what each answered last, by its address; else empty.
    """

    code = "LOCK_TIMEOUT"

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        holder: str | None = None,
        waited: float = 0.0,
        position: int | None = None,
        outcomes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, name=name, holder=holder)
        self.waited = waited
        self.position = position
        self.outcomes: dict[str, str] = dict(outcomes or {})


class QueueFull(NotAcquired):
    """More waiters than ``max_waiters`` stand in the queue of this name; this one was not added.

    Cause: the name is slower than its demand. Solution: shed load, or raise ``max_waiters``.
    """

    code = "LOCK_QUEUE_FULL"


class DeadlockDetected(NotAcquired):
    """Waiting could never end: the caller itself stands in the way.

    Cause: a plain ``lock`` taken again by the thread or task that holds it, or waiters, also of other
    processes, that wait for each other (found by ``deadlock_after``). Solution: use ``rlock`` for re-entry, take
    several names in one order, always give a ``timeout``.

    Attributes:
        cycle: The names on the cycle in order, from the name that was asked for back to it.
        waiters: Who waits on it, the caller first: ``host:pid/thread``, the name, and since when (Unix time in
            seconds). Empty if the caller would wait for itself.
    """

    code = "DEADLOCK"

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        holder: str | None = None,
        cycle: Sequence[str] = (),
        waiters: Sequence[tuple[str, str, float]] = (),
    ) -> None:
        super().__init__(message, name=name, holder=holder)
        self.cycle: tuple[str, ...] = tuple(cycle)
        self.waiters: tuple[tuple[str, str, float], ...] = tuple(waiters)


class ClientClosed(PawlError):
    """The client was closed, before the call or while it waited.

    Cause: ``close()`` ran, or the ``with`` block of the client ended. Solution: make a new client.
    """

    code = "CLIENT_CLOSED"


_NOT_HELD: Mapping[str, str] = MappingProxyType(
    {
        "release": "UNLOCK_FAILED",
        "extend": "EXTEND_FAILED",
        "downgrade": "DOWNGRADE_FAILED",
        "upgrade": "UPGRADE_FAILED",
        "detach": "DETACH_FAILED",
        "adopt": "ADOPT_FAILED",
        "lead": "NOT_THE_LEADER",
        "look up": "NO_CURRENT_LEASE",
    }
)
"""The code of each operation that a lease is needed for."""


class NotHeld(PawlError):
    """Release or extend of a lease that is not held (any more); nothing on the server was touched.

    The code says what was tried: ``UNLOCK_FAILED`` for a release, ``EXTEND_FAILED`` (also ``renew`` of the service),
    ``DOWNGRADE_FAILED``, ``UPGRADE_FAILED``, ``DETACH_FAILED``, ``ADOPT_FAILED``, ``NOT_THE_LEADER`` for what only the
    leader of an election may do, ``NO_CURRENT_LEASE`` where no decorated function runs.

    Cause: it was released already, it ran out, or another process took over. Solution: release once; give the work
    a ttl that fits or leave renewal on.

    Attributes:
        operation: ``release`` | ``extend`` | ``downgrade`` | ``upgrade`` | ``detach`` | ``adopt`` | ``lead`` |
            ``look up``.
    """

    code: str = "UNLOCK_FAILED"

    def __init__(self, message: str = "", *, name: str | None = None, operation: str = "release") -> None:
        super().__init__(message, name=name)
        self.operation = operation
        self.code = _NOT_HELD.get(operation, type(self).code)


_LEASE_LOST: Mapping[str, str] = MappingProxyType(
    {
        "expired": "WATCHDOG_RENEWAL_FAILED",
        "unreachable": "WATCHDOG_RENEWAL_FAILED",
        "taken": "LEASE_TAKEN",
        "quorum": "REDLOCK_QUORUM_LOST",
        "max_hold": "MAX_HOLD_EXCEEDED",
        "closed": "LEASE_CLOSED",
    }
)
"""The code of each reason for a loss."""


class LeaseLost(PawlError):
    """The lease ended while its owner still worked; what it does from here on is not protected.

    The code follows the reason: ``WATCHDOG_RENEWAL_FAILED`` for ``expired`` and ``unreachable``, ``LEASE_TAKEN`` for
    ``taken``, ``MAX_HOLD_EXCEEDED`` for ``max_hold``, ``REDLOCK_QUORUM_LOST`` for ``quorum``, ``LEASE_CLOSED`` for
    ``closed``: released already, the client closed, or in a child after a fork.

    Cause: see ``reason``. Solution: stop the work and start again under a new lease; guard writes with the fence.

    Attributes:
        reason: ``expired`` | ``taken`` | ``quorum`` | ``max_hold`` | ``unreachable`` | ``closed``.
    """

    code: str = "WATCHDOG_RENEWAL_FAILED"

    def __init__(self, message: str = "", *, name: str | None = None, reason: str = "expired") -> None:
        super().__init__(message, name=name)
        self.reason = reason
        self.code = _LEASE_LOST.get(reason, type(self).code)


class StaleFence(PawlError):
    """The protected resource has seen a higher fence: a newer holder was there.

    Cause: this holder was paused past its lease. Solution: give up this attempt; the newer one is right.

    Attributes:
        fence: The fence that was refused.
    """

    code = "CONCURRENT_MODIFICATION"

    def __init__(self, message: str = "", *, name: str | None = None, fence: int | None = None) -> None:
        super().__init__(message, name=name)
        self.fence = fence


class ClockDrift(PawlError):
    """The validity of a grant was used up before its answer arrived, several times in a row; it was given back.

    A single server that answers late is ``BackendUnavailable``: no request waits as long as the ttl for its answer.

    Cause: the process was paused between a question and its answer each time; with several independent masters, their
    answers took longer than the ttl, or ``drift_factor`` and ``drift_floor`` leave nothing of it. Solution: a longer
    ttl, or less drift; look at what pauses the process.

    Attributes:
        outcomes: With several independent masters, what each answered, by its address; else empty.
    """

    code = "CLOCK_DRIFT"

    def __init__(
        self, message: str = "", *, name: str | None = None, outcomes: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, name=name)
        self.outcomes: dict[str, str] = dict(outcomes or {})


class BackendError(PawlError):
    """The server refused the request or could not be asked; this never means "held by somebody else"."""

    code = "REDIS_ERROR"


class BackendUnavailable(BackendError):
    """The server could not be reached, or did not answer, for as long as the caller would bear it.

    Cause: network, a restart, a failover, a wrong address. Solution: check the address and the server; raise
    ``unavailable_after`` so that a failover fits in.
    """

    code = "REDIS_CONNECTION_ERROR"


class BackendOutOfMemory(BackendError):
    """The server is out of memory and refuses new locks; renewal and release still work.

    Cause: ``maxmemory`` is reached with ``noeviction``. Solution: free memory, or give locks a server of their own.
    """

    code = "OOM"


class BackendReadOnly(BackendError):
    """The server is a replica, or does not take writes now.

    Cause: the address is of a replica, or a failover demoted it, or too few replicas are connected. Solution: use
    the master's address.
    """

    code = "REDIS_READONLY"


class BackendDenied(BackendError):
    """The server wants other credentials, or its ACL forbids what pawl needs.

    Cause: see the text: it names the command or the key. Solution: mend the password or the ACL rule.
    """

    code = "REDIS_DENIED"


class NotReplicated(BackendError):
    """Fewer replicas acknowledged the grant than ``replicas=`` asked for; it was taken back.

    Cause: replicas are missing or lag. Solution: repair replication, or ask for fewer.

    Attributes:
        acknowledged: How many replicas did.
        wanted: How many were asked for.
    """

    code = "NOT_REPLICATED"

    def __init__(
        self, message: str = "", *, name: str | None = None, acknowledged: int = 0, wanted: int = 0
    ) -> None:
        super().__init__(message, name=name)
        self.acknowledged = acknowledged
        self.wanted = wanted


class QuorumNotReached(BackendError):
    """Too few of the independent masters granted the lock, and the missing votes are failures.

    Cause: a majority of masters is down, slow, or restarted a short while ago. Solution: see ``outcomes``; bring the
    masters back.

    Attributes:
        outcomes: What each node answered, by its address.
    """

    code = "REDLOCK_QUORUM_NOT_REACHED"

    def __init__(
        self, message: str = "", *, name: str | None = None, outcomes: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, name=name)
        self.outcomes: dict[str, str] = dict(outcomes or {})


class ScriptError(BackendError):
    """A script of pawl failed on the server, or another version of pawl uses this name.

    Cause: see the text. Solution: one version of pawl per name; else report it.
    """

    code = "LUA_SCRIPT_ERROR"


class WrongKey(BackendError):
    """A key of this name holds something that is not pawl's; it was not touched.

    Cause: another program uses the key. Solution: another name or namespace.
    """

    code = "WRONG_KEY"


class NotSupported(PawlError):
    """A thing that this server, topology or version of pawl cannot keep safe, so it is refused."""

    code = "NOT_SUPPORTED"


class ConfigurationError(PawlError, ValueError):
    """A value that can never work. Raised before anything is sent; the text says what, where and how to mend."""

    code = "CONFIGURATION"


class LimitMismatch(ConfigurationError):
    """The number that this client takes for granted is not the one that the server keeps.

    Cause: two programs were given different numbers: of permits for one semaphore, to count for one latch, of parties
    for one barrier; or more permits were asked for at once than there are now. Solution: one number everywhere; to
    change it while programs run, call ``set_limit()`` of the semaphore or ``reset()`` of the latch.

    Attributes:
        limit: The number that the server keeps, or None.
        permits: The number that this client was given, or None.
    """

    code = "LIMIT_MISMATCH"

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        limit: int | None = None,
        permits: int | None = None,
    ) -> None:
        super().__init__(message, name=name)
        self.limit = limit
        self.permits = permits
