"""Signals as bytes in a pipe (the self-pipe trick), so that one `poll` waits for them and for everything else."""

from __future__ import annotations

import contextlib
import math
import select
import signal
import socket
from types import FrameType

from pawlock.cli._common import Signalled

__all__ = ["ENDING", "SignalPipe"]

ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""What asks to end."""


class SignalPipe:
    """Takes what a user, a service manager or a terminal sends. One per process, made in the main thread.

    Attributes:
        raises: Whether a signal that asks to end raises ``Signalled`` in the main thread; else the main loop decides.
    """

    def __init__(self) -> None:
        self.raises = True
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        others = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT)
        for number in (*ENDING, *others):
            self.take(number)

    def take(self, number: signal.Signals) -> None:
        """Take a signal, unless it was ignored from the start (by nohup, in a background job of a script)."""
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, self._handle)

    def wait(self, patience: float) -> list[int]:
        """Wait for signals or ``wake``, so many seconds at most; the numbers that came, in order."""
        # `select` knows no descriptor above 1,023: who starts us may have passed on as many.
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        # Rounded up: a deadline that is half a millisecond away is not to be asked for in a loop.
        came = poll.poll(math.ceil(patience * 1000))
        return [number for number in self._read.recv(4096) if number] if came else []

    def wake(self, *_: object) -> None:
        """Wake the main loop from another thread, with no signal."""
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            self._write.send(b"\0")

    def _handle(self, number: int, _: FrameType | None) -> None:
        """Leave it to the main loop: the interpreter has written the number into the pipe."""
        if self.raises and number in ENDING:
            raise Signalled(number)
