"""Which route serves which topology. Only what is chosen is loaded: all would take as long as the rest of pawlock."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pawlock.errors import NotSupported
from pawlock.topology.endpoint import ClusterNodes, Place, Sentinels, Target

if TYPE_CHECKING:
    import asyncio

    from pawlock.runtimes.aio import AsyncioRuntime
    from pawlock.runtimes.threads import ThreadRuntime
    from pawlock.transport.route import Route

__all__ = ["asyncio_runtime", "thread_runtime"]


def thread_runtime(target: Target, wake_prefix: str) -> ThreadRuntime:
    """A runtime of threads for what a client connects to; several masters at once are not its business.

    Raises:
        NotSupported: They are that.
    """
    if isinstance(target, Place):
        return cast("ThreadRuntime", target.threads(wake_prefix))
    from pawlock.runtimes.threads import ThreadRuntime

    return ThreadRuntime(_route(target), wake_prefix)


def asyncio_runtime(loop: asyncio.AbstractEventLoop, target: Target, wake_prefix: str) -> AsyncioRuntime:
    """A runtime of asyncio for what a client connects to; otherwise as ``thread_runtime``."""
    if isinstance(target, Place):
        return cast("AsyncioRuntime", target.tasks(loop, wake_prefix))
    from pawlock.runtimes.aio import AsyncioRuntime

    return AsyncioRuntime(loop, _route(target), wake_prefix)


def _route(target: Target) -> Route:
    if isinstance(target, Sentinels):
        from pawlock.transport.sentinel import SentinelRoute

        return SentinelRoute(target)
    if isinstance(target, ClusterNodes):
        from pawlock._system import now
        from pawlock.transport.routing import Router

        return Router(target, now)
    if callable(target):
        from pawlock.transport.route import Route

        return Route(target)
    raise NotSupported(f"{target.shown} is not a single server, a Sentinel group or a cluster")
