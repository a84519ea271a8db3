"""The two real runtimes, with etcd instead of connections to Redis."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Acknowledged, Call, Fault, FaultKind, Wakeup
from pawlock.etcd.gateway import Gateway
from pawlock.etcd.requests import Book, Requests
from pawlock.runtimes.aio import AsyncioRuntime
from pawlock.runtimes.shared import leave_signals_to_main, start_thread
from pawlock.runtimes.threads import ThreadRuntime
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.route import Route

__all__ = ["EtcdTasks", "EtcdThreads"]

T = TypeVar("T")

_HEARS = "etcd"
"""Where waiters are woken: they watch, whatever the name of it."""


class _Loop:
    """The event loop of all clients of threads in this process, in a thread of its own."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work there. Raises ``Fault`` if no thread can be started."""
        with self._guard:
            loop = self._loop
            if loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._run, args=(loop,), name="pawlock-etcd", daemon=True)
                if refused := start_thread(thread):
                    work.close()
                    loop.close()
                    raise Fault(FaultKind.UNREACHABLE, f"no thread can be started: {refused}")
                self._loop = loop
        return asyncio.run_coroutine_threadsafe(work, loop)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        leave_signals_to_main()
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def after_fork(self) -> None:
        """In the child: the thread is the parent's."""
        self.__init__()  # type: ignore[misc]


_loop = _Loop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.after_fork)


class _Etcd:
    """A part of both runtimes: what is the same."""

    _requests: Requests
    _gateway: Gateway
    _book: Book
    _nodes: Sequence[Endpoint]

    def _treat(self, nodes: Sequence[Endpoint], book: Book) -> None:
        self._nodes = nodes
        self._book = book
        self._open_gateway()

    def _open_gateway(self) -> None:
        self._gateway = Gateway(self._nodes)
        self._requests = Requests(self._gateway, self._book)

    @property
    def fence_strength(self) -> str:
        """See ``Runtime``: a quorum keeps revisions, whatever restarts."""
        return "quorum"

    def channel(self) -> str:
        """See ``Runtime``."""
        return _HEARS

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``: nothing is to be subscribed to."""

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``: each write is acknowledged by a quorum anyway."""
        return [(outcome, replicas) for outcome in await self.call_many(calls, timeout)]

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        raise NotImplementedError

    async def _ask_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        return list(await asyncio.gather(*[self._ask_one(call, timeout) for call in calls]))

    async def _ask_one(self, call: Call, timeout: float) -> Outcome | Fault:
        try:
            return await self._requests.ask(call, timeout)
        except Fault as fault:
            return fault.without_traceback()

    async def key_for_each(self, key_of: Any, timeout: float) -> Sequence[str]:
        """See ``Carrier``."""
        del timeout
        return [key_of(0)]


def _route(nodes: Sequence[Endpoint]) -> Route:
    return Route(lambda: nodes[0])


class EtcdThreads(_Etcd, ThreadRuntime):
    """See ``pawlock.core.runtime.Runtime``.

    Args:
        nodes: The members.
        book: What the client remembers.
        wake_prefix: What the wake-up channels of this client begin with.
    """

    def __init__(self, nodes: Sequence[Endpoint], book: Book, wake_prefix: str) -> None:
        self._treat(nodes, book)
        ThreadRuntime.__init__(self, _route(nodes), wake_prefix)

    def _now(self, work: Coroutine[Any, Any, T]) -> T:
        if self._ending:
            work.close()
            self._check(self._ending)
        future = _loop.submit(work)
        try:
            return future.result()
        finally:
            future.cancel()

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        return self._now(self._requests.ask(call, timeout))

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        return self._now(self._ask_many(calls, timeout))

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        self._check(self._closed)
        parker = self.parker()
        future = _loop.submit(self._requests.granted(token))
        future.add_done_callback(lambda _: parker.unpark())
        self._resting[id(parker)] = parker  # type: ignore[assignment]
        try:
            parker.rest(timeout)
        finally:
            self._resting.pop(id(parker), None)
            future.cancel()
        self._check(self._closed)
        return future.result() if future.done() and not future.cancelled() else None

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """See ``Runtime``: no other program's keys are here."""
        del hears
        await self.sleep(seconds)

    def shut_down(self, timeout: float) -> None:
        """Close the connections."""
        super().shut_down(timeout)
        with suppress(Fault, TimeoutError):
            _loop.submit(self._gateway.close()).result(timeout)

    def after_fork(self) -> None:
        """See ``ThreadRuntime``: the leases are the parent's."""
        super().after_fork()
        self._book.forget()
        self._open_gateway()


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
        self._treat(nodes, book)
        AsyncioRuntime.__init__(self, loop, _route(nodes), wake_prefix)
        self._while_loop_runs = _while_loop_runs(self._gateway)

    async def _begin_once(self) -> None:
        self._check(self._ending)
        if not self._served:
            self._served = True
            await anext(self._while_loop_runs)

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        await self._begin_once()
        return await self._requests.ask(call, timeout)

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        await self._begin_once()
        return await self._ask_many(calls, timeout)

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        telling = self.loop.create_task(self._tell(token), name="pawlock-watch")
        try:
            return await self._listen(token, timeout)
        finally:
            telling.cancel()

    async def _tell(self, token: str) -> None:
        wakeup = await self._requests.granted(token)
        if wakeup is None:
            self._stir(token)
        else:
            self._wake(token, wakeup)

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """See ``Runtime``: no other program's keys are here."""
        del hears
        await self.sleep(seconds)

    def after_fork(self) -> None:
        """See ``AsyncioRuntime``: the leases are the parent's."""
        super().after_fork()
        self._book.forget()


async def _while_loop_runs(gateway: Gateway) -> AsyncGenerator[None]:
    """Close the connections at its end, also where the loop ends its generators, as ``asyncio.run`` does last of all."""
    try:
        yield
    finally:
        # Behind the first step of the others that the loop ends: they may give back what they hold.
        await asyncio.sleep(0)
        await gateway.close()
        await asyncio.sleep(0)
