"""The sync API: thin shells; the logic is in ``pawl.core``."""

from pawl.sync.barrier import Barrier
from pawl.sync.client import Client
from pawl.sync.election import Election, Leaders
from pawl.sync.latch import Latch
from pawl.sync.lease import Lease, Lost, WriteLease
from pawl.sync.lock import Lock
from pawl.sync.multi import MultiLease, MultiLock
from pawl.sync.once import Once, Started
from pawl.sync.rwlock import RWLock, WriteLock
from pawl.sync.semaphore import Semaphore
from pawl.sync.service import LockService

__all__ = [
    "Barrier",
    "Client",
    "Election",
    "Latch",
    "Leaders",
    "Lease",
    "Lock",
    "LockService",
    "Lost",
    "MultiLease",
    "MultiLock",
    "Once",
    "RWLock",
    "Semaphore",
    "Started",
    "WriteLease",
    "WriteLock",
]
