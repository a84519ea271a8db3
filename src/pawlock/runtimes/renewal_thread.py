"""The thread that renews the leases of an event loop while that is blocked.

It is started with the first lease of a client in a loop (nothing in a blocked loop could start it later) and sleeps
from one due renewal to the next. It opens connections only once a renewal is late and the loop does not answer, and
closes them when the loop is back. It ends with the client, with the loop, with the thread of the loop, and after
some seconds without any lease.
"""

from __future__ import annotations

import gc
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING
from weakref import ref

from pawlock.core.keep.late_renewal import Late, look_for_late, renew_late
from pawlock.core.protocol.runtime import run
from pawlock.runtimes.shared import leave_signals_to_main, start_thread
from pawlock.transport.one_sleeper import OneSleeper

if TYPE_CHECKING:
    import asyncio
    from types import FrameType

    from pawlock.core.keep.engine import Engine
    from pawlock.runtimes.threads import ThreadRuntime

__all__ = ["LoopRenewalThread", "frames_of_threads"]

log: logging.Logger = logging.getLogger("pawlock.asyncio")

_LOOK_AGAIN = 1.0
"""Seconds that it sleeps at most: so soon the end of a loop or client is noticed that nobody closed."""

_IDLE_FOR = 5.0
"""Seconds without a lease after which it ends."""

_LEAST_SLEEP = 0.005
_ANSWER_WITHIN = 0.05
_MOST_FRAMES = 20


def frames_of_threads() -> dict[int, FrameType]:
    """Where each thread is, by its ident.

    Before 3.11.9, CPython holds an interpreter lock while it collects the frames. A garbage collection in the middle
    may switch to another thread, which waits for that lock while it holds the GIL: the process deadlocks
    (python/cpython#106883). Hence no garbage collection meanwhile; later versions run none there.
    """
    if sys.version_info >= (3, 11, 9) or not gc.isenabled():
        return sys._current_frames()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()


