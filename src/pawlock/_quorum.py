"""What a client of one server, or of several independent masters, is made of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pawlock import embedded
from pawlock._described import Origin
from pawlock._factory import Settings, check_for_quorum
from pawlock._target import find_target, shown_of
from pawlock._warn import warn
from pawlock.errors import ConfigurationError, NotSupported
from pawlock.primitives.probe import probe
from pawlock.redlock.options import RedlockOptions
from pawlock.runtimes.choice import asyncio_runtime, thread_runtime
from pawlock.topology.endpoint import ClusterNodes, Masters, Place, Target
from pawlock.topology.redlock import quorum_warning

if TYPE_CHECKING:
    import asyncio

    from pawlock.redlock.nodes import KnownMasters
    from pawlock.runtimes.aio import AsyncioRuntime
    from pawlock.runtimes.threads import ThreadRuntime

__all__ = ["Destination", "for_loop", "for_threads"]


class Destination:
    """What a client connects to: what it was given, else what the environment names when the client is first used.

    A module makes its client when it is imported, before the program, or a test, has set ``PAWLOCK_URL``. What the
    environment says by then is checked all the same: a mistake is found early, and locks are made before the first use.

    Args:
        origin: What the client was made with.
        settings: Its settings, which differ by what it connects to.

    Raises:
        ConfigurationError: An address or an option that can never work.
        NotSupported: A topology that this version does not have.
    """

    def __init__(self, origin: Origin, settings: Settings) -> None:
        self._origin = origin
        self._settings = settings
        self._url: str | None = None
        self._target: Target | None = None
        # Where no server may be taken by itself the first use says so, unless there is one by then.
        if origin[0] is not None or "PAWLOCK_URL" in os.environ or not embedded.refuse_reason(os.environ):
            self._target = self._look(made=False)

    @property
    def shown(self) -> str:
        """The address without credentials; "" as long as nothing was found."""
        return shown_of(self._target)

    def find(self, *, settled: bool = False) -> Target:
        """What an engine of the client connects to.

        Args:
            settled: Whether the client has another engine already: all its engines connect to the same.

        Raises:
            ConfigurationError: There is no server, or one for which locks of the client would have been made otherwise.
        """
        changed = self._origin[0] is None and os.environ.get("PAWLOCK_URL") != self._url
        if self._target is None or (changed and not settled):
            self._target = self._look(made=True)
        return self._target

    def _look(self, *, made: bool) -> Target:
        given, settings = self._origin[1], self._settings
        url, found = os.environ.get("PAWLOCK_URL"), find_target(self._origin[0], given["credentials"])
        if made and isinstance(found, Masters) is (settings.redlock is None):
            # Locks may have been made, with requests for a server of that kind.
            raise ConfigurationError(
                "PAWLOCK_URL names another kind of server than when this client was made: set it before"
            )
        settings.redlock = _check_options(given["redlock"], found, settings)
        settings.place = found if isinstance(found, Place) else None
        settings.check_lives(settings.options)
        self._url = url
        return found


def _check_options(given: object, target: Target, settings: Settings) -> RedlockOptions | None:
    """The options of a client's masters; None with one server.

    Raises:
        ConfigurationError: They are no ``RedlockOptions``, or given for one server, or its ttl is too long for them.
        NotSupported: Options of single servers, which several masters cannot keep.
    """
    if given is not None and not isinstance(given, RedlockOptions):
        raise ConfigurationError(f"redlock must be pawlock.RedlockOptions(…), got {given!r:.40}")
    settings.sharded = isinstance(target, ClusterNodes)
    if not isinstance(target, Masters):
        if given is not None:
            raise ConfigurationError(
                "redlock= needs a list of masters or a redlock:// URL, and this is a single server"
            )
        return None
    if warning := quorum_warning(len(target.nodes)):
        warn(warning)
    from pawlock.redlock.requests import RedlockEngine

    for name in ("request_timeout", "connect_timeout"):
        if getattr(settings.options, name) is not None:
            raise NotSupported(
                f"{name} cannot be used with independent masters (Redlock), each of which has its own time to answer: "
                f"use redlock=pawlock.RedlockOptions(node_timeout=…), and unset PAWLOCK_{name.upper()} if it comes from there"
            )
    options = given or RedlockOptions()
    check_for_quorum(options, settings.options)
    settings.engine = RedlockEngine(options)
    return options


def _known(target: Masters, options: RedlockOptions, settings: Settings) -> KnownMasters:
    from pawlock.redlock.nodes import KnownMasters

    if settings.masters is None:
        # One for the client: what one of its threads or loops learns of a restart, the others know as well.
        settings.masters = KnownMasters(target.nodes, options, probe(settings.namespace))
    return settings.masters


def for_threads(target: Target, settings: Settings) -> ThreadRuntime:
    """The runtime of a client for threads."""
    options, prefix = settings.redlock, settings.wake_prefix
    if options is None or not isinstance(target, Masters):
        return thread_runtime(target, prefix)
    from pawlock.redlock.threads import RedlockThreads

    return RedlockThreads(_known(target, options, settings))


def for_loop(loop: asyncio.AbstractEventLoop, target: Target, settings: Settings) -> AsyncioRuntime:
    """The runtime of a client for one event loop."""
    options, prefix = settings.redlock, settings.wake_prefix
    if options is None or not isinstance(target, Masters):
        return asyncio_runtime(loop, target, prefix)
    from pawlock.redlock.tasks import RedlockTasks

    return RedlockTasks(loop, _known(target, options, settings))
