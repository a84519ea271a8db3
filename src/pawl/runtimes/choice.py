"""Which runtime serves which topology: chosen once, when a client is made, so that the hot path has no branches."""

from __future__ import annotations

import asyncio
from typing import cast

from pawl.errors import NotSupported
from pawl.runtimes.aio import AsyncioRuntime
from pawl.runtimes.cluster import ClusterAsyncio, ClusterThreads
from pawl.runtimes.sentinel import SentinelAsyncio, SentinelThreads
from pawl.runtimes.threads import ThreadRuntime
from pawl.topology.endpoint import ClusterNodes, Place, Sentinels, Target

__all__ = ["asyncio_runtime", "thread_runtime"]


def thread_runtime(target: Target, wake_prefix: str) -> ThreadRuntime:
    """A runtime of threads for what a client connects to; several masters at once are not its business.

    Raises:
        NotSupported: They are that.
    """
    if isinstance(target, Sentinels):
        return SentinelThreads(target, wake_prefix)
    if isinstance(target, ClusterNodes):
        return ClusterThreads(target, wake_prefix)
    if isinstance(target, Place):
        return cast("ThreadRuntime", target.threads(wake_prefix))
    if callable(target):
        return ThreadRuntime(target, wake_prefix)
    raise NotSupported(f"{target.shown} is not served by one node at a time")


def asyncio_runtime(loop: asyncio.AbstractEventLoop, target: Target, wake_prefix: str) -> AsyncioRuntime:
    """A runtime of asyncio for what a client connects to; otherwise as ``thread_runtime``."""
    if isinstance(target, Sentinels):
        return SentinelAsyncio(loop, target, wake_prefix)
    if isinstance(target, ClusterNodes):
        return ClusterAsyncio(loop, target, wake_prefix)
    if isinstance(target, Place):
        return cast("AsyncioRuntime", target.tasks(loop, wake_prefix))
    if callable(target):
        return AsyncioRuntime(loop, target, wake_prefix)
    raise NotSupported(f"{target.shown} is not served by one node at a time")
