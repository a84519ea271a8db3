r"""Who may read the terminal: handing it to the child's process group and taking it back.

The child has a process group of its own, so that a lost lease ends everything that it started, and not us.
Then the kernel sends a Ctrl-C to the group in the foreground only:

- Where standard input, output and error are all the terminal, the child's group becomes the foreground group
  before the child begins. Ctrl-C, Ctrl-\ and Ctrl-Z reach it once, from the kernel, and never us.
- Elsewhere (`pawlock run … | less`, or in the background) others may need the terminal and keep it. Ctrl-C
  reaches us, and we pass it on, once. A child that then reads the terminal (a password prompt) is stopped by
  the kernel; we see that, and if our group is in front, we hand the terminal over and let it go on.
"""

from __future__ import annotations

import os

__all__ = ["Terminal"]


class Terminal:
    """The controlling terminal of this process. All methods need SIGTTOU to be ignored or blocked."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._group = os.getpgrp()
        self._alone = all(os.isatty(number) for number in (0, 1, 2))

    @classmethod
    def find(cls) -> Terminal | None:
        """Return the controlling terminal, or None where there is none (cron, a service, a CI job)."""
        try:
            return cls(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY))
        except OSError:
            return None

    @property
    def front(self) -> int:
        """The process group in the foreground; -1 when the terminal is gone."""
        try:
            return os.tcgetpgrp(self._file)
        except OSError:
            return -1

    @property
    def is_ours(self) -> bool:
        """Whether our process group, the one that the command was started in, is in the foreground."""
        return self.front == self._group

    @property
    def is_for_child(self) -> bool:
        """Whether to hand it over without being asked."""
        return self._alone and self.is_ours

    def give(self, group: int) -> bool:
        """Put a process group in the foreground; False when the terminal or the group is gone."""
        try:
            os.tcsetpgrp(self._file, group)
        except OSError:
            return False
        return True

    def take_back(self, group: int) -> bool:
        """Put our group in the foreground if that one is there; True if it was."""
        return self.front == group and self.give(self._group)
