"""Distributed locks for Python on Redis and Valkey, with fencing end to end.

``connect`` gives a client for threads, ``connect_async`` one for asyncio; both spell everything alike.
"""

from __future__ import annotations

import logging

from pawl._connect import connect, connect_async
from pawl.aio import AsyncClient, AsyncLease, AsyncLock
from pawl.core.options import LockOptions
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
from pawl.model import LeaseState, LockInfo, LossReason, WaiterInfo
from pawl.sync import Client, Lease, Lock

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "AsyncClient",
    "AsyncLease",
    "AsyncLock",
    "BackendDenied",
    "BackendError",
    "BackendOutOfMemory",
    "BackendReadOnly",
    "BackendUnavailable",
    "Client",
    "ClientClosed",
    "ClockDrift",
    "ConfigurationError",
    "DeadlockDetected",
    "Lease",
    "LeaseLost",
    "LeaseState",
    "Lock",
    "LockInfo",
    "LockOptions",
    "LossReason",
    "NotAcquired",
    "NotHeld",
    "NotReplicated",
    "NotSupported",
    "PawlError",
    "QueueFull",
    "QuorumNotReached",
    "ScriptError",
    "StaleFence",
    "WaiterInfo",
    "WrongKey",
    "__version__",
    "connect",
    "connect_async",
]

logging.getLogger("pawl").addHandler(logging.NullHandler())
