"""Which runtime serves which topology: chosen once, when a client is made, so that the hot path has no branches.

Only the one that is chosen is loaded: all of them would take as long to load as the rest of pawlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawlock.errors import NotSupported
from pawlock.topology.endpoint import ClusterNodes, Place, Sentinels, Target

if TYPE_CHECKING:
    import asyncio

    from pawlock.runtimes.aio import AsyncioRuntime
    from pawlock.runtimes.threads import ThreadRuntime

__all__ = ["asyncio_runtime", "thread_runtime"]


def thread_runtime(target: Target, wake_prefix: str) -> ThreadRuntime:
    """A runtime of threads for what a client connects to; several masters at once are not its business.

    Raises:
        NotSupported: They are that.
    """
    if isinstance(target, Sentinels):
        from pawlock.runtimes.sentinel import SentinelThreads

        return SentinelThreads(target, wake_prefix)
    if isinstance(target, ClusterNodes):
        from pawlock.runtimes.cluster import ClusterThreads

        return ClusterThreads(target, wake_prefix)
    if isinstance(target, Place):
        return cast("ThreadRuntime", target.threads(wake_prefix))
    if callable(target):
        from pawlock.runtimes.threads import ThreadRuntime

        return ThreadRuntime(target, wake_prefix)
    raise NotSupported(f"{target.shown} is not a single server, a Sentinel group or a cluster")


def asyncio_runtime(loop: asyncio.AbstractEventLoop, target: Target, wake_prefix: str) -> AsyncioRuntime:
    """A runtime of asyncio for what a client connects to; otherwise as ``thread_runtime``."""
    if isinstance(target, Sentinels):
        from pawlock.runtimes.sentinel import SentinelAsyncio

        return SentinelAsyncio(loop, target, wake_prefix)
    if isinstance(target, ClusterNodes):
        from pawlock.runtimes.cluster import ClusterAsyncio

        return ClusterAsyncio(loop, target, wake_prefix)
    if isinstance(target, Place):
        return cast("AsyncioRuntime", target.tasks(loop, wake_prefix))
    if callable(target):
        from pawlock.runtimes.aio import AsyncioRuntime

        return AsyncioRuntime(loop, target, wake_prefix)
    raise NotSupported(f"{target.shown} is not a single server, a Sentinel group or a cluster")
