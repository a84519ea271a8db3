r"""Who may read the terminal: handing it to the command's process group and taking it back.

The command has a process group of its own, so that a lost lease ends everything that it started, and not us.
Then the kernel sends a Ctrl-C to the group in the foreground only:

- Where standard input, output and error are all the terminal, the command's group becomes the foreground group
  before the command begins. Ctrl-C, Ctrl-\ and Ctrl-Z reach it once, from the kernel, and never us.
- Elsewhere (`pawlock run … | less`, or in the background) others may need the terminal and keep it. Ctrl-C
  reaches us, and we pass it on, once. A command that then reads the terminal (a password prompt) is stopped by
  the kernel; we see that, and if our group is in front, we hand the terminal over and let it go on.
"""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["Terminal"]


class Terminal:
    """The controlling terminal of this process; there may be none (cron, a service, a CI job).

    Attributes:
        exists: Whether there is one.
    """

    def __init__(self) -> None:
        self._group = os.getpgrp()
        self._alone = all(os.isatty(number) for number in (0, 1, 2))
        try:
            self._file = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            self._file = -1
        self.exists: bool = self._file >= 0

    @property
    def is_ours(self) -> bool:
        """Whether our process group, the one that we were started in, is in the foreground."""
        return self._front() == self._group

    def give_unasked(self, group: int) -> None:
        """Put a process group in the foreground, if ours is there and nobody else may need the terminal."""
        if self._alone and self.is_ours:
            self.give(group)

    def give(self, group: int) -> None:
        """Put a process group in the foreground, unless the terminal or the group is gone."""
        # Who is in the background would be stopped for it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with contextlib.suppress(OSError):
            os.tcsetpgrp(self._file, group)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def take_back(self, group: int) -> bool:
        """Put our group in the foreground if that one is there; True if it was."""
        was_there = self._front() == group
        if was_there:
            self.give(self._group)
        return was_there

    def _front(self) -> int:
        try:
            return os.tcgetpgrp(self._file)
        except OSError:
            return -1
