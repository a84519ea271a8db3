"""The colour of threads: thin shells; what happens is decided in ``pawl.core``."""

from pawl.sync.client import Client
from pawl.sync.lease import Lease, Lost
from pawl.sync.lock import Lock
from pawl.sync.semaphore import Semaphore

__all__ = ["Client", "Lease", "Lock", "Lost", "Semaphore"]
