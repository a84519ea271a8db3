"""What a client of several independent masters is made of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pawlock._factory import Settings, check_for_quorum
from pawlock._warn import warn
from pawlock.core.protocol.options import DAY_MS
from pawlock.core.protocol.redlock_options import RedlockOptions
from pawlock.core.quorum.nodes import Incarnations, KnownNodes
from pawlock.errors import ConfigurationError, NotSupported
from pawlock.primitives.probe import probe
from pawlock.primitives.redis import REDIS
from pawlock.runtimes.choice import asyncio_runtime, thread_runtime
from pawlock.topology.endpoint import ClusterNodes, Masters, Place, Service, Target
from pawlock.topology.redlock import quorum_warning

if TYPE_CHECKING:
    import asyncio

    from pawlock.core.protocol.engine import Request, ServerEngine
    from pawlock.core.protocol.scripts import Script
    from pawlock.core.state.reports import KeyExplainer
    from pawlock.runtimes.aio import AsyncioRuntime
    from pawlock.runtimes.threads import ThreadRuntime

__all__ = ["check_options", "explain_keys_for", "for_loop", "for_threads", "probe_for"]


def check_options(given: object, target: Target, settings: Settings) -> RedlockOptions | None:
    """The options of a client's masters; None with one server.

    Raises:
        ConfigurationError: They are no ``RedlockOptions``, or given for one server, or its ttl is too long for them.
        NotSupported: Histories are to be kept, which several masters cannot.
    """
    if given is not None and not isinstance(given, RedlockOptions):
        raise ConfigurationError(f"redlock must be pawlock.RedlockOptions(…), got {given!r:.40}")
    if isinstance(target, Service):
        if not settings.namespace:
            raise ConfigurationError("namespace must not be empty for a pawlock service: pass a namespace")
        if settings.options.given.fence_ms > DAY_MS:
            raise ConfigurationError("fence_ttl must be at most 86400 s (a day) for a pawlock service")
        settings.remote = True
    settings.sharded = isinstance(target, ClusterNodes)
    settings.engine = _engine_of(target)
    if not isinstance(target, Masters):
        if given is not None:
            raise ConfigurationError(
                "redlock= needs a list of masters or a redlock:// URL, and this is a single server"
            )
        return None
    if settings.history:
        raise NotSupported("history is not supported on independent masters (Redlock): leave it 0")
    if warning := quorum_warning(len(target.nodes)):
        warn(warning)
    options = given or RedlockOptions()
    check_for_quorum(options, settings.options)
    return options


def _engine_of(target: Target) -> ServerEngine:
    if isinstance(target, Masters):
        from pawlock.primitives.masters import MASTERS

        return MASTERS
    if isinstance(target, Service):
        from pawlock.primitives.served import SERVED

        return SERVED
    return (isinstance(target, Place) and target.engine) or REDIS


def explain_keys_for(settings: Settings) -> KeyExplainer | None:
    """What asks for the kinds of values that keys have; None for a client of the service, which asks itself."""
    return None if settings.remote else settings.engine.explain_keys


def probe_for(settings: Settings) -> Callable[..., Request] | None:
    """The check of the server before its first use; None for a client of the service, which checks it itself."""
    found = partial(settings.engine.probe, settings.namespace)
    return None if settings.remote or found() is None else found


def _known_nodes(target: Masters, options: RedlockOptions, settings: Settings) -> KnownNodes:
    incarnations = settings.incarnations
    if incarnations is None:
        # One for the client: what one of its threads or loops learns of a restart, the others know as well.
        incarnations = settings.incarnations = Incarnations(
            tuple(node.shown for node in target.nodes),
            options.max_ttl,
            fresh=options.fresh,
            guard=threading.RLock(),
            node_timeout=options.node_timeout,
        )
    return KnownNodes(incarnations)


def _scripts() -> tuple[Script, ...]:
    from pawlock.primitives.redlock import SCRIPTS

    return SCRIPTS


def for_threads(target: Target, settings: Settings) -> ThreadRuntime:
    """The runtime of a client for threads."""
    options, prefix = settings.redlock, settings.wake_prefix
    if isinstance(target, Service):
        from pawlock.runtimes.http import HttpThreads

        return HttpThreads(target, settings.service_namespace)
    if options is None or not isinstance(target, Masters):
        return thread_runtime(target, prefix)
    from pawlock.runtimes.quorum_threads import QuorumThreadRuntime

    known_nodes = _known_nodes(target, options, settings)
    return QuorumThreadRuntime(target.nodes, prefix, known_nodes, probe(settings.namespace), _scripts())


def for_loop(loop: asyncio.AbstractEventLoop, target: Target, settings: Settings) -> AsyncioRuntime:
    """The runtime of a client for one event loop."""
    options, prefix = settings.redlock, settings.wake_prefix
    if isinstance(target, Service):
        from pawlock.runtimes.http import HttpAsyncio

        return HttpAsyncio(loop, target, settings.service_namespace)
    if options is None or not isinstance(target, Masters):
        return asyncio_runtime(loop, target, prefix)
    from pawlock.runtimes.quorum_aio import QuorumAsyncioRuntime

    known_nodes = _known_nodes(target, options, settings)
    return QuorumAsyncioRuntime(
        loop, target.nodes, prefix, known_nodes, probe(settings.namespace), _scripts()
    )
