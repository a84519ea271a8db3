"""Every error that pawlock raises, in one tree.

::

    PawlockError
    ├── NotAcquired            ordinary: another client holds it (.holder)
    │   ├── AcquireTimeout     also a TimeoutError (.waited, .position)
    │   ├── QueueFull          more waiters than max_waiters
    │   └── DeadlockDetected   waiting could never end (.cycle)
    ├── ClientClosed           the client was closed, before or while waiting
    ├── NotHeld                release or extend of a lease that is not held
    ├── Reentered              called from a signal handler on top of a pawlock call
    ├── LeaseLost              the lease ended under its owner (.reason)
    ├── StaleFence             the protected resource has seen a newer holder
    ├── ClockDrift             validity was used up before the grant arrived
    ├── BackendError           the server refused or could not be reached
    │   ├── BackendUnavailable
    │   ├── BackendOutOfMemory
    │   ├── BackendReadOnly
    │   ├── BackendDenied
    │   ├── NotReplicated      fewer replicas acknowledged than were asked for
    │   ├── QuorumNotReached   a majority of several masters did not answer (.outcomes)
    │   ├── ScriptError
    │   └── WrongKey
    ├── NotSupported           not safe on this server or topology
    └── ConfigurationError     also a ValueError; raised before anything is sent
        └── LimitMismatch      the server has another number (.limit, .permits)

Each class carries a stable ``code``, which ends the text of the error (``… [LOCK_TIMEOUT]``), so that a search for it
finds the right page; keeps its values as attributes; survives pickling; and is made again by its class and ``args``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

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
    "PawlockError",
    "QueueFull",
    "QuorumNotReached",
    "Reentered",
    "ScriptError",
    "StaleFence",
    "WrongKey",
]


class PawlockError(Exception):
    """The base class of all errors that pawlock raises on purpose. ``str(error)`` is the message and the code.

    Attributes:
        code: A stable identifier for logs, services and dashboards.
        name: The name of the lock concerned, or None.
    """

    code: str = "PAWLOCK_ERROR"
    args: tuple[Any, ...]

    def __init__(self, message: str = "", name: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self._made_of(message, name)

    def _made_of(self, *args: Any) -> None:
        # In every class what makes an equal one: Celery passes on the class and these alone, as JSON.
        self.args = args

    def __str__(self) -> str:
        return f"{self.text} [{self.code}]".lstrip()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    @property
    def text(self) -> str:
        """The text without the code."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the constructor: that of a class of the user's takes what it likes.
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[PawlockError], args: tuple[Any, ...], values: dict[str, Any]) -> PawlockError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(values)
    return error


class NotAcquired(PawlockError):
    """The lock was not granted, which is an ordinary outcome: another client holds it.

    Cause: another owner holds the lock. Solution: retry later, wait longer, or shorten the critical sections of other
    holders.

    Attributes:
        holder: The holder (``host:pid/thread``), or None if it is not known. Never a token.
    """

    code = "LOCK_NOT_ACQUIRED"

    def __init__(self, message: str = "", name: str | None = None, holder: str | None = None) -> None:
        super().__init__(message, name=name)
        self.holder = holder
        self._made_of(message, name, self.holder)


