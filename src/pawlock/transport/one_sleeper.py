"""An event for one thread that sleeps, which no signal handler can break."""

from __future__ import annotations

import threading

__all__ = ["OneSleeper"]


class OneSleeper:
    """Wakes one thread; waking first and sleeping later is fine.

    Not a ``threading.Event``: if a signal handler raises inside ``Event.set``, the event's internal lock stays locked
    and the next ``set`` deadlocks. Here each step is a single C call, and a signal handler runs before or after one,
    never within.
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
