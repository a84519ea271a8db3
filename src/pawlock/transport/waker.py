"""A waker: a descriptor by which other threads of the process wake one that polls its connection."""

from __future__ import annotations

import os
import sys

__all__ = ["Waker"]

_DRAIN = 4096
_ONCE = (1).to_bytes(8, sys.byteorder)


class Waker:
    """Readable from ``wake`` until ``clear``; ``poll`` takes it besides a socket.

    It is closed when nobody refers to it any more, so that a late ``wake`` cannot reach a descriptor that was given to
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
        """The descriptor that is readable once ``wake`` was called."""
        return self._read

    def wake(self) -> None:
        """Wake the thread that polls, or the next one that will."""
        # A pipe that is full is readable already. An eventfd takes a number of eight bytes.
        # Once it is collected, together with all that might call this, there is nobody left to wake.
        if self._write >= 0:
            try:  # noqa: SIM105 - a context made in Python costs each hand-off more than the call within
                os.write(self._write, _ONCE)
            except BlockingIOError:
                pass

    def clear(self) -> None:
        """Make it unreadable again."""
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
