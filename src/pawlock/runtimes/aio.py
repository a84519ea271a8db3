"""The runtime of asyncio: one connection for all tasks of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import DEAF, Acknowledged, Call, Fault, FaultKind, Parker, Wakeup
from pawlock.runtimes.shared import Identity, locate, now, secret, stock
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.mux import Mux, open_mux, retrieve
from pawlock.transport.replicas import ReplicaPool
from pawlock.transport.wire import Handshake, behind_subscribe

__all__ = ["AsyncioRuntime", "LocalWaiter", "outcome_of", "shared"]

T = TypeVar("T")

log: logging.Logger = logging.getLogger("pawlock.asyncio")

_KEPT_MESSAGES = 1024
_DRAIN_WITHIN = 0.25


class LocalWaiter:
    """A sleep that can be cut short: a future with a timer, cheaper than ``asyncio.timeout``."""

    __slots__ = ("_future", "_loop", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._woken: Any = None

    async def park(self, timeout: float | None) -> Any:
        """Sleep until woken or until ``timeout`` seconds passed; what it was woken with, else False.

        Args:
            timeout: Seconds; None: no limit.
        """
        if self._woken is None:
            future = self._future = self._loop.create_future()
            timer = None if timeout is None else self._loop.call_later(timeout, _resolve, future)
            try:
                await future
            finally:
                if timer is not None:
                    timer.cancel()
                self._future = None
        woken, self._woken = self._woken, None
        return False if woken is None else woken

    def rest(self, timeout: float | None) -> bool | Awaitable[object]:
        """``park`` without a coroutine of its own where nothing limits it."""
        if timeout is not None:
            return self.park(timeout)
        if self._woken is not None:
            return True
        self._future = self._loop.create_future()
        return self._future

    def unpark(self, value: Any = True) -> None:  # noqa: FBT002 - a value, not a switch
        """Wake the local waiter."""
        self._woken = value
        if self._future is not None:
            _resolve(self._future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AsyncioRuntime:
    """See ``pawlock.core.protocol.runtime.Runtime``. Belongs to one event loop.

    Args:
        loop: The loop.
        endpoint: Called to learn where to connect; may block for as long as the embedded server takes to start.
        prefix: What the wake-up channels of this client begin with.
    """

    @property
    def fence_strength(self) -> str:
        """See ``Runtime``."""
        return "server"

    def __init__(
        self, loop: asyncio.AbstractEventLoop, endpoint: Callable[[], Endpoint], prefix: str
    ) -> None:
        self.loop = loop
        self._thread = threading.get_ident()
        self._endpoint = endpoint
        self._prefix = prefix
        self._identity = Identity()
        self._mux: Mux | None = None
        self._replica_pool = ReplicaPool()
        self._connecting: asyncio.Task[None] | None = None
        self._served = False
        self._waiters: dict[str, LocalWaiter] = {}
        # Who waits for what another program publishes, by its channel.
        self._ears: dict[str, set[LocalWaiter]] = {}
        self._early: OrderedDict[str, Wakeup] = OrderedDict()
        self._closing = False
        self._ending = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sleepers: set[LocalWaiter] = set()
        self.recheck_after: float | None = None
        self.on_move: Callable[[], object] | None = None
        # The task itself, which cannot be used again while a lease refers to it.
        self.who: Callable[[], Hashable] = asyncio.current_task
        self._suffix = lru_cache(maxsize=1024)(self._identity.suffix)
        self.now = now
        self.random: Callable[[], float] = random.SystemRandom().random

    # Small things -----------------------------------------------------------------------------------------------

    def new_token(self) -> str:
        """See ``Runtime``."""
        task = asyncio.current_task()
        return secret() + self._suffix(task.get_name() if task is not None else "loop")

    def caller_and_token(self) -> tuple[Hashable, str]:
        """See ``Runtime``."""
        task = asyncio.current_task(self.loop)
        word = stock.pop() if stock else secret()
        return task, word + self._suffix(task.get_name() if task is not None else "loop")

    def mutex(self) -> AbstractContextManager[object]:
        """See ``Runtime``."""
        # One loop is one thread; a lock of C costs less than a context that does nothing in Python.
        return threading.RLock()

    def parker(self) -> Parker:
        """See ``Runtime``."""
        return LocalWaiter(self.loop)

    def channel(self) -> str:
        """See ``Runtime``."""
        mux = self._mux
        return "" if mux is None or mux.dead else mux.channel

    # Connection -------------------------------------------------------------------------------------------------

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``. Callers share one attempt; one that is cancelled does not end it for the others."""
        if self.channel():
            return
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        if self._connecting is None or self._connecting.done():
            self._connecting = self.loop.create_task(
                self._connect(max(timeout, 0.25)), name="pawlock-connect"
            )
            self._connecting.add_done_callback(retrieve)
        await shared(self._connecting)
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)

    async def _connect(self, timeout: float) -> None:
        endpoint = await self._locate(timeout)
        try:
            self._mux = await self._open_to(endpoint, self._ended, timeout, first=not self._served)
        except Fault as fault:
            # Callers that wait raise it themselves; what a task raises is reported when its loop shuts down.
            if fault.kind is not FaultKind.CLOSED:
                raise

    async def _open_to(
        self, endpoint: Endpoint, ended: Callable[[Mux], object], timeout: float, *, first: bool
    ) -> Mux:
        mux = Mux(self.loop, self._wake, ended)
        handshake = Handshake(self._prefix + secret(), endpoint, first=first)
        try:
            async with asyncio.timeout(timeout * 2):
                await open_mux(endpoint, mux, handshake, timeout)
        except TimeoutError:
            text = f"{endpoint.shown}: no connection within {timeout * 2:.3g} s"
            raise Fault(FaultKind.UNREACHABLE, text) from None
        if self._ending:
            mux.close()
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        self._served = True
        return mux

    async def _locate(self, timeout: float) -> Endpoint:
        """Where to connect now; a topology that moves asks anew each time, for at most ``timeout`` seconds a node."""
        del timeout
        if self._served:
            return locate(self._endpoint)
        # Starting the embedded server takes a moment, and must not stop the loop.
        return await asyncio.to_thread(locate, self._endpoint)

    def _wake(self, token: str, wakeup: Wakeup) -> None:
        waiter = self._waiters.get(token)
        if token in self._ears:
            for ear in self._ears[token]:
                ear.unpark()
        elif waiter is not None:
            waiter.unpark(wakeup)
        else:
            self._early[token] = wakeup
            if len(self._early) > _KEPT_MESSAGES:
                self._early.popitem(last=False)

    def _ended(self, mux: Mux) -> None:
        if self._mux is mux:
            self._mux = None
            # Messages may have been missed: every waiter asks.
            for waiter in self._waiters.values():
                waiter.unpark(False)

    def connection(self) -> Mux | None:
        """See ``Runtime``."""
        mux = self._mux
        return None if mux is None or mux.dead else mux

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        mux = self._mux
        if mux is None or mux.dead:
            await self.ready(timeout)
            mux = self._mux
            if mux is None:
                raise Fault(FaultKind.UNREACHABLE, "the connection was closed")
        return await mux.ask(call, timeout)

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        mux = self._mux
        if mux is None or mux.dead:
            try:
                # Connecting may take longer than the caller will wait.
                async with asyncio.timeout(timeout):
                    await self.ready(timeout)
            except TimeoutError:
                return [Fault(FaultKind.UNREACHABLE, f"no connection within {timeout:.3g} s")] * len(calls)
            except Fault as fault:
                return [fault] * len(calls)
            mux = self._mux
            if mux is None:
                return [Fault(FaultKind.UNREACHABLE, "the connection was closed")] * len(calls)
        return [await outcome_of(answer) for answer in mux.ask_many(calls, timeout)]

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``: beside the shared connection, which must not block."""
        return await self._replica_pool.call(None, self._locate, calls, replicas, timeout)

    def publish_first(self, call: Call) -> Call:
        """See ``Carrier``."""
        return behind_subscribe(call, self.channel())

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        if self._closing:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        early = self._early.pop(token, None)
        if early is not None:
            return early
        if self._mux is None:
            return None
        if token in self._waiters:
            # Before a service: its client asks again, since the connection broke on which it asked before.
            self._waiters[token].unpark(False)
        waiter = self._waiters[token] = LocalWaiter(self.loop)
        try:
            woken = await waiter.park(timeout)
        finally:
            if self._waiters.get(token) is waiter:
                del self._waiters[token]
        if self._closing:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        return woken or None

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """See ``Runtime``. A list can only be waited for on a connection that blocks, and this one is shared."""
        how, where = hears
        mux = self._mux
        if how != "publish" or mux is None or mux.dead or mux.channel == DEAF:
            await self.sleep(seconds)
            return
        mux.hear(where)
        if self._early.pop(where, None) is not None:
            # It came while this waiter asked.
            return
        ear = LocalWaiter(self.loop)
        ears = self._ears.setdefault(where, set())
        ears.add(ear)
        try:
            await self._rest(ear, seconds)
        finally:
            ears.discard(ear)
            if not ears and self._ears.get(where) is ears:
                del self._ears[where]

    async def sleep(self, seconds: float) -> None:
        """See ``Runtime``."""
        await self._rest(LocalWaiter(self.loop), seconds)

    async def _rest(self, local_waiter: LocalWaiter, seconds: float) -> None:
        if not self._closing:
            self._sleepers.add(local_waiter)
            try:
                await local_waiter.park(seconds)
            finally:
                self._sleepers.discard(local_waiter)
        if self._closing:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)

    async def pause(self, seconds: float) -> None:
        """See ``Runtime``."""
        await asyncio.sleep(seconds)

    # Upkeep -----------------------------------------------------------------------------------------------------

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """See ``Runtime``: there is one server."""
        del timeout
        return [key_of(0)]

    def gone(self) -> bool:
        """See ``Runtime``."""
        return self.loop.is_closed()

    def run_in_owner(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``: in the thread of the loop."""
        if self.loop.is_closed():
            return
        if threading.get_ident() == self._thread:
            callback()
        else:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(callback)

    def report(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``."""
        task = self.loop.create_task(_reported(callback), name="pawlock-on-lost")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The end ----------------------------------------------------------------------------------------------------

    def interrupt_waiters(self) -> None:
        """Wake every task that sleeps in a call of this client; their calls end with ``Fault`` CLOSED."""
        self._closing = True
        for waiter in self._waiters.values():
            waiter.unpark(False)
        for local_waiter in self._sleepers:
            local_waiter.unpark(False)

    async def shut_down(self) -> None:
        """Close the connection."""
        self._ending = True
        connecting = self._connecting
        try:
            # Not `await connecting`: its end by cancellation and that of the caller's own task would be the same.
            if connecting is not None and not connecting.done():
                connecting.cancel()
                await asyncio.wait((connecting,))
                error = None if connecting.cancelled() else connecting.exception()
                if error is not None and not isinstance(error, Fault):
                    raise error
        finally:
            self._replica_pool.close()
            mux = self._mux
            if mux is not None:
                # Also where the loop ends and cancels this: the leases that were just given back are to be free.
                # The connection may break meanwhile, and is then no longer this runtime's.
                try:
                    await mux.drain_replies(_DRAIN_WITHIN)
                finally:
                    mux.close()
                await mux.wait_closed(_DRAIN_WITHIN)

    def after_fork(self) -> None:
        """In the child: the loop is the parent's. Its connection is not closed here: the poller is shared with it."""
        self._ending = True
        self._replica_pool.abandon()
        self._mux = None


async def shared(attempt: asyncio.Task[T]) -> T:
    """What an attempt to connect comes to that several callers wait for; one that is cancelled leaves it to the others.

    Raises:
        Fault: It failed, or was cancelled itself.
    """
    # `shield` would not say which of the two was cancelled: the end of a loop cancels both at once.
    await asyncio.wait((attempt,))
    if attempt.cancelled():
        raise Fault(FaultKind.UNREACHABLE, "the attempt to connect was cancelled")
    return attempt.result()


async def outcome_of(answer: Awaitable[Outcome]) -> Outcome | Fault:
    """What an answer brings."""
    try:
        return await answer
    except Fault as fault:
        return fault


async def _reported(callback: Callable[[], object]) -> None:
    try:
        result = callback()
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("on_lost failed")
