"""The sync API: thin shells; the logic is in ``pawlock.core``."""

from pawlock.sync.barrier import Barrier
from pawlock.sync.client import Client
from pawlock.sync.election import Election, Leaders
from pawlock.sync.latch import Latch
from pawlock.sync.lease import Lease, Lost, WriteLease
from pawlock.sync.lock import Lock
from pawlock.sync.multi import MultiLease, MultiLock
from pawlock.sync.once import Once, Started
from pawlock.sync.rwlock import RWLock, WriteLock
from pawlock.sync.semaphore import Semaphore
from pawlock.sync.service import LockService

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
