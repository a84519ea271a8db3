"""Both runtimes behind Sentinels: each connection goes to the present master, and all move when it does."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from weakref import ref

from pawlock.core.protocol.runtime import Fault, FaultKind, run
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.runtimes.shared import living
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.endpoint import Endpoint, Sentinels
from pawlock.transport.sentinel import MasterFinder, MasterWatch, ask_async, ask_sync

__all__ = ["SentinelAsyncio", "SentinelThreads"]

_PATIENCE = 0.5


class SentinelThreads(ThreadRuntime):
    """Threads whose server is the master that the Sentinels name."""

    def __init__(self, target: Sentinels, wake_prefix: str) -> None:
        super().__init__(lambda: target.master, wake_prefix)
        self._finder = MasterFinder(target)
        self._watch: MasterWatch | None = None
        self._master = ""

    def _locate(self, timeout: float) -> Endpoint:
        endpoint = run(self._finder.find(ask_sync, timeout))
        self._follow_master(endpoint)
        if self._watch is None and not self._ending:
            # Not the other way round: a client that is dropped must end at once, also one that nothing served.
            weak = ref(self)
            watch = MasterWatch(self._finder.target, partial(_look, weak), partial(_ended, weak))
            with self._starting:
                mine = self._watch is None
                if mine:
                    self._watch = watch
            if mine:
                self._watch = watch.begin()
        return endpoint

    def look(self) -> None:
        """Ask the Sentinels, and follow the master."""
        with contextlib.suppress(Fault):
            self._follow_master(run(self._finder.find(ask_sync, _PATIENCE, thorough=True)))

    def _follow_master(self, endpoint: Endpoint) -> None:
        """Close every connection to another master than this one, and have each lease confirmed."""
        shown = endpoint.shown
        with self._starting:
            before, self._master = self._master, shown
        moved = before not in ("", shown)
        stale = [link for link in living(self._links) if link.shown != shown and not link.dead]
        for link in stale:
            link.interrupt()
        if (moved or stale) and self.on_move is not None:
            self.on_move()

    def shut_down(self, timeout: float) -> None:
        """End the maintenance and the watch, and close all connections."""
        super().shut_down(timeout)
        if self._watch is not None:
            self._watch.stop()

    def abandon(self) -> None:
        """Let the maintenance and the watch end because nobody can use the client any more."""
        super().abandon()
        if self._watch is not None:
            self._watch.stop()

    def after_fork(self) -> None:
        """In the child: no thread and no connection of the parent is ours."""
        super().after_fork()
        self._watch = None
        self._master = ""


def _look(weak: ref[SentinelThreads]) -> None:
    runtime = weak()
    if runtime is not None:
        runtime.look()


def _ended(weak: ref[SentinelThreads]) -> bool:
    runtime = weak()
    return runtime is None or runtime._ending  # noqa: SLF001 - its own


class SentinelAsyncio(AsyncioRuntime):
    """Tasks whose server is the master that the Sentinels name."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: Sentinels, prefix: str) -> None:
        super().__init__(loop, lambda: target.master, prefix)
        self._finder = MasterFinder(target)
        self._watch: MasterWatch | None = None
        self._master = ""

    async def _locate(self, timeout: float) -> Endpoint:
        endpoint = await self._finder.find(ask_async, timeout)
        self._follow_master(endpoint)
        if self._watch is None and not self._ending:
            # A thread also here: it only listens, and the loop may be busy or gone.
            self._watch = MasterWatch(
                self._finder.target, self._look, lambda: self._ending or self.loop.is_closed()
            ).begin()
        return endpoint

    def _look(self) -> None:
        with contextlib.suppress(Fault):
            endpoint = run(self._finder.find(ask_sync, _PATIENCE, thorough=True))
            self.run_in_owner(lambda: self._follow_master(endpoint))

    def _follow_master(self, endpoint: Endpoint) -> None:
        """Close a connection to another master than this one, and have each lease confirmed."""
        moved = self._master not in ("", endpoint.shown)
        self._master = endpoint.shown
        if not moved:
            return
        self._replica_pool.drop()
        if self._mux is not None:
            text = f"the master moved to {endpoint.shown}"
            self._mux.close(Fault(FaultKind.UNANSWERED, text, maybe_applied=True))
        if self.on_move is not None:
            self.on_move()

    async def shut_down(self) -> None:
        """End the watch, and close the connection."""
        if self._watch is not None:
            self._watch.stop()
        await super().shut_down()

    def after_fork(self) -> None:
        """In the child: the loop and the watch are the parent's."""
        super().after_fork()
        self._watch = None
