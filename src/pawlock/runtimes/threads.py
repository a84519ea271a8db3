"""The runtime of threads: every call blocks its thread, so an operation of the core never suspends.

Each thread holds one connection, on which it also sleeps while it waits for a hand-off: the kernel wakes it without
a detour through another thread. The connection goes with the thread.
"""

from __future__ import annotations

import _thread
import logging
import socket
import threading
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary, ref

from pawlock._system import LOCAL, SOCKET, greenlet_error, monotonic, sleep
from pawlock._warn import warn
from pawlock.core.names import part_of_holder
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import NO_CHANNEL, Acknowledged, Call, Fault, FaultKind, Parker, Wakeup, suspended
from pawlock.core.runtime import run as finish
from pawlock.errors import Reentered
from pawlock.runtimes.shared import Routed, leave_signals_to_main, living, secret, start_thread, stock
from pawlock.topology.cluster import Address
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.link import Link, Turn, ask_sync, by_turns
from pawlock.transport.route import Route

__all__ = ["ThreadRuntime", "at_once", "run", "run_aside"]

T = TypeVar("T")

log: logging.Logger = logging.getLogger("pawlock.threads")

_HANDSHAKE = 0.25
"""Seconds for it at least: twenty milliseconds serve a script, but not a handshake on a busy machine."""


class _Gate(threading.local):
    """The operation that a thread is in, and the event loop that was last warned of."""

    operation: Any = None
    loop: Callable[[], object] = staticmethod(lambda: None)


_gate = _Gate()


def run(operation: Coroutine[Any, Any, T]) -> T:
    """Finish an operation that a thread was called for: one at a time in each thread.

    Raises:
        Reentered: The thread is in another one.
        NotSupported: Greenlets would count as one thread.
    """
    inside = _gate.operation
    late = greenlet_error() if threading.local is not LOCAL or socket.socket is not SOCKET else None
    if late or (inside is not None and inside.cr_running):
        operation.close()
        raise late or Reentered(
            "called from a signal handler on top of a pawlock call: set an event, or raise"
        )
    _gate.operation = operation
    try:
        operation.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        # One that was interrupted before its first step would keep what it is to work on.
        _gate.operation = None
    raise suspended(operation)


def at_once(acquisition: Coroutine[Any, Any, T]) -> T:
    """Finish an acquisition; warn, once for each event loop, if it blocks one."""
    loop = _get_running_loop()
    if loop is not None and _gate.loop() is not loop:
        _gate.loop = ref(loop)
        try:
            text = "a sync pawlock client blocks this event loop: use pawlock.connect_async() in asyncio code"
            warn(text)
        except BaseException:
            acquisition.close()
            raise
    return run(acquisition)


def run_aside(work: Callable[[], object], timeout: float) -> bool:
    """Do something here; where this thread is in a call of pawlock, in another one, for ``timeout`` seconds at most.

    Returns:
        Whether it was done here.
    """
    inside = _gate.operation
    if inside is None or not inside.cr_running:
        work()
        return True
    done = _thread.allocate_lock()
    done.acquire()

    def do() -> None:
        leave_signals_to_main()
        try:
            work()
        finally:
            done.release()

    # Not ``threading.Thread``: the call below may be in the middle of starting one, with the lock that this needs.
    try:
        _thread.start_new_thread(do, ())
    except RuntimeError as error:
        log.warning("no thread can start: %s", error)
    else:
        done.acquire(timeout=timeout)
    return False


class _ThreadParker:
    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    async def park(self, timeout: float | None) -> bool:
        return self.rest(None if timeout is None else max(0.0, timeout))

    def rest(self, timeout: float | None) -> bool:
        return self._lock.acquire(True, -1 if timeout is None else timeout)

    def unpark(self) -> None:
        try:  # noqa: SIM105 - a context made in Python costs as much as the whole hand-over's arithmetic
            self._lock.release()
        except RuntimeError:
            pass


class _Local(threading.local):
    """What belongs to one thread. Each look-up costs as much as a call."""

    def __init__(self, whose: str) -> None:
        thread = threading.current_thread()
        # The one on which it listens, and all.
        self.link: Link | None = None
        self.links: dict[Address, Link] = {}
        # What it connects to in other threads.
        self.attempts: dict[Address, Future[Link]] = {}
        self.who: Hashable = ref(thread)
        # While it is there: later on it cannot be for the first time.
        hash(self.who)
        self.suffix: str = whose + part_of_holder(thread.name)


