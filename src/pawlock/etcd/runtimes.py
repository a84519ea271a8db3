"""The two real runtimes, with etcd instead of connections to Redis."""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import finalize

from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind, Wakeup
from pawlock.etcd.gateway import Gateway
from pawlock.etcd.requests import Book, Requests
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.runtimes.shared import leave_signals_to_main, start_thread
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.route import Route

__all__ = ["LOOP", "EtcdTasks", "EtcdThreads"]

T = TypeVar("T")


class _Loop:
    """The event loop of all clients of threads in this process, in a thread of its own."""

    def __init__(self) -> None:
        # Re-entrant: a finaliser may run while its thread has it.
        self._guard = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work there. Raises ``Fault`` if no thread can be started."""
        with self._guard:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_run, args=(loop,), name="pawlock-etcd", daemon=True)
                if refused := start_thread(thread):
                    work.close()
                    loop.close()
                    raise Fault(FaultKind.UNREACHABLE, f"no thread can be started: {refused}")
                self._loop = loop
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def after_fork(self) -> None:
        """In the child: the thread is the parent's."""
        self._guard, self._loop = threading.RLock(), None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    leave_signals_to_main()
    loop.run_forever()


LOOP = _Loop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LOOP.after_fork)


class _Etcd(ABC):
    """A part of both runtimes: what is the same.

    Args:
        nodes: The members.
        book: What the client remembers.
    """

    def __init__(self, nodes: Sequence[Endpoint], book: Book) -> None:
        self._nodes = nodes
        self._book = book
        self._connect_anew()

    def _connect_anew(self) -> None:
        self._gateway = Gateway(self._nodes)
        self._requests = Requests(self._gateway, self._book)

    @abstractmethod
    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Finish some work on the loop that the requests belong to."""

    @property
    def fence_strength(self) -> str:
        """See ``Runtime``: a quorum keeps revisions, whatever restarts."""
        return "quorum"

    @property
    def several(self) -> bool:
        """See ``Carrier``: each lease is kept alive by itself, and one of the members may hang."""
        return True

    def channel(self) -> str:
        """See ``Runtime``: a waiter watches, and needs none."""
        return "etcd"

    async def ready(self, timeout: float) -> None:  # noqa: B027 - it is all that it does
        """See ``Runtime``: nothing is to be subscribed to."""

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        return await self._do(self._requests.ask(call, timeout))

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        return await self._do(self._requests.ask_all(calls, timeout))

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``: each write is acknowledged by a quorum anyway."""
        return [(outcome, replicas) for outcome in await self.call_many(calls, timeout)]


class EtcdThreads(_Etcd, ThreadRuntime):
    """See ``pawlock.core.runtime.Runtime``.

    Args:
        nodes: The members.
        book: What the client remembers.
        wake_prefix: What the wake-up channels of this client begin with.
    """

    def __init__(self, nodes: Sequence[Endpoint], book: Book, wake_prefix: str) -> None:
        _Etcd.__init__(self, nodes, book)
        ThreadRuntime.__init__(self, Route(lambda: nodes[0]), wake_prefix)

    def _connect_anew(self) -> None:
        super()._connect_anew()
        # Of a client that is dropped; the loop would keep its connections.
        self._closes = finalize(self, _close_soon, self._requests)
        self._closes.atexit = False  # what is held then is given back first

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """See ``_Etcd``."""
        future = LOOP.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        self._check(self._closed)
        parker: Any = self.parker()
        future = LOOP.submit(self._requests.granted(token))
        future.add_done_callback(lambda _: parker.unpark())
        self._resting[id(parker)] = parker
        try:
            parker.rest(timeout)
        finally:
            del self._resting[id(parker)]
            future.cancel()
        self._check(self._closed)
        return None if future.cancelled() else future.result()

    def shut_down(self, timeout: float) -> None:
        """Close the connections."""
        super().shut_down(timeout)
        self._closes()

    def after_fork(self) -> None:
        """See ``ThreadRuntime``: the leases are the parent's."""
        super().after_fork()
        self._closes.detach()
        self._gateway.forget()
        self._book.forget()
        self._connect_anew()


def _close_soon(requests: Requests) -> None:
    LOOP.submit(requests.close())


class EtcdTasks(_Etcd, AsyncioRuntime):
    """See ``pawlock.core.runtime.Runtime``. Belongs to one event loop.

    Args:
        nodes: The members.
        book: What the client remembers.
        loop: The loop.
        wake_prefix: What the wake-up channels of this client begin with.
    """

    def __init__(
        self, nodes: Sequence[Endpoint], book: Book, loop: asyncio.AbstractEventLoop, wake_prefix: str
    ) -> None:
        _Etcd.__init__(self, nodes, book)
        AsyncioRuntime.__init__(self, loop, Route(lambda: nodes[0]), wake_prefix)
        self._while_loop_runs = _while_loop_runs(self._requests)

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """See ``_Etcd``."""
        if not self._served:
            self._served = True
            await anext(self._while_loop_runs)
        return await work

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        telling = self.loop.create_task(self._tell(token), name="pawlock-watch")
        try:
            return await self._listen(token, timeout)
        except BaseException:
            # Who does not wait any more is not there to leave, either: that is the background's.
            self._requests.ended(token)
            raise
        finally:
            telling.cancel()

    async def _tell(self, token: str) -> None:
        wakeup = None
        try:
            wakeup = await self._requests.granted(token)
        finally:
            # Also where its token was left, which ends the watch.
            self._stir(token) if wakeup is None else self._wake(token, wakeup)

    def after_fork(self) -> None:
        """See ``AsyncioRuntime``: the leases are the parent's."""
        super().after_fork()
        self._gateway.forget()
        self._book.forget()


async def _while_loop_runs(requests: Requests) -> AsyncGenerator[None]:
    """Close the connections at its end, also where the loop ends its generators, as ``asyncio.run`` does last of all."""
    try:
        yield
    finally:
        try:
            # Behind the first step of the others that the loop ends: they may give back what they hold.
            await asyncio.sleep(0)
        finally:
            # Also where the loop cancels this.
            await requests.close()
