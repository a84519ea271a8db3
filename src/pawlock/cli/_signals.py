"""Signals as bytes in a pipe (the self-pipe trick), so that one `poll` waits for them and for everything else."""

from __future__ import annotations

import contextlib
import math
import select
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Protocol, TypeVar

__all__ = ["FORWARDED", "Dispositions", "SignalPipe", "clock", "readable"]

# What a user, a service manager or a terminal sends to the command that we run.
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


class _File(Protocol):
    def fileno(self) -> int: ...


F = TypeVar("F", bound=_File)


def readable(files: Sequence[F], patience: float | None) -> list[F]:
    """Wait until one of them has something to read, or is at its end.

    Not by `select`, which knows no descriptor above 1,023: who starts us may have passed on more than that.

    Args:
        files: What to wait for.
        patience: Seconds; None waits indefinitely.
    """
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    # Rounded up: a deadline that is half a millisecond away is not to be asked for in a loop.
    ready = {number for number, _ in poll.poll(None if patience is None else math.ceil(patience * 1000))}
    return [file for file in files if file.fileno() in ready]


class SignalPipe:
    """Becomes readable when one of its signals arrives. One per process, made in the main thread.

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
        """Let `readable` wait for it."""
        return self._read.fileno()

    def wake(self) -> None:
        """Wake the main loop from another thread, with no signal."""
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            self._write.send(b"\0")

    def received(self) -> list[signal.Signals]:
        """Return the signals that arrived since the last call, in order."""
        try:
            numbers = self._read.recv(4096)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in numbers if number]


def _nothing(number: int, frame: FrameType | None) -> None:
    """Suppress the default action of the signal; the interpreter has written its number into the pipe."""
