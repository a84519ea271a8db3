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
from functools import lru_cache, partial
from typing import Any, TypeVar

from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import DEAF, Acknowledged, Call, Fault, FaultKind, Parker, Wakeup
from pawlock.runtimes.shared import Identity, locate, now, secret
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.mux import Mux, ask_async, open_mux, retrieve
from pawlock.transport.replicas import ReplicaPool
from pawlock.transport.route import Route
from pawlock.transport.wire import Handshake

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
        route: Where requests go.
        prefix: What the wake-up channels of this client begin with.
    """

    @property
    def fence_strength(self) -> str:
        """See ``Runtime``."""
        return "server"

    def __init__(self, loop: asyncio.AbstractEventLoop, route: Route, prefix: str) -> None:
        self.loop = loop
        self._route = route
        self._route.begin(self)
        self._thread = threading.get_ident()
        self._prefix = prefix
        self._identity = Identity()
        # The one on which its tasks listen, and all.
        self._mux: Mux | None = None
        self._muxes: dict[Address, Mux] = {}
        self._opening: dict[Address, asyncio.Task[Mux]] = {}
        self._replica_pool = ReplicaPool()
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
        """See ``Runtime``: any connection serves to listen."""
        if self.channel():
            return
        self._mux = next((mux for mux in self._muxes.values() if not mux.dead), None)
        if self._mux is None:
            await self._mux_to(await self._route.any_node(timeout), timeout)

    async def _mux_to(self, address: Address, timeout: float) -> Mux:
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
        mux = await shared(opening)
        if self._ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        return mux

    async def _open(self, address: Address, timeout: float) -> Mux:
        endpoint = await self._route.locate(address, timeout)
        mux = self._muxes[address] = await self._open_to(endpoint, partial(self._ended, address), timeout)
        if self._ending:
            # That is for who waits for it, if anybody does: a loop that shuts down reports what its tasks raise.
            mux.close()
            return mux
        self._served = True
        if self._mux is None or self._mux.dead:
            self._mux = mux
        return mux

    async def _open_to(self, endpoint: Endpoint, ended: Callable[[Mux], object], timeout: float) -> Mux:
        mux = Mux(self.loop, self._wake, ended)
        handshake = Handshake(self._prefix + secret(), endpoint, first=not self._served)
        try:
            async with asyncio.timeout(timeout * 2):
                await open_mux(endpoint, mux, handshake, timeout)
        except TimeoutError:
            text = f"{endpoint.shown}: no connection within {timeout * 2:.3g} s"
            raise Fault(FaultKind.UNREACHABLE, text) from None
        return mux

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

    def _ended(self, address: Address, mux: Mux) -> None:
        if self._muxes.get(address) is mux:
            del self._muxes[address]
        if self._mux is mux:
            self._mux = None
            # Messages may have been missed: every waiter asks.
            for waiter in self._waiters.values():
                waiter.unpark(False)

    @property
    def several(self) -> bool:
        """See ``Carrier``."""
        return self._route.several

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        mux = self._mux
        if mux is None or mux.dead or self._route.several:
            return await self._route.call(call, timeout)
        return await mux.ask(call, timeout)

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        return await self._route.call_many(calls, timeout)

    async def call_replicated(
        self, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier``."""
        return await self._route.call_replicated(calls, replicas, timeout)

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """See ``Carrier``."""
        return await self._route.key_for_each(key_of, timeout)

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

    # For the route ----------------------------------------------------------------------------------------------

    def over(self) -> bool:
        """See ``Nodes``."""
        return self._ending or self.loop.is_closed()

    def leave_others(self, shown: str) -> bool:
        """See ``Nodes``."""
        self._replica_pool.leave_others(shown)
        stale = [mux for mux in self._muxes.values() if mux.shown != shown]
        for mux in stale:
            mux.close(Fault(FaultKind.UNANSWERED, f"the master moved to {shown}", maybe_applied=True))
        return bool(stale)

    async def find(self, find: Callable[[], Endpoint]) -> Endpoint:
        """See ``Nodes``."""
        # Starting the embedded server must not stop the loop.
        return locate(find) if self._served else await asyncio.to_thread(locate, find)

    async def ask_node(self, endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> object:
        """See ``Nodes``."""
        return await ask_async(endpoint, words, timeout)

    async def send_one(self, address: Address, call: Call, timeout: float) -> Outcome:
        """See ``Nodes``."""
        return await (await self._mux_to(address, timeout)).ask(call, timeout)

    async def send_groups(
        self, groups: dict[Address, list[Call]], timeout: float
    ) -> dict[Address, list[Outcome | Fault]]:
        """See ``Nodes``."""
        sent = [self._send_many(address, calls, timeout) for address, calls in groups.items()]
        return dict(zip(groups, await asyncio.gather(*sent), strict=True))

    async def _send_many(self, address: Address, calls: list[Call], timeout: float) -> list[Outcome | Fault]:
        try:
            # Connecting may take longer: the maintenance has ends of leases to report meanwhile.
            async with asyncio.timeout(timeout):
                mux = await self._mux_to(address, timeout)
        except TimeoutError:
            return [Fault(FaultKind.UNREACHABLE, f"no connection within {timeout:.3g} s")] * len(calls)
        except Fault as fault:
            return [fault] * len(calls)
        return [await outcome_of(answer) for answer in mux.ask_many(calls, timeout)]

    async def send_replicated(
        self, address: Address, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Nodes``: beside the shared connection, which must not block."""
        find = partial(self._route.locate, address)
        return await self._replica_pool.call(address, find, calls, replicas, timeout)

    # Upkeep -----------------------------------------------------------------------------------------------------

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
        try:
            opening = [task for task in self._opening.values() if not task.done()]
            for task in opening:
                task.cancel()
            # Not `await task`: its end by cancellation and that of the caller's own task would be the same exception.
            if opening:
                await asyncio.wait(opening)
            for task in opening:
                error = None if task.cancelled() else task.exception()
                if error is not None and not isinstance(error, Fault):
                    raise error
        finally:
            self._replica_pool.close()
            self._route.close()
            muxes = list(self._muxes.values())
            # Also where the loop ends and cancels this: the leases that were just given back are to be free.
            # A connection may break meanwhile, and is then no longer this runtime's.
            try:
                for mux in muxes:
                    await mux.drain_replies(_DRAIN_WITHIN)
            finally:
                for mux in muxes:
                    mux.close()
            for mux in muxes:
                await mux.wait_closed(_DRAIN_WITHIN)

    def after_fork(self) -> None:
        """In the child: the loop is the parent's. Its connection is not closed here: the poller is shared with it."""
        self._ending = True
        self._replica_pool.abandon()
        self._route.after_fork()
        self._mux = None
        self._muxes = {}
        self._opening = {}


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