class LoopRenewalThread:
    """See ``pawlock.core.protocol.runtime.RenewalThread``.

    Args:
        loop: The loop; its thread makes this object.
        engine: What the client keeps for the loop.
        make: Makes a runtime of threads for the same servers.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, engine: Engine, make: Callable[[], ThreadRuntime]
    ) -> None:
        self._loop = loop
        self._engine = ref(engine)
        self._make = make
        self._guard = threading.RLock()
        self._loop_thread = 0
        self._sleeper = OneSleeper()
        self._thread: threading.Thread | None = None
        self._runtime: ThreadRuntime | None = None
        self._answered: OneSleeper | None = None
        self._blocked_since: float | None = None
        self._stopped = False
        self._writer: threading.Thread | None = None

    def wake(self) -> None:
        """See ``RenewalThread``."""
        if self._stopped:
            return
        self._loop_thread = threading.get_ident()
        if self._thread is not None:
            self._sleeper.wake()
            return
        thread = threading.Thread(target=self._serve, name="pawlock-renewal", daemon=True)
        if self._take_post(thread):
            running = False
            try:
                running = not start_thread(thread)
            finally:
                # No thread is left, or the interpreter ends: the loop renews alone. Or a signal handler raised: the
                # next lease starts another thread, and this one ends if it does run. Each has a sleeper of its own, for
                # one sleeper.
                if not running:
                    self._thread = None
                    self._sleeper.wake()
                    self._sleeper = OneSleeper()

    def stop(self) -> None:
        """See ``RenewalThread``."""
        self._stopped = True
        self._sleeper.wake()
        runtime = self._runtime
        if runtime is not None:
            # Ends a question that is under way.
            runtime.shut_down(0.0)

    def after_fork(self) -> None:
        """See ``RenewalThread``."""
        self._stopped = True
        # The parent's thread may have been in the middle of either.
        self._sleeper, self._guard = OneSleeper(), threading.RLock()
        self._writer = None
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.after_fork()

    # In the thread ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        leave_signals_to_main()
        sleeper, idle = self._sleeper, 0.0
        # It ends if a signal handler raised while it was started: another thread may have been started instead.
        while self._thread is threading.current_thread():
            try:
                pause = self._look()
            except Exception:
                log.exception("renewal beside the event loop failed; it continues")
                pause = _LOOK_AGAIN / 4
            idle = idle + _LOOK_AGAIN if pause == inf else 0.0
            if pause < 0 or (idle > _IDLE_FOR and self._ended_idle()):
                self._close()
                break
            sleeper.sleep(min(_LOOK_AGAIN, max(_LEAST_SLEEP, pause)))

    def _take_post(self, thread: threading.Thread) -> bool:
        """Whether this thread is the one from here on; False if there is another."""
        with self._guard:
            if self._thread is None:
                self._thread = thread
                return True
        return False

    def _leave_post(self) -> None:
        here = threading.current_thread()
        with self._guard:
            if self._thread is here:
                self._thread = None

    def _ended_idle(self) -> bool:
        """Leave for good, unless a lease came meanwhile whose owner saw this thread still there."""
        self._leave_post()
        engine = self._engine()
        if engine is None or not self._loop.is_running() or not engine.leases.schedule.busy():
            return True
        return not self._take_post(threading.current_thread())

    def _over(self, engine: Engine) -> bool:
        if self._stopped or engine.activity.closed or self._loop.is_closed():
            return True
        # A loop whose thread is gone looks as if it ran.
        return self._loop.is_running() and self._loop_thread not in frames_of_threads()

    def _look(self) -> float:
        """Look once; seconds until it has to look again, infinity: as long as nothing is to do, -1: it is over."""
        engine = self._engine()
        if engine is None or self._over(engine):
            self._leave_post()
            return -1.0
        now = engine.runtime.now
        if not self._loop.is_running():
            # Between two runs of the loop nobody's body runs, but the next may block from its first line on.
            ahead = look_for_late(engine, blocked=False)
            return self._pause_for(ahead, now()) if ahead.server_leases else self._sleep_for(ahead, now())
        if self._blocked_since is not None and self._loop_is_back(0.0):
            self._report_end(now() - self._blocked_since)
        late = look_for_late(engine, blocked=self._blocked_since is not None)
        if not late.server_leases:
            return self._sleep_for(late, now())
        if self._blocked_since is None:
            if self._loop_is_back(min(_ANSWER_WITHIN, max(0.0, self._pause_for(late, now())))):
                # It serves, and waits for the server as this thread would have to.
                return self._pause_for(late, now())
            self._blocked_since = late.since
            engine.count("loop_blocked")
            self._report(late, now() - late.since)
        runtime = self._runtime
        if runtime is None:
            runtime = self._runtime = self._make()
        if self._stopped:
            return -1.0
        return 0.0 if run(renew_late(engine, runtime, late.server_leases)) else self._pause_for(late, now())

    def _pause_for(self, late: Late, now: float) -> float:
        return max(
            _LEAST_SLEEP, min(server_lease.valid_until - now for server_lease in late.server_leases) / 8
        )

    def _sleep_for(self, late: Late, now: float) -> float:
        return inf if late.until == inf else max(0.01, late.until - now)

    def _loop_is_back(self, timeout: float) -> bool:
        """Whether the loop serves what it was asked to; a question that it has not served yet stays asked."""
        answered = self._answered
        if answered is None:
            answered = self._answered = OneSleeper()
            try:
                self._loop.call_soon_threadsafe(self._answer, answered)
            except RuntimeError:
                return False
        if answered.sleep(timeout):
            self._answered = None
            return True
        return False

    def _answer(self, answered: OneSleeper) -> None:
        answered.wake()
        self._sleeper.wake()

    def _report(self, late: Late, seconds: float) -> None:
        frame = frames_of_threads().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame, _MOST_FRAMES)) if frame is not None else ""
        names = ", ".join(repr(server_lease.primitive.name) for server_lease in late.server_leases[:3])
        self._log(lambda: log.warning(
            "the event loop has been blocked for %.2f s or more, and a thread renews its leases (%s); it is at:\n%s",
            seconds, names, stack, extra={"pawlock_blocked": seconds, "pawlock_stack": stack},
        ))  # fmt: skip

    def _report_end(self, seconds: float) -> None:
        self._blocked_since = None
        self._close()
        self._log(lambda: log.warning(
            "the event loop serves again; it was blocked for %.2f s or more", seconds,
            extra={"pawlock_blocked": seconds},
        ))  # fmt: skip

    def _log(self, write: Callable[[], None]) -> None:
        """Write to the log from another thread: the loop may be blocked in a handler, with its lock."""
        before = self._writer

        def write_in_turn() -> None:
            leave_signals_to_main()
            if before is not None:
                before.join()
            write()

        writer = threading.Thread(target=write_in_turn, name="pawlock-renewal-log", daemon=True)
        # None is left, or the interpreter ends: renewal goes before its report.
        if not start_thread(writer):
            self._writer = writer

    def _close(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.shut_down(0.0)
