"""Both runtimes before a cluster: a connection for each node, and each call to the node that serves its name.

A waiter listens on one connection, to whichever node: a message that a script publishes reaches all nodes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from weakref import proxy

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import Acknowledged, Call, Fault, FaultKind, run
from pawlock.runtimes.aio import AsyncioRuntime, outcome_of, shared
from pawlock.runtimes.shared import now
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import ClusterNodes, Endpoint
from pawlock.transport.link import Link
from pawlock.transport.mux import Mux, retrieve
from pawlock.transport.replicas import ask_on
from pawlock.transport.routing import Router
from pawlock.transport.sentinel import ask_async, ask_sync

__all__ = ["ClusterAsyncio", "ClusterThreads"]


class _Links(threading.local):
    """The connections of one thread."""

    def __init__(self) -> None:
        self.by_node: dict[Address, Link] = {}


class ClusterThreads(ThreadRuntime):
    """Threads before a cluster. ``_local.here.link`` is the one of a thread's connections on which it listens."""

    def __init__(self, target: ClusterNodes, wake_prefix: str) -> None:
        super().__init__(lambda: target.nodes[0], wake_prefix)
        self._nodes = _Links()
        self._router = _ThreadRouter(self, target)

    def _held_link(self, timeout: float) -> Link:
        here = self._local.here
        if here.link is None or here.link.dead:
            here.link = next((link for link in self._nodes.by_node.values() if not link.dead), None)
        if here.link is None:
            here.link = self._link_to(run(self._router.any_node(timeout)), timeout)
        return here.link

    def _link_to(self, address: Address, timeout: float) -> Link:
        links = self._nodes.by_node
        link = links.get(address)
        if link is None or link.dead:
            links.pop(address, None)
            link = links[address] = self._new_link(address, timeout)
        return link

    def _new_link(self, address: Address, timeout: float) -> Link:
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        return self._connect_to(self._router.endpoint(address), max(timeout, 0.25))

    def connection(self) -> None:
        """See ``Runtime``: which one it is depends on the call."""

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        return await self._router.route(call, timeout)

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        return await self._router.route_many(calls, timeout)

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """See ``Runtime``."""
        return await self._router.key_for_each(key_of, timeout)

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``."""

        async def send(address: Address, sent: Sequence[Call], left: float) -> list[Acknowledged]:
            return await ask_on(self._link_to(address, left), sent, replicas, left)

        return await self._router.route_replicated(send, calls, timeout)

    def call_node(self, address: Address, call: Call, timeout: float) -> Outcome:
        """Run one script on one node."""
        return self._link_to(address, timeout).ask(call, timeout)

    def call_node_many(self, address: Address, calls: list[Call], timeout: float) -> list[Outcome | Fault]:
        """Run several scripts on one node in one write."""
        try:
            link = self._link_to(address, timeout)
        except Fault as fault:
            return [fault] * len(calls)
        return link.call_many(calls, timeout)

    def linked(self, address: Address) -> bool:
        """Whether this thread has a connection to a node."""
        link = self._nodes.by_node.get(address)
        return link is not None and not link.dead

    def after_fork(self) -> None:
        """In the child: no thread and no connection of the parent is ours."""
        super().after_fork()
        self._nodes = _Links()


class _ThreadRouter(Router):
    def __init__(self, runtime: ClusterThreads, target: ClusterNodes) -> None:
        super().__init__(target, now, ask_sync)
        # Not the other way round: a client that is dropped must end at once.
        self._runtime: ClusterThreads = proxy(runtime)

    def moved(self) -> None:
        on_move = self._runtime.on_move
        if on_move is not None:
            on_move()

    async def send(self, address: Address, call: Call, timeout: float) -> Outcome:
        return self._runtime.call_node(address, call, timeout)

    async def send_groups(
        self, groups: dict[Address, list[Call]], timeout: float
    ) -> dict[Address, list[Outcome | Fault]]:
        # A node that has to be connected to first may be gone: it must not keep the others waiting.
        order = sorted(groups, key=self._runtime.linked, reverse=True)
        return {address: self._runtime.call_node_many(address, groups[address], timeout) for address in order}


class ClusterAsyncio(AsyncioRuntime):
    """Tasks before a cluster. ``_mux`` is the one of the loop's connections on which its tasks listen."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: ClusterNodes, prefix: str) -> None:
        super().__init__(loop, lambda: target.nodes[0], prefix)
        self._muxes: dict[Address, Mux] = {}
        self._opening: dict[Address, asyncio.Task[Mux]] = {}
        self._router = _AsyncioRouter(self, target)

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``: any connection serves to listen."""
        if self.channel():
            return
        self._mux = next((mux for mux in self._muxes.values() if not mux.dead), None)
        if self._mux is None:
            mux = await self.mux_to(await self._router.any_node(timeout), timeout)
            if self._mux is None:
                self._mux = mux

    async def mux_to(self, address: Address, timeout: float) -> Mux:
        """The connection to a node. Callers share one attempt; one that is cancelled does not end it for others."""
        mux = self._muxes.get(address)
        if mux is not None and not mux.dead:
            return mux
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        opening = self._opening.get(address)
        if opening is None or opening.done():
            opening = self.loop.create_task(self._open(address, max(timeout, 0.25)), name="pawlock-connect")
            opening.add_done_callback(retrieve)
            self._opening[address] = opening
        return await shared(opening)

    async def _open(self, address: Address, timeout: float) -> Mux:
        endpoint, ended = self._router.endpoint(address), partial(self._node_ended, address)
        mux = self._muxes[address] = await self._open_to(endpoint, ended, timeout, first=False)
        return mux

    def _node_ended(self, address: Address, mux: Mux) -> None:
        if self._muxes.get(address) is mux:
            del self._muxes[address]
        self._ended(mux)

    def connection(self) -> None:
        """See ``Runtime``: which one it is depends on the call."""

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        return await self._router.route(call, timeout)

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        return await self._router.route_many(calls, timeout)

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """See ``Runtime``."""
        return await self._router.key_for_each(key_of, timeout)

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``."""

        async def send(address: Address, sent: Sequence[Call], left: float) -> list[Acknowledged]:
            async def locate(_timeout: float) -> Endpoint:
                return self._router.endpoint(address)

            return await self._replica_pool.call(address, locate, sent, replicas, left)

        return await self._router.route_replicated(send, calls, timeout)

    async def shut_down(self) -> None:
        """Close all connections."""
        for opening in self._opening.values():
            opening.cancel()
        try:
            await super().shut_down()
        finally:
            for mux in list(self._muxes.values()):
                mux.close()

    def after_fork(self) -> None:
        """In the child: the loop is the parent's, and so are its connections."""
        super().after_fork()
        self._muxes = {}
        self._opening = {}


