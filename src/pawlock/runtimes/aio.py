"""The runtime of asyncio: one connection for all tasks of one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias
from weakref import ref

from pawlock.core.faults import or_raise
from pawlock.core.names import part_of_holder
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import NO_CHANNEL, Acknowledged, Call, Fault, FaultKind, Parker, Wakeup
from pawlock.errors import PawlockError
from pawlock.runtimes.shared import Routed, secret, stock
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.mux import Mux, ask_async, open_mux
from pawlock.transport.route import Route

__all__ = ["AsyncioRuntime", "LocalWaiter"]

log: logging.Logger = logging.getLogger("pawlock.asyncio")

_Place: TypeAlias = tuple[Address, bool]
"""Where a connection leads, and whether it is for requests that block it."""

_KEPT_MESSAGES = 1024
_DRAIN_WITHIN = 0.25


class LocalWaiter:
    """A sleep that can be cut short: a future with a timer, cheaper than ``asyncio.timeout``. Woken before, it is none."""

    __slots__ = ("_early", "_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[Any] | None = None
        self._early: tuple[Any] | None = None

    async def park(self, timeout: float | None) -> Any:
        """Sleep until woken or until ``timeout`` seconds passed; what it was woken with, else False.

        Args:
            timeout: Seconds; None: no limit.
        """
        if self._early is not None:
            (value,), self._early = self._early, None
            return value
        future = self._future = asyncio.Future(loop=self._loop)
        timer = None if timeout is None else self._loop.call_later(timeout, self.unpark, False)
        try:
            return await future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()

    rest = park

    def unpark(self, value: Any = True) -> None:  # noqa: FBT002 - a value, not a switch
        """Wake the local waiter."""
        if self._future is None:
            self._early = (value,)
        elif not self._future.done():
            self._future.set_result(value)


class AsyncioRuntime(Routed):
    """See ``pawlock.core.runtime.Runtime``. Belongs to one event loop.

    Args:
        loop: The loop.
        route: Where requests go.
        wake_prefix: What the wake-up channels of this client begin with.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, route: Route, wake_prefix: str) -> None:
        super().__init__(route, wake_prefix)
        route.begin(self)
        self.loop = loop
        self._thread = threading.get_ident()
        # The one on which its tasks listen, and all.
        self._mux: Mux | None = None
        self._muxes: dict[_Place, Mux] = {}
        self._opening: dict[_Place, asyncio.Task[Any]] = {}
        self._while_loop_runs = _while_loop_runs(self._muxes)
        # Who waits for a message, by its token or channel; "": who only sleeps.
        self._waiters: dict[str, set[LocalWaiter]] = {}
        self._early: OrderedDict[str, Wakeup] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._part = lru_cache(maxsize=1024)(part_of_holder)

    # Small things -----------------------------------------------------------------------------------------------

    def new_token(self) -> str:
        """See ``Runtime``."""
        task = asyncio.current_task()
        suffix = self._whose + self._part(task.get_name() if task is not None else "loop")
        try:
            return stock.pop() + suffix
        except IndexError:
            return secret() + suffix

    def who(self) -> Hashable:
        """See ``Runtime``: a task has its result or error, and that the lease, so the task is not kept."""
        # Hashed while it is there: later on it cannot be for the first time.
        hash(who := ref(asyncio.current_task() or self))
        return who

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
        self._mux = next((mux for (_, alone), mux in self._muxes.items() if not (alone or mux.dead)), None)
        if self._mux is None:
            await self._mux_to(await self._route.any_node(timeout), timeout)

    async def _mux_to(self, address: Address, timeout: float, *, alone: bool = False) -> Mux:
        """The connection to a node. Callers share one attempt; one that is cancelled does not end it for others.

        Args:
            address: The node.
            timeout: Seconds for each step of the connecting; with ``connect_timeout`` it may go on after that.
            alone: Whether it is the one beside that on which tasks listen: ``WAIT`` blocks it.
        """
        place = address, alone
        mux = self._muxes.get(place)
        if mux is not None and not mux.dead:
            return mux
        self._check(self._ending)
        opening = self._opening.get(place)
        if opening is None or opening.done():
            connects = max(self.connect_timeout or timeout, 0.25)
            opening = self.loop.create_task(self._open(place, connects), name="pawlock-connect")
            opening.add_done_callback(partial(self._opened, place))
            self._opening[place] = opening
        # `shield` would not say which of the two was cancelled: the end of a loop cancels both at once.
        await asyncio.wait((opening,), timeout=2 * max(timeout, 0.25) if self.connect_timeout else None)
        if not opening.done() or opening.cancelled():
            raise Fault(FaultKind.UNREACHABLE, f"no connection within {2 * max(timeout, 0.25):.3g} s")
        self._check(self._ending)
        try:
            opened: Mux = opening.result()
        finally:
            # Its error has this frame.
            del opening
        return opened

    def _opened(self, place: _Place, attempt: asyncio.Future[Any]) -> None:
        # Its error has the frames that have this runtime: kept here, the two would keep each other alive.
        if self._opening.get(place) is attempt:
            del self._opening[place]
        if not attempt.cancelled():
            # Else asyncio reports an error that nobody waits for any more.
            attempt.exception()

    async def _open(self, place: _Place, timeout: float) -> Mux:
        if not self._served:
            # Starting the embedded server must not stop the loop.
            with contextlib.suppress(PawlockError):
                await asyncio.to_thread(self._route.find)
        address, alone = place
        endpoint = await self._route.locate(address, timeout)
        channel = "" if alone else self._wake_prefix + secret()
        mux = await self._open_to(endpoint, partial(self._ended, place), channel, timeout)
        await self._have(place, mux)
        mux.patience = self.request_timeout or mux.patience
        if self._ending:
            # That is for who waits for it, if anybody does: a loop that shuts down reports what its tasks raise.
            mux.close()
        elif not alone and (self._mux is None or self._mux.dead):
            self._mux = mux
        return mux

    async def _have(self, place: _Place, mux: Mux) -> None:
        self._muxes[place] = mux
        if not self._served:
            self._served = True
            await anext(self._while_loop_runs)

    async def _open_to(
        self, endpoint: Endpoint, ended: Callable[[Mux], object], channel: str, timeout: float
    ) -> Mux:
        make = partial(Mux, self.loop, self._wake, ended)
        return await open_mux(endpoint, make, channel, timeout, first=not self._served)

    def _wake(self, word: str, wakeup: Wakeup) -> None:
        for waiter in self._waiters.get(word, ()):
            waiter.unpark(wakeup)
        if word not in self._waiters:
            self._early[word] = wakeup
            if len(self._early) > _KEPT_MESSAGES:
                self._early.popitem(last=False)

    def _ended(self, place: _Place, mux: Mux) -> None:
        if self._muxes.get(place) is mux:
            del self._muxes[place]
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
        if type(outcome) is not Fault:
            return outcome
        try:
            return or_raise(outcome)
        finally:
            # The fault has this frame.
            del outcome

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        if self._mux is None and token not in self._early:
            self._check(self._closed)
            return None
        # Before a service: its client asks again, since the connection broke on which it asked before.
        self._stir(token)
        return await self._listen(token, timeout)

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """See ``Runtime``. A list can only be waited for on a connection that blocks, and this one is shared."""
        how, where = hears
        mux = self._mux
        if how != "publish" or mux is None or mux.dead or mux.channel == NO_CHANNEL:
            await self.sleep(seconds)
        else:
            mux.hear(where)
            await self._listen(where, seconds)

    async def sleep(self, seconds: float) -> None:
        """See ``Runtime``."""
        await self._listen("", seconds)

    async def _listen(self, word: str, timeout: float) -> Wakeup | None:
        """Wait for a message, which may have come while its waiter asked; None if it does not come."""
        self._check(self._closed)
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
        self._check(self._closed)
        return woken or None

    async def pause(self, seconds: float) -> None:
        """See ``Runtime``."""
        await asyncio.sleep(seconds)

    # For the route ----------------------------------------------------------------------------------------------

    def over(self) -> bool:
        """See ``Nodes``."""
        return self._ending or self.gone()

    def leave_others(self, shown: str) -> bool:
        """See ``Nodes``."""
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
        if len(sent) == 1:
            # Without a task of its own.
            return dict.fromkeys(groups, await sent[0])
        return dict(zip(groups, await asyncio.gather(*sent), strict=True))

    async def _send_many(
        self, address: Address, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        try:
            mux = await self._mux_to(address, timeout, alone=bool(replicas))
            return await self.ask_replicas(mux.exchange, calls, replicas, timeout)
        except Fault as fault:
            return [(fault.without_traceback(), 0)] * len(calls)

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
        opening = [task for task in self._opening.values() if not task.done()]
        for task in opening:
            task.cancel()
        try:
            # Not `await task`: its end by cancellation and that of the caller's own task would be the same exception.
            if opening:
                await asyncio.wait(opening)
        finally:
            await self._while_loop_runs.aclose()

    def after_fork(self) -> None:
        """In the child: the loop is the parent's. Its connection is not closed here: the poller is shared with it."""
        self._ending = True
        self._route.after_fork()
        self._mux = None
        self._muxes = {}
        self._opening = {}


async def _while_loop_runs(muxes: Mapping[_Place, Mux]) -> AsyncGenerator[None]:
    """Close the connections at its end, also where the loop ends its generators, as ``asyncio.run`` does last of all."""
    try:
        yield
    finally:
        try:
            # Behind the first step of the others that the loop ends: they may give back what they hold.
            await asyncio.sleep(0)
            for mux in list(muxes.values()):
                # Also where the loop cancels this: what was just given back is to be free.
                await mux.drain_replies(max(_DRAIN_WITHIN, mux.patience))
        finally:
            for mux in list(muxes.values()):
                mux.close()
        # A loop that ends before they are closed would warn of it.
        await asyncio.sleep(0)


async def _reported(callback: Callable[[], object]) -> None:
    try:
        result = callback()
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("on_lost failed")
