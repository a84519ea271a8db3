"""The third runtime: the core's coroutines on virtual time.

It behaves like either API. As ``tasks`` one connection serves the whole process, requests are matched by their ids,
and silence condemns the connection. As ``threads`` each task holds a connection of its own, on which it also listens,
and any request without a reply in time ends it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from contextlib import AbstractContextManager
from math import inf
from threading import RLock
from typing import TYPE_CHECKING, Any

from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import NO_CHANNEL, Acknowledged, Call, Fault, FaultKind, Parker, Wakeup
from tests.simulator.network import Link, Network, Request
from tests.simulator.waits import Group, Sleep
from tests.simulator.world import Process, Task, suspend, waits

if TYPE_CHECKING:
    from tests.simulator.fleet import Fleet
    from tests.simulator.node import Node

__all__ = ["SimRuntime"]

# There is one thread; of the guards that cost nothing this costs least.
_NO_GUARD: AbstractContextManager[object] = RLock()
_PATIENCE = 0.25
_SILENT = 2
_TOLD_AGAIN = 0.1
_SHARE = 0.75


class SimRuntime:
    """See ``pawlock.core.runtime.Runtime``.

    Args:
        process: Where it runs.
        network: What its connections run through.
        fleet: Where they lead to; asked anew for each connection, as a failover moves it.
        api: ``"threads"`` or ``"tasks"``.
        deaf: True for a user that may not subscribe.
    """

    @property
    def fence_strength(self) -> str:
        """See ``Runtime``."""
        return "server"

    def __init__(
        self, process: Process, network: Network, fleet: Fleet, api: str, *, deaf: bool = False
    ) -> None:
        self._process = process
        self._world = process.world
        self._network = network
        self._fleet = fleet
        self.servers: list[Node] = fleet.nodes
        self._threads = api == "threads"
        self._deaf = deaf
        self._links: dict[Task, Link] = {}
        self._mux: Link | None = None
        self._connecting: list[tuple[Task, int]] | None = None
        self._waiters: dict[str, Sleep] = {}
        self._early: dict[str, Wakeup] = {}
        self._sleepers: dict[Sleep, None] = {}
        self._bell = Sleep(process)
        self._maintenance: Task | None = None
        self._tokens = 0
        self._channels = 0
        self._served = False
        self._led_to: Node | None = None
        self._idle_links: list[Link] = []
        self.on_move: Callable[[], object] | None = None
        self.connect_timeout: float | None = None
        self.closing: bool = False
        self.ending: bool = False
        self.failed: Callable[[BaseException], object] = _raise
        self.now: Callable[[], float] = process.clock.boot
        self.random: Callable[[], float] = self._world.random.random

    # Small things -----------------------------------------------------------------------------------------------

    def _me(self) -> Task:
        task = self._world.current
        if task is None:
            raise AssertionError("the core runs in tasks alone")
        return task

    def new_token(self) -> str:
        """See ``Runtime``."""
        self._tokens += 1
        task = self._world.current
        name = task.name if task is not None else "loop"
        return f"{self._tokens:022}@{self._process.name}:{self._process.life}/{name}"

    def who(self) -> Hashable:
        """See ``Runtime``."""
        return self._world.current

    def mutex(self) -> AbstractContextManager[object]:
        """See ``Runtime``: tasks change at awaits alone."""
        return _NO_GUARD

    def parker(self) -> Parker:
        """See ``Runtime``."""
        return Sleep(self._process)

    def _link(self) -> Link | None:
        link = self._links.get(self._me()) if self._threads else self._mux
        return None if link is None or link.dead else link

    def channel(self) -> str:
        """See ``Runtime``."""
        link = self._link()
        return "" if link is None else NO_CHANNEL if self._deaf else link.channel

    # Connection -------------------------------------------------------------------------------------------------

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``."""
        if self._link() is None:
            await self._connect(timeout)

    async def _connect(self, timeout: float, patience: float | None = None) -> Link:
        if self.ending:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        timeout = max(timeout, _PATIENCE)
        if self._threads:
            return await self._open(self._me(), timeout)
        # Tasks share one attempt; one that is cancelled does not end it for the others.
        task = self._me()
        if self._connecting is None:
            self._connecting = []
            Task(self._process, "connect", self._share(timeout * 2), _ended)
        self._connecting.append((task, task.step))
        if patience is not None:
            task.over_in(patience)
        outcome = await suspend()
        if isinstance(outcome, Fault):
            raise Fault(outcome.kind, outcome.text, final=outcome.final)
        if self._mux is None or self._mux.dead:
            raise Fault(FaultKind.UNREACHABLE, "the connection is gone")
        return self._mux

    async def _share(self, timeout: float) -> None:
        outcome: Fault | None = None
        try:
            await self._open(None, timeout)
        except Fault as fault:
            outcome = fault
        waiting, self._connecting = self._connecting or [], None
        for task, step in waiting:
            task.wake(step, outcome)

    async def _open(self, owner: Task | None, timeout: float, *, idle: bool = False) -> Link:
        link = await self._linked(self._fleet.master, timeout)
        if self._led_to is not link.node:
            if self._led_to is not None and self.on_move is not None:
                self.on_move()
            self._led_to = link.node
        if idle:
            self._idle_links.append(link)
        elif owner is None:
            self._mux = link
        else:
            self._links[owner] = link
        return link

    async def _linked(self, node: Node, timeout: float) -> Link:
        self._channels += 1
        channel = f"wake:{self._process.name}:{self._process.life}:{self._channels}"
        link = Link(self._network, self._process, node, channel, self._woken, self._gone)
        task, step = self._me(), self._me().step
        link.handshake(lambda fault: task.wake(step, fault or link))
        task.over_in(timeout)
        outcome = await suspend()
        if outcome is None:
            raise Fault(FaultKind.UNREACHABLE, f"no connection within {timeout:.3g} s")
        if isinstance(outcome, Fault):
            final = outcome.kind is FaultKind.READ_ONLY and not self._served
            raise Fault(outcome.kind, outcome.text, final=final)
        if self.ending:
            link.close(Fault(FaultKind.CLOSED, "the client is closed", final=True))
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        self._served = True
        return link

    def _gone(self, link: Link) -> None:
        if self._mux is link:
            self._mux = None
        for task in [task for task, held in self._links.items() if held is link]:
            del self._links[task]
        if not self._threads:
            # Messages may have been missed: every waiter asks.
            for waiter in list(self._waiters.values()):
                waiter.unpark(False)
            return
        for waiter in list(self._waiters.values()):
            # The thread that listens on this very connection notices.
            if waiter.task is not None and waiter.task not in self._links:
                waiter.unpark(False)

    # Requests ---------------------------------------------------------------------------------------------------

    def _post(
        self,
        link: Link,
        call: Call,
        timeout: float,
        answered: Callable[[int, Any], object],
        index: int = 0,
        *,
        wait: float = 0.0,
        by_text: bool = False,
    ) -> None:
        task = self._world.current
        deadline = self._process.clock.monotonic() + timeout
        link.send(
            Request(call, answered, index, "cast" if task is None else task.doing, deadline, wait, by_text)
        )
        # One timer for all requests of a connection: most are answered long before.
        if deadline < link.look_at:
            link.look_at = deadline
            self._process.timer(timeout, self._look, link)

    def _look(self, link: Link) -> None:
        now = self._process.clock.monotonic()
        if link.dead or now < link.look_at - 1e-9:
            return
        link.look_at = inf
        for request in list(link.pending.values()):
            overdue = request.answered is not None and request.deadline <= now + 1e-9
            if overdue and not self._overdue(link, request):
                return
        waiting = [request.deadline for request in link.pending.values() if request.answered is not None]
        if waiting:
            link.look_at = min(waiting)
            self._process.timer(link.look_at - now, self._look, link)

    def _overdue(self, link: Link, request: Request) -> bool:
        """Give up a request; False if the connection goes with it."""
        self._process.gave_up_at = self._world.now
        fault = Fault(FaultKind.UNANSWERED, "no answer in time", maybe_applied=True)
        if self._threads:
            link.close(fault)
            return False
        # It stays in its place in the order, with nobody to tell.
        request.end(fault)
        if link.heard_at < request.sent_at:
            link.silent += 1
            if self._world.now - request.sent_at >= _PATIENCE or link.silent >= _SILENT:
                link.close(Fault(FaultKind.UNANSWERED, "the server is silent", maybe_applied=True))
                return False
        return True

    @property
    def several(self) -> bool:
        """See ``Carrier``."""
        return False

    @waits
    def call(self, call: Call, timeout: float) -> Generator[None, Any, Outcome]:
        """See ``Runtime``."""
        link = self._link()
        if link is None:
            link = yield from self._connect(timeout).__await__()
        return (yield from self._answer(link, call, timeout))

    def _answer(self, link: Link, call: Call, timeout: float) -> Generator[None, Any, Outcome]:
        task = self._me()
        self._post(link, call, timeout, task.wake, task.step)
        reply = yield
        if not isinstance(reply, Fault):
            return reply
        try:
            raise reply
        finally:
            # The error's traceback has this frame: the two, and the caller's leases, would keep each other alive.
            del reply

    async def call_many(self, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        """See ``Runtime``."""
        try:
            link = self._link() or await self._connect(timeout, timeout)
        except Fault as fault:
            return [fault] * len(calls)
        return await self._ask_many(link, calls, timeout)

    async def _ask_many(self, link: Link, calls: Sequence[Call], timeout: float) -> list[Outcome | Fault]:
        group = Group(self._me(), len(calls))
        for index, call in enumerate(calls):
            self._post(link, call, timeout, group.put, index)
        outcomes: list[Outcome | Fault] = await suspend()
        return outcomes

    async def call_replicated(self, calls: Sequence[Call], _: int, timeout: float) -> list[Acknowledged]:
        """See ``Carrier``: scripts, a write that changes nothing, and ``WAIT``, in one go on one connection."""
        return await self._replicated(await self._own_link(timeout), calls, timeout)

    async def _replicated(self, link: Link, calls: Sequence[Call], timeout: float) -> list[Acknowledged]:
        group = Group(self._me(), len(calls) + 1)
        for index, (one, wait) in enumerate([*((call, 0.0) for call in calls), (calls[0], timeout * _SHARE)]):
            self._post(link, one, timeout, group.put, index, wait=wait, by_text=True)
        *outcomes, acknowledged = await suspend()
        for outcome in (*outcomes, acknowledged):
            if isinstance(outcome, Fault):
                link.close(outcome)
                raise Fault(outcome.kind, outcome.text, maybe_applied=True)
        if not self._threads:
            self._idle_links.append(link)
        return [(outcome, acknowledged[2]) for outcome in outcomes]

    async def _own_link(self, timeout: float) -> Link:
        if self._threads:
            return self._link() or await self._connect(timeout)
        while self._idle_links:
            link = self._idle_links.pop()
            if not link.dead:
                return link
        link = await self._open(None, max(timeout, _PATIENCE), idle=True)
        self._idle_links.remove(link)
        return link

    # Waiting ----------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float, local_waiter: Sleep | None = None) -> None:
        """See ``Runtime``."""
        if not self.closing:
            local_waiter = local_waiter or Sleep(self._process)
            self._sleepers[local_waiter] = None
            try:
                await local_waiter.park(seconds)
            finally:
                del self._sleepers[local_waiter]
        if self.closing:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)

    async def pause(self, seconds: float) -> None:
        """See ``Runtime``."""
        await Sleep(self._process).park(seconds)

    def _woken(self, token: str, wakeup: Wakeup) -> None:
        waiter = self._waiters.get(token)
        if waiter is not None:
            waiter.unpark(wakeup)
        else:
            self._early[token] = wakeup

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """See ``Runtime``: the messages of other programs are hints, and all of them are lost here."""
        del hears
        await self.sleep(seconds)

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        if self.closing:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        early = self._early.pop(token, None)
        if early is not None:
            return early
        if self._link() is None:
            return None
        waiter = self._waiters[token] = Sleep(self._process)
        try:
            woken = await waiter.park(timeout)
        finally:
            del self._waiters[token]
        if self.closing:
            raise Fault(FaultKind.CLOSED, "the client is closed", final=True)
        return woken or None

    # Upkeep -----------------------------------------------------------------------------------------------------

    def spawn_maintenance(self, maintenance: Callable[[], Awaitable[None]]) -> str:
        """See ``Background``."""
        if self._process.alive and not self.ending and (self._maintenance is None or self._maintenance.done):
            self._maintenance = Task(self._process, "maintenance", self._serve(maintenance), _ended)
            self._maintenance.doing = "maintenance"
        return "the client is closed" if self.ending else ""

    async def _serve(self, maintenance: Callable[[], Awaitable[None]]) -> None:
        while not self.ending:
            try:
                await maintenance()
            except Exception as error:  # noqa: BLE001 - told as a violation
                self.failed(error)
                await self.pause(_TOLD_AGAIN)

    async def idle(self, until: float | None) -> bool:
        """See ``Background``."""
        if not self.ending:
            await self._bell.park(None if until is None else max(0.0, until - self.now()))
        return not self.ending

    async def key_for_each(self, key_of: Callable[[int], str], timeout: float) -> Sequence[str]:
        """See ``Runtime``: there is one server."""
        del timeout
        return [key_of(0)]

    def nudge(self) -> None:
        """See ``Background``."""
        self._bell.unpark()

    def abandon(self) -> None:
        """See ``Background``."""
        self.ending = True
        self.nudge()

    def gone(self) -> bool:
        """See ``Runtime``."""
        return False

    def run_in_owner(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``."""
        callback()

    def report(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``."""
        self._process.soon(lambda _: callback())

    def new_threads(self) -> None:
        """Other threads go on with the work; here they keep their connections."""

    # The end ----------------------------------------------------------------------------------------------------

    def interrupt_waiters(self) -> None:
        """Wake every task that sleeps in a call of this client; their calls end with ``Fault`` CLOSED."""
        self.closing = True
        for local_waiter in (*self._waiters.values(), *self._sleepers):
            local_waiter.unpark(False)

    def shut_down(self) -> None:
        """End the maintenance and close all connections."""
        self.ending = True
        self.nudge()
        fault = Fault(FaultKind.CLOSED, "the client is closed", final=True)
        for link in (*self._links.values(), *self._idle_links, self._mux):
            if link is not None:
                link.close(fault)


def _ended(task: Task, error: BaseException | None) -> None:
    if error is not None and task.name != "connect":
        raise AssertionError(f"{task.name} ended") from error


def _raise(error: BaseException) -> None:
    raise error