class _AsyncioRouter(Router):
    def __init__(self, runtime: ClusterAsyncio, target: ClusterNodes) -> None:
        super().__init__(target, now, ask_async)
        # Not the other way round: a client that is dropped must end at once.
        self._runtime: ClusterAsyncio = proxy(runtime)

    def moved(self) -> None:
        on_move = self._runtime.on_move
        if on_move is not None:
            on_move()

    async def send(self, address: Address, call: Call, timeout: float) -> Outcome:
        mux = await self._runtime.mux_to(address, timeout)
        return await mux.ask(call, timeout)

    async def send_groups(
        self, groups: dict[Address, list[Call]], timeout: float
    ) -> dict[Address, list[Outcome | Fault]]:
        tasks = {
            address: self._runtime.loop.create_task(self._send_many(address, calls, timeout))
            for address, calls in groups.items()
        }
        try:
            return {address: await task for address, task in tasks.items()}
        finally:
            for task in tasks.values():
                task.cancel()

    async def _send_many(self, address: Address, calls: list[Call], timeout: float) -> list[Outcome | Fault]:
        try:
            # Connecting may take longer than the caller will wait.
            async with asyncio.timeout(timeout):
                mux = await self._runtime.mux_to(address, timeout)
        except TimeoutError:
            return [Fault(FaultKind.UNREACHABLE, f"no connection within {timeout:.3g} s")] * len(calls)
        except Fault as fault:
            return [fault] * len(calls)
        return [await outcome_of(answer) for answer in mux.ask_many(calls, timeout)]
