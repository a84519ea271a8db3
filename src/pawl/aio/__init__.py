"""The async API: thin shells; the logic is in ``pawl.core``."""

from pawl.aio.acquiring import Acquiring
from pawl.aio.barrier import AsyncBarrier
from pawl.aio.client import AsyncClient
from pawl.aio.election import AsyncElection, AsyncLeaders
from pawl.aio.latch import AsyncLatch
from pawl.aio.lease import AsyncLease, AsyncLost, AsyncWriteLease
from pawl.aio.lock import AsyncLock
from pawl.aio.multi import AsyncMultiLease, AsyncMultiLock, MultiAcquiring
from pawl.aio.once import AsyncOnce, AsyncStarted
from pawl.aio.rwlock import AsyncRWLock, AsyncWriteLock
from pawl.aio.semaphore import AsyncSemaphore
from pawl.aio.service import AsyncLockService

__all__ = [
    "Acquiring",
    "AsyncBarrier",
    "AsyncClient",
    "AsyncElection",
    "AsyncLatch",
    "AsyncLeaders",
    "AsyncLease",
    "AsyncLock",
    "AsyncLockService",
    "AsyncLost",
    "AsyncMultiLease",
    "AsyncMultiLock",
    "AsyncOnce",
    "AsyncRWLock",
    "AsyncSemaphore",
    "AsyncStarted",
    "AsyncWriteLease",
    "AsyncWriteLock",
    "MultiAcquiring",
]
