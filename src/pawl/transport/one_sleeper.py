"""An event for one thread that sleeps, which no signal handler can break."""

from __future__ import annotations

import threading

__all__ = ["OneSleeper"]


class OneSleeper:
    """Wakes one thread; waking first and sleeping later is fine.

    Not a ``threading.Event``: a signal handler that raises within its ``set`` leaves the lock in it taken, and whoever
    sets it the next time waits for ever. Here each step is one call of C, which a handler comes before or after.
    """

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        """Wake the sleeper, or keep it from its next sleep; from any thread, any number of times."""
        try:  # noqa: SIM105 - a context made in Python is one more place for a handler to raise in
            self._asleep.release()
        except RuntimeError:
            # Woken already.
            pass

    def sleep(self, seconds: float) -> bool:
        """Sleep until woken or until the time is over; True if woken.

        Args:
            seconds: For how long, at most; 0 only looks.
        """
        return self._asleep.acquire(timeout=seconds) if seconds > 0 else self._asleep.acquire(blocking=False)
