"""Distributed locks for Python on Redis and Valkey, with fencing end to end.

``connect`` gives a client for threads, ``connect_async`` one for asyncio; both spell everything alike.
"""

from __future__ import annotations

import logging
from importlib import import_module
from os import path as _path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pawl._connect import connect, connect_async
    from pawl._decorate import current_lease
    from pawl._service import ServiceOptions
    from pawl.aio import (
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
    from pawl.core.protocol.key import Key
    from pawl.core.protocol.options import LockOptions
    from pawl.core.protocol.redlock_options import RedlockOptions
    from pawl.errors import (
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
        PawlError,
        QueueFull,
        QuorumNotReached,
        ScriptError,
        StaleFence,
        WrongKey,
    )
    from pawl.model import (
        AuditEntry,
        Done,
        Forced,
        HistoryEntry,
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
    from pawl.sync import (
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
    from pawl.topology.credentials import CredentialProvider

# Looked for at import, one call: pip lets two distributions write into one folder, and either breaks the other.
# `os.path`, since pathlib is not imported yet and takes longer than all the rest here.
if _path.exists(_path.join(__path__[0], "linkedin.py")):  # noqa: PTH110, PTH118
    raise ImportError(
        f"{__path__[0]} has files of another distribution that is also called 'pawl'; this one is 'pawlock'. "
        "Run: pip uninstall pawl pawlock; pip install pawlock"
    )

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
    "HistoryEntry",
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
    "PawlError",
    "QueueFull",
    "QuorumInfo",
    "QuorumNotReached",
    "RWLock",
    "RedlockOptions",
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
    "pawl._connect": ("connect", "connect_async"),
    "pawl._decorate": ("current_lease",),
    "pawl.aio": (
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
    "pawl.core.protocol.key": ("Key",),
    "pawl.core.protocol.options": ("LockOptions",),
    "pawl.topology.credentials": ("CredentialProvider",),
    "pawl._service": ("ServiceOptions",),
    "pawl.core.protocol.redlock_options": ("RedlockOptions",),
    "pawl.errors": (
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
    ),
    "pawl.model": (
        "AuditEntry",
        "Done",
        "Forced",
        "HistoryEntry",
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
    "pawl.sync": (
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


logging.getLogger("pawl").addHandler(logging.NullHandler())
