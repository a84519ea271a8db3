"""The runtime of asyncio: one connection for all tasks of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

from pawlock.core.protocol.faults import or_raise
from pawlock.core.protocol.names import part_of_holder
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.runtime import DEAF, Acknowledged, Call, Fault, FaultKind, Parker, Wakeup
from pawlock.errors import PawlockError
from pawlock.runtimes.shared import Routed, secret
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.mux import Mux, ask_async, open_mux
from pawlock.transport.replicas import ReplicaPool
from pawlock.transport.route import Route

__all__ = ["AsyncioRuntime", "LocalWaiter", "shared"]

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

    def rest(self, timeout: float | None) -> Awaitable[object]:
        """See ``Parker``."""
        return self.park(timeout)

    def unpark(self, value: Any = True) -> None:  # noqa: FBT002 - a value, not a switch
        """Wake the local waiter."""
        self._woken = value
        if self._future is not None:
            _resolve(self._future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AsyncioRuntime(Routed):
    """See ``pawlock.core.protocol.runtime.Runtime``. Belongs to one event loop.

    Args:
        loop: The loop.
        route: Where requests go.
        wake_prefix: What the wake-up channels of this client begin with.
    """

    recheck_after: float | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, route: Route, wake_prefix: str) -> None:
        super().__init__(route, wake_prefix)
        route.begin(self)
        self.loop = loop
        self._thread = threading.get_ident()
        # The one on which its tasks listen, and all.
        self._mux: Mux | None = None
        self._muxes: dict[Address, Mux] = {}
        self._opening: dict[Address, asyncio.Task[Mux]] = {}
        self._replica_pool = ReplicaPool()
        # Who waits for a message, by its token or channel; "": who only sleeps.
        self._waiters: dict[str, set[LocalWaiter]] = {}
        self._early: OrderedDict[str, Wakeup] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        # The task itself, which cannot be used again while a lease refers to it.
        self.who: Callable[[], Hashable] = asyncio.current_task
        self._part = lru_cache(maxsize=1024)(part_of_holder)

    # Small things -----------------------------------------------------------------------------------------------

    def new_token(self) -> str:
        """See ``Runtime``."""
        task = asyncio.current_task()
        return secret() + self._whose + self._part(task.get_name() if task is not None else "loop")

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
        self._check_going()
        opening = self._opening.get(address)
        if opening is None or opening.done():
            opening = self.loop.create_task(self._open(address, max(timeout, 0.25)), name="pawlock-connect")
            opening.add_done_callback(_retrieve)
            self._opening[address] = opening
        mux = await shared(opening)
        self._check_going()
        return mux

    async def _open(self, address: Address, timeout: float) -> Mux:
        if not self._served:
            # Starting the embedded server must not stop the loop.
            with contextlib.suppress(PawlockError):
                await asyncio.to_thread(self._route.find)
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
        make = partial(Mux, self.loop, self._wake, ended)
        return await open_mux(endpoint, make, self._wake_prefix + secret(), timeout, first=not self._served)

    def _wake(self, word: str, wakeup: Wakeup) -> None:
        for waiter in self._waiters.get(word, ()):
            waiter.unpark(wakeup)
        if word not in self._waiters:
            self._early[word] = wakeup
            if len(self._early) > _KEPT_MESSAGES:
                self._early.popitem(last=False)

    def _ended(self, address: Address, mux: Mux) -> None:
        if self._muxes.get(address) is mux:
            del self._muxes[address]
        if self._mux is mux:
            self._mux = None
            # Messages may have been missed: every waiter asks.
            for word in self._waiters:
                if word:
                    self._stir(word)

    def _stir(self, word: str) -> None:
        """Wake who waits for a message without one."""
        for waiter in self._waiters.get(word, ()):
            waiter.unpark(False)

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        mux = self._mux
        if mux is None or mux.dead or self._several:
            return await self._route.call(call, timeout)
        outcome = await mux.ask(call, timeout)
        return outcome if type(outcome) is not Fault else or_raise(outcome)

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        if self._mux is None and token not in self._early:
            self._check_open()
            return None
        # Before a service: its client asks again, since the connection broke on which it asked before.
        self._stir(token)
        return await self._listen(token, timeout)

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """See ``Runtime``. A list can only be waited for on a connection that blocks, and this one is shared."""
        how, where = hears
        mux = self._mux
        if how != "publish" or mux is None or mux.dead or mux.channel == DEAF:
            await self.sleep(seconds)
        else:
            mux.hear(where)
            await self._listen(where, seconds)

    async def sleep(self, seconds: float) -> None:
        """See ``Runtime``."""
        await self._listen("", seconds)

    async def _listen(self, word: str, timeout: float) -> Wakeup | None:
        """Wait for a message, which may have come while its waiter asked; None if it does not come."""
        self._check_open()
        early = self._early.pop(word, None)
        if early is not None:
            return early
        waiter = LocalWaiter(self.loop)
        waiters = self._waiters.setdefault(word, set())
        waiters.add(waiter)
        try:
            woken = await waiter.park(timeout)
        finally:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[word]
        self._check_open()
        return woken or None

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

    async def ask_node(self, endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> object:
        """See ``Nodes``."""
        return await ask_async(endpoint, words, timeout)

    async def send_one(self, address: Address, call: Call, timeout: float) -> Outcome:
        """See ``Nodes``."""
        return or_raise(await (await self._mux_to(address, timeout)).ask(call, timeout))

    async def send_groups(
        self, groups: Mapping[Address, Sequence[Call]], replicas: int, timeout: float
    ) -> dict[Address, list[Acknowledged]]:
        """See ``Nodes``."""
        sent = [self._send_many(address, calls, replicas, timeout) for address, calls in groups.items()]
        return dict(zip(groups, await asyncio.gather(*sent), strict=True))

    async def _send_many(
        self, address: Address, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        try:
            # Connecting may take longer, and who asks has no more time.
            async with asyncio.timeout(timeout):
                mux = await self._mux_to(address, timeout)
            if replicas:
                # Beside the shared connection, which must not block.
                return await self._replica_pool.call(mux.endpoint, calls, replicas, timeout)
        except TimeoutError:
            fault = Fault(FaultKind.UNREACHABLE, f"no connection within {timeout:.3g} s")
            return [(fault, 0)] * len(calls)
        except Fault as fault:
            return [(fault.bare(), 0)] * len(calls)
        return [(outcome, 0) for outcome in await mux.exchange(calls, timeout)]

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
        self._closed = True
        for word in self._waiters:
            self._stir(word)

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
        finally:
            self._replica_pool.close()
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
        self._replica_pool = ReplicaPool()
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


def _retrieve(attempt: asyncio.Future[Any]) -> None:
    """Have asyncio not report an error that nobody waits for any more."""
    if not attempt.cancelled():
        attempt.exception()


async def _reported(callback: Callable[[], object]) -> None:
    try:
        result = callback()
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("on_lost failed")
