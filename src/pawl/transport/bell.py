"""A bell: what wakes a thread that sleeps on its connection, from within its own process."""

from __future__ import annotations

import os
import sys

__all__ = ["Bell"]

_DRAIN = 4096
_ONCE = (1).to_bytes(8, sys.byteorder)


class Bell:
    """Rings until it is hushed; a descriptor that ``poll`` takes besides a socket.

    It is closed when nobody refers to it any more, so that a late ring cannot reach a descriptor that was given to
    something else meanwhile.
    """

    __slots__ = ("_read", "_write")

    def __init__(self) -> None:
        self._read = self._write = -1
        if hasattr(os, "eventfd"):
            self._read = self._write = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        else:
            self._read, self._write = os.pipe()
            os.set_blocking(self._read, False)
            os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """The descriptor that is readable while the bell rings."""
        return self._read

    def ring(self) -> None:
        """Wake who sleeps, or will."""
        # A pipe that is full rings already. An eventfd takes a number of eight bytes.
        # Once it is collected, together with what might ring it, there is nobody left to wake.
        if self._write >= 0:
            try:  # noqa: SIM105 - a context made in Python costs each hand-off more than the call within
                os.write(self._write, _ONCE)
            except BlockingIOError:
                pass

    def hush(self) -> None:
        """End the ringing."""
        try:  # noqa: SIM105 - as above
            os.read(self._read, _DRAIN)
        except BlockingIOError:
            pass

    def __del__(self) -> None:
        numbers = {self._read, self._write}
        self._read = self._write = -1
        for number in numbers:
            if number >= 0:
                os.close(number)
