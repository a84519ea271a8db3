"""The colour of asyncio: thin shells; what happens is decided in ``pawl.core``."""

from pawl.aio.client import AsyncClient
from pawl.aio.lease import AsyncLease, AsyncLost
from pawl.aio.lock import Acquiring, AsyncLock
from pawl.aio.semaphore import AsyncSemaphore

__all__ = ["Acquiring", "AsyncClient", "AsyncLease", "AsyncLock", "AsyncLost", "AsyncSemaphore"]
