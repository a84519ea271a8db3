"""A time that only moves while somebody waits for it."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from math import inf
from weakref import WeakKeyDictionary

# The real ones: a test may put `Sim.sleep` in the place of ``time.sleep``, which ends here.
from pawlock._system import monotonic, sleep

__all__ = ["Nap", "Timer", "VirtualClock"]

_SETTLED_WITHIN = 5.0
_POLL = 0.0001
_LEAST = 1e-6
"""No wait is shorter: rounding must never let one begin again and again in a moment that does not pass."""


class Nap:
    """Where one thread sleeps until another wakes it; waking first and sleeping later is fine.

    Asleep while its bell is locked and ``asleep`` says so: the waker clears that, in one step, before the bell.
    """

    __slots__ = ("_clock", "asleep", "bell", "over", "turn")

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.bell: threading.Lock = threading.Lock()
        self.bell.acquire()
        self.asleep: bool = False
        self.over: bool = False
        self.turn: int = -1

    @property
    def quiet(self) -> bool:
        """Whether its thread sleeps and nobody has woken it."""
        return self.asleep and self.bell.locked()

    def wait(self, timeout: float | None) -> bool:
        """Sleep; True if woken, False after the timeout."""
        return self._clock.wait(self, timeout)

    def wake(self) -> None:
        """Wake the thread; from anywhere, also from a finaliser, any number of times."""
        self.over = False
        self.asleep = False
        try:  # noqa: SIM105 - at the end of the interpreter contextlib may be gone already
            self.bell.release()
        except RuntimeError:
            pass


class Timer:
    """Something that will be done at a time."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """Do not do it."""
        self.action = None


class VirtualClock:
    """A time that only moves while somebody waits in it: then it jumps to what comes next.

    A jump waits until all that is going on has settled: the threads that serve clients sleep again, and so do other
    threads that were seen here; these are given ``patience`` real seconds, as nobody knows what else they do.

    Args:
        patience: Real seconds.
    """

    def __init__(self, patience: float = 0.01) -> None:
        self.patience: float = patience
        self._now = 1000.0
        self._heap: list[tuple[float, int, Nap | Timer]] = []
        self._turns = count()
        self._guard = threading.Lock()
        self._driving = threading.RLock()
        self._servants: dict[int, Nap] = {}
        self._expected = 0
        self._callers: WeakKeyDictionary[threading.Thread, Nap | None] = WeakKeyDictionary()
        self._busy: set[object] = set()

    def now(self) -> float:
        """Seconds, on the clock of every deadline."""
        return self._now

    def server_us(self) -> int:
        """What the server's wall clock reads, in µs."""
        return 1_790_000_000_000_000 + int(self._now * 1e6)

    def nap(self) -> Nap:
        """A place to sleep."""
        return Nap(self)

    def later(self, seconds: float, action: Callable[[], object]) -> Timer:
        """Do something after a while."""
        entry = Timer(action)
        with self._guard:
            heapq.heappush(self._heap, (self._now + seconds, next(self._turns), entry))
        return entry

    def expect(self, threads: int = 1) -> None:
        """A thread is being started that will say ``servant``; -1: it could not be."""
        self._expected += threads

    def servant(self) -> None:
        """The present thread serves others: time does not pass for its sake."""
        # Not quiet before it sleeps for the first time.
        self._servants[threading.get_ident()] = Nap(self)
        self._expected -= 1

    def retire(self) -> None:
        """The present thread, a servant, ends."""
        self._servants.pop(threading.get_ident(), None)

    def seen(self) -> None:
        """The present thread uses a client."""
        if threading.get_ident() not in self._servants:
            self._callers.setdefault(threading.current_thread())

    def busy(self) -> Callable[[], None]:
        """Somebody does something now; call what this returns when that is done."""
        mark = object()
        self._busy.add(mark)
        return lambda: self._busy.discard(mark)

    # Sleeping ---------------------------------------------------------------------------------------------------

    def wait(self, nap: Nap, timeout: float | None) -> bool:
        """Let the present thread sleep; True if woken, False after so many seconds."""
        me, thread = threading.get_ident(), threading.current_thread()
        serves = me in self._servants
        nap.over = False
        if timeout is not None and timeout < inf:
            with self._guard:
                nap.turn = next(self._turns)
                heapq.heappush(self._heap, (self._now + max(_LEAST, timeout), nap.turn, nap))
        if serves:
            self._servants[me] = nap
        else:
            self._callers[thread] = nap
        nap.asleep = True
        try:
            if serves:
                nap.bell.acquire()
            else:
                self._drive(nap)
        finally:
            nap.asleep = False
            nap.turn = -1
            if not serves:
                self._callers[thread] = None
        return not nap.over

    def _drive(self, nap: Nap) -> None:
        while not nap.bell.acquire(blocking=False):
            if not self._driving.acquire(timeout=0.002):
                continue
            try:
                self._settle()
                if not nap.bell.locked() or self._step(inf):
                    continue
            finally:
                self._driving.release()
            # Nothing will ever happen by itself: another thread has to act.
            if nap.bell.acquire(timeout=0.005):
                return

    def creep(self) -> None:
        """Let the least of times pass: an event loop took a turn."""
        with self._guard:
            self._now += _LEAST

    def advance(self, limit: float) -> bool:
        """Let time pass to what comes next, and let that happen; False if nothing does before the limit.

        Then it passes to the limit, if that is a time.
        """
        with self._driving:
            self._settle()
            if self._step(limit):
                self._settle()
                return True
            if limit < inf:
                self._now = max(self._now, limit)
            return False

    def _step(self, limit: float) -> bool:
        """Go to what comes next and let it happen; False if nothing does before the limit."""
        with self._guard:
            while self._heap and not self._stands(self._heap[0]):
                heapq.heappop(self._heap)
            if not self._heap or self._heap[0][0] > limit:
                return False
            due, _, entry = heapq.heappop(self._heap)
            self._now = max(self._now, due)
            if isinstance(entry, Nap):
                entry.over = True
                entry.turn = -1
                entry.asleep = False
                with suppress(RuntimeError):
                    entry.bell.release()
                return True
        action, entry.action = entry.action, None
        if action is not None:
            action()
        return True

    @staticmethod
    def _stands(item: tuple[float, int, Nap | Timer]) -> bool:
        _, turn, entry = item
        return entry.turn == turn if isinstance(entry, Nap) else entry.action is not None

    def _settle(self) -> None:
        end = monotonic() + _SETTLED_WITHIN
        while self._expected > 0 or not all(nap.quiet for nap in list(self._servants.values())):
            if monotonic() > end:
                break
            sleep(_POLL)
        end = monotonic() + self.patience
        while (self._busy or self._others_awake()) and monotonic() < end:
            sleep(_POLL)

    def _others_awake(self) -> bool:
        me = threading.current_thread()
        return any(
            thread is not me and thread.is_alive() and (nap is None or not nap.quiet)
            for thread, nap in list(self._callers.items())
        )
