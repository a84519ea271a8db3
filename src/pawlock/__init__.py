"""Distributed locks for Python on Redis and Valkey, with fencing end to end.

``connect`` gives a client for threads, ``connect_async`` one for asyncio; both spell everything alike.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pawlock._connect import connect, connect_async
    from pawlock._decorate import current_lease
    from pawlock._service import ServiceOptions
    from pawlock.aio import (
        AsyncBarrier,
        AsyncClient,
        AsyncElection,
        AsyncLatch,
        AsyncLease,
        AsyncLock,
        AsyncLockService,
        AsyncMultiLease,
        AsyncMultiLock,
        AsyncOnce,
        AsyncRWLock,
        AsyncSemaphore,
        AsyncStarted,
        AsyncWriteLease,
        AsyncWriteLock,
    )
    from pawlock.core.protocol.key import Key
    from pawlock.core.protocol.options import LockOptions
    from pawlock.core.protocol.redlock_options import RedlockOptions
    from pawlock.errors import (
        AcquireTimeout,
        BackendDenied,
        BackendError,
        BackendOutOfMemory,
        BackendReadOnly,
        BackendUnavailable,
        ClientClosed,
        ClockDrift,
        ConfigurationError,
        DeadlockDetected,
        LeaseLost,
        LimitMismatch,
        NotAcquired,
        NotHeld,
        NotReplicated,
        NotSupported,
        PawlockError,
        QueueFull,
        QuorumNotReached,
        Reentered,
        ScriptError,
        StaleFence,
        WrongKey,
    )
    from pawlock.model import (
        AuditEntry,
        Done,
        Forced,
        HolderInfo,
        Leader,
        LeaseState,
        LockInfo,
        LossReason,
        NodeVote,
        QuorumInfo,
        Running,
        ServiceMetrics,
        ServiceStats,
        WaiterInfo,
    )
    from pawlock.sync import (
        Barrier,
        Client,
        Election,
        Latch,
        Lease,
        Lock,
        LockService,
        MultiLease,
        MultiLock,
        Once,
        RWLock,
        Semaphore,
        Started,
        WriteLease,
        WriteLock,
    )
    from pawlock.topology.credentials import CredentialProvider

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "AsyncBarrier",
    "AsyncClient",
    "AsyncElection",
    "AsyncLatch",
    "AsyncLease",
    "AsyncLock",
    "AsyncLockService",
    "AsyncMultiLease",
    "AsyncMultiLock",
    "AsyncOnce",
    "AsyncRWLock",
    "AsyncSemaphore",
    "AsyncStarted",
    "AsyncWriteLease",
    "AsyncWriteLock",
    "AuditEntry",
    "BackendDenied",
    "BackendError",
    "BackendOutOfMemory",
    "BackendReadOnly",
    "BackendUnavailable",
    "Barrier",
    "Client",
    "ClientClosed",
    "ClockDrift",
    "ConfigurationError",
    "CredentialProvider",
    "DeadlockDetected",
    "Done",
    "Election",
    "Forced",
    "HolderInfo",
    "Key",
    "Latch",
    "Leader",
    "Lease",
    "LeaseLost",
    "LeaseState",
    "LimitMismatch",
    "Lock",
    "LockInfo",
    "LockOptions",
    "LockService",
    "LossReason",
    "MultiLease",
    "MultiLock",
    "NodeVote",
    "NotAcquired",
    "NotHeld",
    "NotReplicated",
    "NotSupported",
    "Once",
    "PawlockError",
    "QueueFull",
    "QuorumInfo",
    "QuorumNotReached",
    "RWLock",
    "RedlockOptions",
    "Reentered",
    "Running",
    "ScriptError",
    "Semaphore",
    "ServiceMetrics",
    "ServiceOptions",
    "ServiceStats",
    "StaleFence",
    "Started",
    "WaiterInfo",
    "WriteLease",
    "WriteLock",
    "WrongKey",
    "__version__",
    "connect",
    "connect_async",
    "current_lease",
]

# Loaded when first asked for: a command that only prints its help needs neither asyncio nor a Redis client.
_HOMES = {
    "pawlock._connect": ("connect", "connect_async"),
    "pawlock._decorate": ("current_lease",),
    "pawlock.aio": (
        "AsyncBarrier",
        "AsyncClient",
        "AsyncElection",
        "AsyncLatch",
        "AsyncLease",
        "AsyncLock",
        "AsyncLockService",
        "AsyncMultiLease",
        "AsyncMultiLock",
        "AsyncOnce",
        "AsyncRWLock",
        "AsyncSemaphore",
        "AsyncStarted",
        "AsyncWriteLease",
        "AsyncWriteLock",
    ),
    "pawlock.core.protocol.key": ("Key",),
    "pawlock.core.protocol.options": ("LockOptions",),
    "pawlock.topology.credentials": ("CredentialProvider",),
    "pawlock._service": ("ServiceOptions",),
    "pawlock.core.protocol.redlock_options": ("RedlockOptions",),
    "pawlock.errors": (
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
    ),
    "pawlock.model": (
        "AuditEntry",
        "Done",
        "Forced",
        "HolderInfo",
        "Leader",
        "LeaseState",
        "LockInfo",
        "LossReason",
        "NodeVote",
        "QuorumInfo",
        "Running",
        "ServiceMetrics",
        "ServiceStats",
        "WaiterInfo",
    ),
    "pawlock.sync": (
        "Barrier",
        "Client",
        "Election",
        "Latch",
        "Lease",
        "Lock",
        "LockService",
        "MultiLease",
        "MultiLock",
        "Once",
        "RWLock",
        "Semaphore",
        "Started",
        "WriteLease",
        "WriteLock",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


logging.getLogger("pawlock").addHandler(logging.NullHandler())