class ThreadRuntime(Routed):
    """See ``pawlock.core.runtime.Runtime``."""

    def __init__(self, route: Route, wake_prefix: str) -> None:
        super().__init__(route, wake_prefix)
        route.begin(self)
        self._begin()

    def _begin(self) -> None:
        """Without a thread and a connection."""
        self._local = _Local(self._whose)
        self._links: WeakValueDictionary[int, Link] = WeakValueDictionary()
        self._starting = threading.RLock()
        self._idle_lock = threading.Lock()
        self._idle_lock.acquire()
        self._resting: dict[int, _ThreadParker] = {}
        self._maintenance: threading.Thread | None = None

    # Small things -----------------------------------------------------------------------------------------------

    def new_token(self) -> str:
        """See ``Runtime``."""
        try:
            return stock.pop() + self._local.suffix
        except IndexError:
            return secret() + self._local.suffix

    def who(self) -> Hashable:
        """See ``Runtime``."""
        return self._local.who

    def parker(self) -> Parker:
        """See ``Runtime``."""
        return _ThreadParker()

    def channel(self) -> str:
        """See ``Runtime``."""
        link = self._local.link
        return "" if link is None or link.dead else link.channel

    # Connections ------------------------------------------------------------------------------------------------

    async def ready(self, timeout: float) -> None:
        """See ``Runtime``."""
        link = self._local.link
        if link is None or link.dead:
            links = self._local.links.values()
            link = self._local.link = next((link for link in links if not link.dead), None)
        if link is None:
            await self._link_to(await self._route.any_node(timeout), timeout, within=timeout)

    async def _link_to(
        self, address: Address, timeout: float, end: float | None = None, within: float | None = None
    ) -> Link:
        here = self._local
        link = here.links.get(address)
        if link is None or link.is_over():
            here.links.pop(address, None)
            self._check(self._ending)
            within = max(within or self.connect_timeout or timeout, _HANDSHAKE)
            link = here.links[address] = await self._connected(address, within, end)
            if here.link is None or here.link.dead:
                here.link = link
        return link

    async def _connected(self, address: Address, timeout: float, end: float | None) -> Link:
        """By turns in another thread: nothing bounds a name server or the user's login, and leases end meanwhile."""
        if end is None:
            return self._connect(address, timeout)
        attempts = self._local.attempts
        if address not in attempts:
            attempts[address] = self._attempt(address, timeout)
        while not attempts[address].done():
            if monotonic() > end:
                raise Fault(FaultKind.UNREACHABLE, "no connection in time")
            wait((attempts[address],), 0.001)
            await Turn()
        # No local variable has it: its error has this frame.
        return attempts.pop(address).result()

    def _attempt(self, address: Address, timeout: float) -> Future[Link]:
        attempt = Future[Link]()

        def connect() -> None:
            try:
                attempt.set_result(self._connect(address, timeout))
            except BaseException as error:  # noqa: BLE001 - for who waits for it
                attempt.set_exception(error.without_traceback() if isinstance(error, Fault) else error)

        if start_thread(threading.Thread(target=connect, name="pawlock-connect", daemon=True)):
            connect()
        return attempt

    def _connect(self, address: Address, timeout: float) -> Link:
        return self._connect_to(finish(self._route.locate(address, timeout)), timeout)

    def _connect_to(self, endpoint: Endpoint, timeout: float) -> Link:
        link = Link(endpoint, self._wake_prefix + secret(), timeout, first=not self._served)
        self._served = True
        self._links[id(link)] = link
        return link

    async def call(self, call: Call, timeout: float) -> Outcome:
        """See ``Runtime``."""
        link = self._local.link
        if link is None or link.dead or self._several:
            return await self._route.call(call, timeout)
        return link.ask(call, timeout)

    async def wait_wakeup(self, token: str, timeout: float) -> Wakeup | None:
        """See ``Runtime``."""
        self._check(self._closed)
        link = self._local.link
        if link is None or link.dead:
            return None
        wakeup = link.wait(token, timeout)
        self._check(self._closed)
        return wakeup

    async def hear(self, hears: tuple[str, str], seconds: float) -> None:
        """See ``Runtime``: on the thread's own connection."""
        link = self._local.link
        heard = link is not None and not (link.dead or link.channel == NO_CHANNEL or self._closed)
        most = self.request_timeout or 1.0
        await self.sleep(0.0 if link is not None and heard and link.hear(hears, seconds, most) else seconds)

    async def sleep(self, seconds: float) -> None:
        """See ``Runtime``."""
        parker = _ThreadParker()
        self._resting[id(parker)] = parker
        try:
            if not self._closed:
                parker.rest(seconds)
        finally:
            self._resting.pop(id(parker), None)
        self._check(self._closed)

    async def pause(self, seconds: float) -> None:
        """See ``Runtime``."""
        sleep(seconds)  # the sync API blocks its thread

    # For the route ----------------------------------------------------------------------------------------------

    def over(self) -> bool:
        """See ``Nodes``."""
        return self._ending

    def leave_others(self, shown: str) -> bool:
        """See ``Nodes``."""
        stale = [link for link in living(self._links) if link.shown != shown and not link.dead]
        for link in stale:
            link.interrupt()
        return bool(stale)

    async def ask_node(self, endpoint: Endpoint, words: tuple[str, ...], timeout: float) -> object:
        """See ``Nodes``."""
        return await ask_sync(endpoint, words, timeout)

    async def send_one(self, address: Address, call: Call, timeout: float) -> Outcome:
        """See ``Nodes``."""
        return (await self._link_to(address, timeout)).ask(call, timeout)

    async def send_groups(
        self, groups: Mapping[Address, Sequence[Call]], replicas: int, timeout: float
    ) -> dict[Address, list[Acknowledged]]:
        """See ``Nodes``: all at once, so that one that hangs does not take the time of the others."""
        turns = len(groups) > 1 or threading.current_thread() is self._maintenance
        end = monotonic() + (timeout if self._several else max(timeout, _HANDSHAKE)) if turns else None
        found: dict[Address, list[Acknowledged]] = {}

        async def send(address: Address) -> None:
            try:
                link = await self._link_to(address, timeout, end)
                left = timeout if end is None else min(timeout, max(0.001, end - monotonic()))
                exchange = partial(link.exchange_now, turns=turns)
                found[address] = await self.ask_replicas(exchange, groups[address], replicas, left)
            except Fault as fault:
                found[address] = [(fault.without_traceback(), 0)] * len(groups[address])

        by_turns([send(address) for address in groups])
        return found

    # Upkeep -----------------------------------------------------------------------------------------------------

    def spawn_maintenance(self, maintenance: Callable[[], Awaitable[None]]) -> str:
        """See ``Background``."""
        with self._starting:
            if self._ending:
                return "the client is closed"
            if self.served:
                return ""
            thread = self._maintenance = threading.Thread(
                target=self._serve, args=(maintenance,), name="pawlock-maintenance", daemon=True
            )
            return start_thread(thread)

    def _serve(self, maintenance: Callable[[], Any]) -> None:
        leave_signals_to_main()
        # Another one: a signal handler started it in the middle of the start of this one.
        while not self._ending and threading.current_thread() is self._maintenance:
            try:
                finish(maintenance())
            except Exception:
                # Leases must go on being renewed, and their ends reported, whatever went wrong once.
                log.exception("background maintenance failed; it continues")
                self._idle_lock.acquire(timeout=0.1)
        if self._ending:
            self._drain_replies()
        self._local.link, self._local.links = None, {}

    async def idle(self, until: float | None) -> bool:
        """See ``Background``."""
        if not self._ending:
            self._idle_lock.acquire(timeout=-1 if until is None else max(0.0, until - self.now()))
        return not self._ending

    def nudge(self) -> None:
        """See ``Background``. One step in C, so that a finaliser may call it inside any lock."""
        try:  # noqa: SIM105 - at the end of the interpreter contextlib may be gone already
            self._idle_lock.release()
        except RuntimeError:
            pass

    def gone(self) -> bool:
        """See ``Runtime``: a thread may always come."""
        return False

    def run_in_owner(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``: every thread may wake every other."""
        callback()

    def report(self, callback: Callable[[], object]) -> None:
        """See ``Runtime``."""
        thread = threading.Thread(target=_reported, args=(callback,), name="pawlock-on-lost", daemon=True)
        if refused := start_thread(thread):
            # What can be reported must still be.
            log.warning("%s cannot start: %s", thread.name, refused)
            _reported(callback)

    # The end ----------------------------------------------------------------------------------------------------

    def interrupt_waiters(self) -> None:
        """Wake every thread that sleeps in a call of this client; their calls end with ``Fault`` CLOSED."""
        self._closed = True
        for parker in list(self._resting.values()):
            parker.unpark()
        for link in living(self._links):
            if link.waiting:
                link.interrupt()

    def shut_down(self, timeout: float) -> None:
        """End the maintenance and close all connections."""
        self._ending = True
        self.nudge()
        maintenance = self._maintenance
        # One that a signal interrupted before its start can be waited for as little as one that is over.
        if maintenance is not None and self.served and maintenance is not threading.current_thread():
            maintenance.join(timeout)
        if not self.served:
            # Else that reads them, to its end.
            self._drain_replies()
        for link in living(self._links):
            link.close()

    def _drain_replies(self) -> None:
        """Wait for replies that are still outstanding; here nobody is left without an answer."""

    @property
    def served(self) -> bool:
        """Whether the maintenance still runs."""
        return self._maintenance is not None and self._maintenance.is_alive()

    def abandon(self) -> None:
        """See ``Background``: no locks."""
        self._ending = True
        self.nudge()

    def after_fork(self) -> None:
        """In the child: no thread and no connection of the parent is ours. Closing our copies leaves theirs open."""
        links = living(self._links)
        self._identify()
        self._begin()
        self._closed = False
        self._route.after_fork()
        for link in links:
            link.close()


def _reported(callback: Callable[[], object]) -> None:
    leave_signals_to_main()
    try:
        callback()
    except Exception:
        log.exception("on_lost failed")
