"""Signals as bytes in a pipe, so that one `select` waits for them and for everything else."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Iterable, Mapping
from types import FrameType

__all__ = ["FORWARDED", "Bell", "Dispositions", "clock"]

# What a user, a service manager or a terminal sends to say something to the work that we run.
FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTSTP")
    if hasattr(signal, name)
)

Dispositions = Mapping[signal.Signals, object]
"""What was done with each signal when the command began; the child is started with the same."""

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def clock() -> float:
    """Seconds on a clock that all processes of this machine share; suspends count, where the system can."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


class Bell:
    """Rings (becomes readable) when one of its signals arrives. One per process, made in the main thread.

    The handlers do nothing: the interpreter writes each signal's number into the pipe, and the main loop
    decides. A handler that raised could hit any line of any clean-up.
    """

    def __init__(self, signals: Iterable[signal.Signals]) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, _nothing)

    def fileno(self) -> int:
        """Let `select` wait for it."""
        return self._read.fileno()

    def ring(self) -> None:
        """Wake the main loop from another thread, with no signal."""
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            self._write.send(b"\0")

    def heard(self) -> list[signal.Signals]:
        """Return the signals that arrived since the last call, in order."""
        try:
            numbers = self._read.recv(4096)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in numbers if number]


def _nothing(number: int, frame: FrameType | None) -> None:
    """Keep the signal's default action away; the interpreter has rung the bell."""
