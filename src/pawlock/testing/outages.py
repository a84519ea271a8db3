"""Takes leases, servers and processes away from the code under test, and brings them back."""

from __future__ import annotations

import gc
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from pawlock.core.base_lease import BaseLease
from pawlock.core.lease import HeldLease
from pawlock.core.outcomes import Granted
from pawlock.errors import LeaseLost
from pawlock.model import LossReason
from pawlock.primitives.multi.lease import BaseMultiLease, members_of

if TYPE_CHECKING:
    from pawlock.core.runtime import Call
    from pawlock.testing.clock import Timer, VirtualClock
    from pawlock.testing.server import Server

__all__ = ["AnyFaults", "Faults", "HasPid", "Outage", "lease_of", "members_of"]

_TOLD_WITHIN = 5.0
_LOOK_EVERY = 0.01


class HasPid(Protocol):
    """A process: of ``subprocess`` or of ``multiprocessing``."""

    @property
    def pid(self) -> int | None:
        """Its process id."""
        ...


class Outage:
    """Something that does not work now. As a context manager it ends with its block; ``end()`` ends it sooner."""

    def __init__(
        self,
        begin: Callable[[], object],
        end: Callable[[], object],
        seconds: float | None,
        clock: VirtualClock | None = None,
    ) -> None:
        """Begin; made by the methods of ``Faults`` and ``Sim``.

        Args:
            begin: What breaks.
            end: What ends the outage; runs once, possibly in a thread of its own.
            seconds: When it ends by itself; None: not.
            clock: What the seconds go by; None (default): the machine's.
        """
        if seconds is not None and not 0 < seconds < threading.TIMEOUT_MAX:
            raise ValueError(f"an outage must last more than 0 seconds, got {seconds!r}")
        self._fix = end
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._clock = clock
        self._timer: Timer | threading.Timer | None = None
        begin()
        if seconds is None:
            return
        if clock is not None:
            self._timer = clock.later(seconds, self._finish)
        else:
            timer = self._timer = threading.Timer(seconds, self._finish)
            timer.daemon = True
            timer.start()

    @property
    def over(self) -> bool:
        """Whether all works again."""
        return self._over.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it is over.

        Args:
            timeout: Seconds at most; None (default): as long as it takes.

        Returns:
            True if it is over.
        """
        clock = self._clock
        if clock is None:
            return self._over.wait(timeout)
        end = inf if timeout is None else clock.now() + timeout
        while not self.over and clock.now() < end:
            clock.nap().wait(min(_LOOK_EVERY, end - clock.now()))
        return self.over

    def end(self) -> None:
        """End the outage now; does nothing if it is over. An error of its own end is raised here."""
        if self._timer is not None:
            self._timer.cancel()
        self._finish()
        if self._error is not None:
            raise self._error

    def _finish(self) -> None:
        with self._guard:
            if self._over.is_set():
                return
            try:
                self._fix()
            except Exception as error:  # noqa: BLE001 - raised by `end()`, in the test's thread
                self._error = error
            self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class AnyFaults(ABC):
    """Takes leases away, has a server fail, and asks it who holds what.

    Args:
        url: The server, for ``pawlock.connect``.
        clock: What outages go by; None: the machine's.
    """

    def __init__(self, url: str, clock: VirtualClock | None = None) -> None:
        self.url: str = url
        self._clock = clock
        self._outages: list[Outage] = []
        self._outage: Outage | None = None

    # Leases -----------------------------------------------------------------------------------------------------

    def lose(self, lease: BaseLease | BaseMultiLease | str, reason: LossReason = LossReason.TAKEN) -> None:
        """Take a lease from its holder now: the loss is reported, and then the lock goes to the next waiter.

        It is what an expiry or an administrator does, without the waiting: ``lost`` is set, ``check()`` raises,
        the task inside ``async with`` is cancelled, ``release()`` raises ``NotHeld``, and others may lock the name.

        Args:
            lease: A lease of this process, of any primitive and either API; or a name, where the lease is deep in
                the code under test. Of a lease of several names, the first is lost.
            reason: The reason that is reported; default that it was taken away.

        Raises:
            ValueError: It is not held, so there is nothing to lose; or the name not by this process.
        """
        one = lease_of(lease) if isinstance(lease, str) else members_of(lease)[0]
        if not one.is_held():
            raise ValueError(f"{one!r} is not held")
        engine, hold = one.engine, one.hold
        engine.lose(hold, reason)
        if not hold.degraded:
            # Its client leaves too, in the background: twice does no harm, and the next line of a test may lock.
            self._run(hold.primitive.leave(hold.token, 0, 0))

    def assert_held(self, lease_or_name: BaseLease | BaseMultiLease | str) -> None:
        """Assert that a lease is good, by its own clock and by the server; or that somebody holds a name.

        Args:
            lease_or_name: A lease; or the name of a ``lock``, ``rlock`` or ``fair_lock`` in the default namespace.

        Raises:
            AssertionError: It is not held.
        """
        if isinstance(lease_or_name, str):
            assert self._holds(lease_or_name), f"nobody holds {lease_or_name!r}"
            return
        for lease in members_of(lease_or_name):
            try:
                lease.check()
            except LeaseLost as error:
                raise AssertionError(str(error)) from None
            # A renewal by one millisecond asks, and changes nothing: no script lowers an expiry.
            outcome = self._run(lease.hold.primitive.renew(lease.hold.token, 1, 1, ""))
            held = isinstance(outcome, Granted)
            assert held, f"the test's server does not know {lease!r}; it answers {outcome!r}"

    def assert_free(self, name: str) -> None:
        """Assert that nobody holds a name.

        Args:
            name: The name of a ``lock``, ``rlock`` or ``fair_lock`` in the default namespace.

        Raises:
            AssertionError: Somebody does.
        """
        assert not self._holds(name), f"somebody holds {name!r}"

    def _holds(self, name: str) -> bool:
        from pawlock import connect

        def ask() -> bool:
            with connect(self.url) as client:
                return client.inspect(name).held

        # A client for threads refuses to block an event loop, in which the test may run.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(ask).result()

    # The server -------------------------------------------------------------------------------------------------

    def down(self, seconds: float | None = None, *, keep_data: bool = True) -> Outage:
        """Crash the server: connections break, and new ones are refused until it comes back.

        Args:
            seconds: When it comes back by itself. None (default): at the end of the ``with`` block or of the test.
            keep_data: True (default): with what it knew, less what has expired meanwhile. False: empty, as a server
                without persistence does.

        Returns:
            The outage, which has begun.

        Raises:
            RuntimeError: The server is down or frozen already.
        """
        return self._break(lambda: self._crash(keep_data=keep_data), self._come_back, seconds)

    def frozen(self, seconds: float | None = None) -> Outage:
        """Freeze the server: connections stay, nothing is answered; what was sent is served when it goes on.

        Args:
            seconds: When it goes on by itself. None (default): at the end of the ``with`` block or of the test.

        Returns:
            The outage, which has begun.

        Raises:
            RuntimeError: The server is down or frozen already.
        """
        return self._break(self._freeze, self._thaw, seconds)

    def fix(self) -> None:
        """End every outage, the latest first.

        Raises:
            ExceptionGroup: Some could not be ended.
        """
        errors: list[Exception] = []
        while self._outages:
            try:
                self._outages.pop().end()
            except Exception as error:  # noqa: BLE001 - raised below; the other outages must end, too
                errors.append(error)
        if errors:
            raise ExceptionGroup("not all works again", errors)

    def _break(self, begin: Callable[[], object], end: Callable[[], object], seconds: float | None) -> Outage:
        if self._outage is not None and not self._outage.over:
            raise RuntimeError("the server is down or frozen already")
        self._outage = self._begin(begin, end, seconds)
        return self._outage

    def _begin(self, begin: Callable[[], object], end: Callable[[], object], seconds: float | None) -> Outage:
        outage = Outage(begin, end, seconds, self._clock)
        self._outages.append(outage)
        return outage

    @abstractmethod
    def _run(self, call: Call) -> Any:
        """Run a script on the server; its answer."""

    @abstractmethod
    def _crash(self, *, keep_data: bool) -> None: ...

    @abstractmethod
    def _come_back(self) -> None: ...

    @abstractmethod
    def _freeze(self) -> None: ...

    @abstractmethod
    def _thaw(self) -> None: ...


class Faults(AnyFaults):
    """Breaks what locks rely on, at the moment that a test chooses, on a throw-away server."""

    def __init__(self, server: Server) -> None:
        """Break nothing yet.

        Args:
            server: The server that the code under test uses.
        """
        super().__init__(server.url)
        self._server = server

    def paused(self, process: HasPid | int, seconds: float | None = None) -> Outage:
        """Stop a process as a swapping or suspended machine does, and let it go on later: a holder, mostly.

        Args:
            process: A process of ``subprocess`` or ``multiprocessing``, or its id.
            seconds: When it goes on by itself. None (default): at the end of the ``with`` block or of the test.

        Returns:
            The outage, which has begun.

        Raises:
            ValueError: It was not started, or is the process of the test itself.
            ProcessLookupError: It has ended.
        """
        pid = process if isinstance(process, int) else process.pid
        if pid is None or pid <= 0 or pid == os.getpid():
            raise ValueError(f"{process!r} is not another process")

        def resume() -> None:
            # It may have been killed meanwhile.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        return self._begin(lambda: os.kill(pid, signal.SIGSTOP), resume, seconds)

    def _run(self, call: Call) -> Any:
        script = call.script
        return call.answer(self._server.command("EVAL", script.source, script.numkeys, *call.words(), 0))

    def _crash(self, *, keep_data: bool) -> None:
        if keep_data:
            self._server.command("SAVE")
        self._server.kill()

    def _come_back(self) -> None:
        self._server.start()

    def _freeze(self) -> None:
        self._server.pause()

    def _thaw(self) -> None:
        self._server.resume()


def lease_of(name: str) -> HeldLease:
    """Find who holds a name in this process; the code under test keeps its lease to itself."""
    for one in gc.get_objects():
        # By the type: objects that stand for others answer for `__class__`, and some of them do something then.
        if issubclass(type(one), HeldLease) and one.name == name and one.is_held():
            return cast("HeldLease", one)
    raise ValueError(f"no lease of this process holds {name!r}")