class AcquireTimeout(NotAcquired, TimeoutError):
    """The wait for the lock took longer than ``timeout``; the waiter has left the queue.

    Cause: the lock was held for longer than the caller would wait. Solution: use a longer ``timeout``, shorter
    critical sections or finer lock names; ``holder`` names the holder to check.

    Attributes:
        waited: Seconds waited.
        position: The place in the queue when it gave up (0 is next), or None if it never queued.
        outcomes: With several independent masters, the last answer of each, by its address; else empty.
    """

    code = "LOCK_TIMEOUT"

    def __init__(
        self,
        message: str = "",
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
        self._made_of(message, name, self.holder, self.waited, self.position, self.outcomes)


class QueueFull(NotAcquired):
    """The queue of this lock already has ``max_waiters`` waiters; this one was not added.

    Cause: the lock is requested more often than it is released. Solution: shed load, or raise ``max_waiters``.
    """

    code = "LOCK_QUEUE_FULL"


class DeadlockDetected(NotAcquired):
    """The wait could never end: the caller waits for itself, or for a waiter that waits for the caller.

    Cause: a plain ``lock`` was acquired again inside the ``with`` block that holds it, or waiters, possibly in other
    processes, wait for each other (detected after ``deadlock_after``). Solution: use ``rlock`` for re-entry, acquire
    several locks in one order, always pass a ``timeout``.

    Attributes:
        cycle: The lock names of the cycle in order, from the requested one back to it.
        waiters: The waiters of the cycle, the caller first: ``host:pid/thread``, the name, and since when (Unix time in
            seconds). Empty if the caller waits for itself.
    """

    code = "DEADLOCK"

    def __init__(
        self,
        message: str = "",
        name: str | None = None,
        holder: str | None = None,
        cycle: Sequence[str] = (),
        waiters: Sequence[tuple[str, str, float]] = (),
    ) -> None:
        super().__init__(message, name=name, holder=holder)
        self.cycle: tuple[str, ...] = tuple(cycle)
        self.waiters: tuple[tuple[str, str, float], ...] = tuple((who, lock, at) for who, lock, at in waiters)
        self._made_of(message, name, self.holder, self.cycle, self.waiters)


class ClientClosed(PawlockError):
    """The client was closed, before the call or while it waited.

    Cause: ``close()`` ran, or the ``with`` block of the client ended. Solution: create a new client.
    """

    code = "CLIENT_CLOSED"


_NOT_HELD: Mapping[str, str] = MappingProxyType(
    {
        "release": "UNLOCK_FAILED",
        "extend": "EXTEND_FAILED",
        "downgrade": "DOWNGRADE_FAILED",
        "detach": "DETACH_FAILED",
        "adopt": "ADOPT_FAILED",
        "lead": "NOT_THE_LEADER",
        "look up": "NO_CURRENT_LEASE",
    }
)
"""The code of each operation that a lease is needed for."""


class Reentered(PawlockError):
    """A signal handler, or a finaliser, called pawlock on top of a call of its own thread; nothing was done.

    Cause: the handler acquires or releases while the call that it interrupted is in the middle of that. Solution: set an
    event in the handler, or raise. ``close()`` may be called there, and whatever only reads a lease: ``lost``,
    ``state``, ``remaining()``, ``check()``.
    """

    code: str = "REENTERED"


class NotHeld(PawlockError):
    """The lease to release, extend or take away is not held, or no longer held; nothing on the server was changed.

    The code says what was tried: ``UNLOCK_FAILED`` for a release, ``EXTEND_FAILED`` (also ``renew`` of the service),
    ``DOWNGRADE_FAILED``, ``DETACH_FAILED``, ``ADOPT_FAILED``, ``NOT_THE_LEADER`` for what only the
    leader of an election may do, ``NO_CURRENT_LEASE`` when no decorated function runs.

    Cause: the lease was released already, it expired, or another process adopted it. Solution: release once; leave
    renewal on, or use a TTL that is longer than the work.

    Attributes:
        operation: ``release`` | ``extend`` | ``downgrade`` | ``detach`` | ``adopt`` | ``lead`` |
            ``look up``.
    """

    code: str = "UNLOCK_FAILED"

    def __init__(self, message: str = "", name: str | None = None, operation: str = "release") -> None:
        super().__init__(message, name=name)
        self.operation = operation
        self.code = _NOT_HELD.get(operation, type(self).code)
        self._made_of(message, name, self.operation)


_LEASE_LOST: Mapping[str, str] = MappingProxyType(
    {
        "expired": "WATCHDOG_RENEWAL_FAILED",
        "unreachable": "WATCHDOG_RENEWAL_FAILED",
        "taken": "LEASE_TAKEN",
        "data_lost": "LEASE_DATA_LOST",
        "quorum": "REDLOCK_QUORUM_LOST",
        "max_hold": "MAX_HOLD_EXCEEDED",
        "closed": "LEASE_CLOSED",
    }
)
"""The code of each reason for a loss."""


class LeaseLost(PawlockError):
    """The lease ended while its owner was still working; its work is no longer protected.

    The code follows the reason: ``WATCHDOG_RENEWAL_FAILED`` for ``expired`` and ``unreachable``, ``LEASE_TAKEN`` for
    ``taken``, ``LEASE_DATA_LOST`` for ``data_lost`` (the server came back without its data), ``MAX_HOLD_EXCEEDED`` for
    ``max_hold``, ``REDLOCK_QUORUM_LOST`` for ``quorum``, ``LEASE_CLOSED`` for ``closed``: released already,
    the client closed, or in a child after a fork.

    Cause: see ``reason``. Solution: stop the work and start again under a new lease; guard writes with the fencing
    token.

    Attributes:
        reason: ``expired`` | ``taken`` | ``data_lost`` | ``quorum`` | ``max_hold`` | ``unreachable`` | ``closed``.
    """

    code: str = "WATCHDOG_RENEWAL_FAILED"

    def __init__(self, message: str = "", name: str | None = None, reason: str = "expired") -> None:
        super().__init__(message, name=name)
        self.reason = reason
        self.code = _LEASE_LOST.get(reason, type(self).code)
        self._made_of(message, name, self.reason)


class StaleFence(PawlockError):
    """The protected resource has seen a higher fencing token: a newer holder has written to it.

    Cause: this holder was paused past its lease. Solution: abandon this attempt; the newer write is the valid one.

    Attributes:
        fence: The fencing token that was refused.
    """

    code = "CONCURRENT_MODIFICATION"

    def __init__(self, message: str = "", name: str | None = None, fence: int | None = None) -> None:
        super().__init__(message, name=name)
        self.fence = fence
        self._made_of(message, name, self.fence)


class ClockDrift(PawlockError):
    """The validity of a grant was used up before its answer arrived, several times in a row; each was released.

    A single server that answers late raises ``BackendUnavailable``: no request waits as long as the TTL for its answer.

    Cause: the process was paused between a request and its answer each time; with several independent masters, their
    answers took longer than the TTL, or ``drift_factor`` and ``drift_floor`` use it up. Solution: use a longer TTL,
    or a smaller drift; find out what pauses the process.

    Attributes:
        outcomes: With several independent masters, the answer of each, by its address; else empty.
    """

    code = "CLOCK_DRIFT"

    def __init__(
        self, message: str = "", name: str | None = None, outcomes: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, name=name)
        self.outcomes: dict[str, str] = dict(outcomes or {})
        self._made_of(message, name, self.outcomes)


class BackendError(PawlockError):
    """The server refused the request or could not be reached; this never means "held by another client"."""

    code = "REDIS_ERROR"


class BackendUnavailable(BackendError):
    """The server could not be reached, or did not answer, for as long as the caller was willing to retry.

    Also raised at once where no thread can start that would renew the lease: then nothing was asked of the server.

    Cause: a network fault, a restart, a failover, a wrong address. Solution: check the address and the server; raise
    ``unavailable_after`` so that it covers a failover.
    """

    code = "REDIS_CONNECTION_ERROR"


class BackendOutOfMemory(BackendError):
    """The server is out of memory and refuses new locks; renewal and release still work.

    Cause: ``maxmemory`` is reached with ``noeviction``. Solution: free memory, or use a separate server for locks.
    """

    code = "OOM"


class BackendReadOnly(BackendError):
    """The server is a replica, or does not accept writes now.

    Cause: the address is that of a replica, a failover demoted the server, too few replicas are connected
    (``NOREPLICAS``), or it could not save its data, as on a full disk (``MISCONF``). Nothing is renewed or released
    then. Solution: use the master's address; reconnect the replicas; free the disk, or let the server accept writes
    all the same (``stop-writes-on-bgsave-error no``).
    """

    code = "REDIS_READONLY"


class BackendDenied(BackendError):
    """The server refused the credentials, or its ACL forbids a command, key or channel that pawlock needs.

    Cause: the text names the command; of a key or a channel the server says only that it was one. Solution: correct the
    password, or give the user the rules that ``pawlock doctor --acl`` prints for the namespace.
    """

    code = "REDIS_DENIED"


class NotReplicated(BackendError):
    """Fewer replicas acknowledged the grant than ``replicas=`` asked for; the grant was released.

    Cause: replicas are missing or lag. Solution: repair replication, or require fewer.

    Attributes:
        acknowledged: How many replicas acknowledged.
        wanted: How many were required.
    """

    code = "NOT_REPLICATED"

    def __init__(
        self, message: str = "", name: str | None = None, acknowledged: int = 0, wanted: int = 0
    ) -> None:
        super().__init__(message, name=name)
        self.acknowledged = acknowledged
        self.wanted = wanted
        self._made_of(message, name, self.acknowledged, self.wanted)


class QuorumNotReached(BackendError):
    """Too few of the independent masters granted the lock, and the missing votes are failures.

    Cause: a majority of the masters is down, slow, or restarted recently. Solution: see ``outcomes``; restore the
    masters. A master that restarted votes again after ``max_ttl``; for new masters pass ``RedlockOptions(fresh=True)``.

    Attributes:
        outcomes: The answer of each node, by its address.
    """

    code = "REDLOCK_QUORUM_NOT_REACHED"

    def __init__(
        self, message: str = "", name: str | None = None, outcomes: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, name=name)
        self.outcomes: dict[str, str] = dict(outcomes or {})
        self._made_of(message, name, self.outcomes)


class ScriptError(BackendError):
    """A script of pawlock failed on the server, or another wire version of pawlock uses this lock.

    Cause: see the text. Solution: use one wire version for each lock; otherwise report a bug.
    """

    code = "LUA_SCRIPT_ERROR"


class WrongKey(BackendError):
    """The key of this lock has a value that is not pawlock's; it was not changed.

    The text says what is there: a lock of Redisson, say, which pawlock can share.

    Cause: another program uses the key. Solution: use another lock name or namespace.
    """

    code = "WRONG_KEY"


class NotSupported(PawlockError):
    """The request is refused because this server, topology or version of pawlock cannot do it safely.

    Cause: see the text. A command that "it does not know" is disabled or renamed on the server, or a proxy in between does
    not pass it on. Solution: as the text says; give pawlock a connection that passes on ``EVAL`` and ``EVALSHA``.
    """

    code = "NOT_SUPPORTED"


class ConfigurationError(PawlockError, ValueError):
    """A value can never work. Raised before anything is sent; the text says which, where, and how to fix it."""

    code = "CONFIGURATION"


class LimitMismatch(ConfigurationError):
    """The number that this client was configured with differs from the one on the server.

    Cause: two programs use different numbers: of permits for one semaphore, the count of one latch, the parties of one
    barrier; or more permits were requested at once than there are now. Solution: use one number everywhere; to change
    it while programs run, call ``set_limit()`` of the semaphore or ``reset()`` of the latch.

    Attributes:
        limit: The number on the server, or None.
        permits: The number that this client was configured with, or None.
    """

    code = "LIMIT_MISMATCH"

    def __init__(
        self,
        message: str = "",
        name: str | None = None,
        limit: int | None = None,
        permits: int | None = None,
    ) -> None:
        super().__init__(message, name=name)
        self.limit = limit
        self.permits = permits
        self._made_of(message, name, self.limit, self.permits)
