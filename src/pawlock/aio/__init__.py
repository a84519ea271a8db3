"""The async API: thin shells; the logic is in ``pawlock.core``."""

from pawlock.aio.acquiring import Acquiring
from pawlock.aio.barrier import AsyncBarrier
from pawlock.aio.client import AsyncClient
from pawlock.aio.election import AsyncElection, AsyncLeaders
from pawlock.aio.latch import AsyncLatch
from pawlock.aio.lease import AsyncLease, AsyncLost, AsyncWriteLease
from pawlock.aio.lock import AsyncLock
from pawlock.aio.multi import AsyncMultiLease, AsyncMultiLock, MultiAcquiring
from pawlock.aio.once import AsyncOnce, AsyncStarted
from pawlock.aio.rwlock import AsyncRWLock, AsyncWriteLock
from pawlock.aio.semaphore import AsyncSemaphore
from pawlock.aio.service import AsyncLockService

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
