"""The command that runs under a lease: a process group of its own, so that all of it can be ended, and not us."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pawlock._system import now
from pawlock.cli._terminal import Terminal

__all__ = ["Child"]

_PR_SET_PDEATHSIG = 1
_AFTER_KILL = 1.0
# A terminal sends the others to the group; so does a service manager that stops a service. These are for the one program
# that understands them: USR1 would kill every helper of a shell script that traps it.
_FOR_ONE = (signal.SIGUSR1, signal.SIGUSR2)


class Child:
    """A command that runs.

    Should we be killed, the kernel kills it (Linux; that follows the *thread* that forked, so it is made in the main one).

    Attributes:
        pid: Its process id, and that of its group.
        code: How it ended, as ``subprocess`` tells it; None so far.

    Args:
        command: Program and arguments.
        environment: Variables that are added to ours.
        terminal: The controlling terminal.

    Raises:
        OSError: The system cannot start it.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], terminal: Terminal) -> None:
        self.code: int | None = None
        self._killed_at: float | None = None
        parent = os.getpid()
        prctl: Any = ctypes.CDLL(None).prctl if sys.platform == "linux" else (lambda *_: None)

        # What runs here has only this thread left, and none may hold a lock that it takes: it must be little.
        def prepare() -> None:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:  # it died before we asked to die with it
                os._exit(128 + signal.SIGKILL)
            terminal.give_unasked(os.getpid())

        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            close_fds=False,
            process_group=0,
            preexec_fn=prepare,  # noqa: PLW1509
        )
        self.pid = self._process.pid

    def reap(self) -> int:
        """Learn what became of it; the signal that has stopped it, or 0."""
        stopped = 0
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                stopped = os.WSTOPSIG(status)
            else:
                self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
        return stopped

    def signal(self, number: int) -> None:
        """Pass a signal on."""
        if self.code is None:  # else its number may be somebody else's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.kill if number in _FOR_ONE else os.killpg)(self.pid, number)

    def end(self) -> None:
        """Ask its group to end."""
        self._to_group(signal.SIGTERM)
        self._to_group(signal.SIGCONT)  # one that is stopped would not hear it

    def kill(self) -> None:
        """Kill what is left of its group."""
        if self._killed_at is None:
            self._killed_at = now()
            self._to_group(signal.SIGKILL)

    def is_gone(self) -> bool:
        """Whether all of its group has ended. A zombie that nobody reaps counts for a second after KILL, no longer."""
        if self.code is None:
            return False
        waited = self._killed_at is not None and now() > self._killed_at + _AFTER_KILL
        return waited or not self._to_group(0)

    def _to_group(self, number: int) -> bool:
        """Signal the group, also when its leader was reaped: while a member lives, its number stays taken."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # all that is left has become another user (sudo)
            return False
        return True
