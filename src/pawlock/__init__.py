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
    from pawlock.aio.client import AsyncClient
    from pawlock.aio.election import AsyncElection
    from pawlock.aio.gates import AsyncBarrier, AsyncLatch
    from pawlock.aio.lock import AsyncLease, AsyncLock, AsyncWriteLease
    from pawlock.aio.multi import AsyncMultiLease, AsyncMultiLock
    from pawlock.aio.once import AsyncOnce, AsyncStarted
    from pawlock.aio.permits import AsyncRWLock, AsyncSemaphore, AsyncWriteLock
    from pawlock.aio.service import AsyncLockService
    from pawlock.core.key import Key
    from pawlock.core.options import LockOptions
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
        Finding,
        Forced,
        HolderInfo,
        Leader,
        LeaseState,
        LockInfo,
        LossReason,
        NodeVote,
        QuorumInfo,
        Running,
        ServerReport,
        ServiceMetrics,
        ServiceStats,
        Severity,
        WaiterInfo,
    )
    from pawlock.redlock.options import RedlockOptions
    from pawlock.sync.client import Client
    from pawlock.sync.election import Election
    from pawlock.sync.gates import Barrier, Latch
    from pawlock.sync.lock import Lease, Lock, WriteLease
    from pawlock.sync.multi import MultiLease, MultiLock
    from pawlock.sync.once import Once, Started
    from pawlock.sync.permits import RWLock, Semaphore, WriteLock
    from pawlock.sync.service import LockService
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
    "Finding",
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
    "ServerReport",
    "ServiceMetrics",
    "ServiceOptions",
    "ServiceStats",
    "Severity",
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
    "pawlock.aio.client": ("AsyncClient",),
    "pawlock.aio.election": ("AsyncElection",),
    "pawlock.aio.gates": ("AsyncBarrier", "AsyncLatch"),
    "pawlock.aio.lock": ("AsyncLease", "AsyncLock", "AsyncWriteLease"),
    "pawlock.aio.multi": ("AsyncMultiLease", "AsyncMultiLock"),
    "pawlock.aio.once": ("AsyncOnce", "AsyncStarted"),
    "pawlock.aio.permits": ("AsyncRWLock", "AsyncSemaphore", "AsyncWriteLock"),
    "pawlock.aio.service": ("AsyncLockService",),
    "pawlock.core.key": ("Key",),
    "pawlock.core.options": ("LockOptions",),
    "pawlock.topology.credentials": ("CredentialProvider",),
    "pawlock._service": ("ServiceOptions",),
    "pawlock.redlock.options": ("RedlockOptions",),
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
        "Finding",
        "Forced",
        "HolderInfo",
        "Leader",
        "LeaseState",
        "LockInfo",
        "LossReason",
        "NodeVote",
        "QuorumInfo",
        "Running",
        "ServerReport",
        "ServiceMetrics",
        "ServiceStats",
        "Severity",
        "WaiterInfo",
    ),
    "pawlock.sync.client": ("Client",),
    "pawlock.sync.election": ("Election",),
    "pawlock.sync.gates": ("Barrier", "Latch"),
    "pawlock.sync.lock": ("Lease", "Lock", "WriteLease"),
    "pawlock.sync.multi": ("MultiLease", "MultiLock"),
    "pawlock.sync.once": ("Once", "Started"),
    "pawlock.sync.permits": ("RWLock", "Semaphore", "WriteLock"),
    "pawlock.sync.service": ("LockService",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        from pawlock._hints import missing

        raise AttributeError(missing(__name__, name, __all__), name=name)
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


logging.getLogger("pawlock").addHandler(logging.NullHandler())
