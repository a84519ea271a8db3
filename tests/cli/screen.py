"""A terminal as a person has it, for tests."""

import contextlib
import os
import pty
import re
import select
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cli.conftest import Pawlock, default_signals, environment
from tests.support.pace import pace


class Screen:
    """A program at a terminal of its own."""

    def __init__(self, argv: Sequence[str], env: dict[str, str]) -> None:
        self.text = ""
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            default_signals()
            os.execvpe(argv[0], list(argv), env)

    def type(self, keys: str) -> None:
        os.write(self._file, keys.encode())

    def until(self, pattern: str, seconds: float = 15.0) -> str:
        """Wait until the text from here on has something in it, forget all up to there, return its end."""
        end = time.monotonic() + pace() * seconds
        while (found := re.search(pattern, self.text)) is None:
            assert time.monotonic() < end, f"no {pattern!r} in {self.text!r}"
            if not self._more():
                assert re.search(pattern, self.text), f"ended without {pattern!r}: {self.text!r}"
        self.text = self.text[found.end() :]
        return found[found.re.groups]

    def end(self, seconds: float = 15.0) -> int:
        """Wait for the program's end; its exit code."""
        end = time.monotonic() + pace() * seconds
        while self._more():
            assert time.monotonic() < end, f"it did not end: {self.text!r}"
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def processes(self) -> str:
        """Show who is at this terminal, in which process group, and with which signals blocked and ignored."""
        shown = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
                if int(stat[3]) == self.pid:
                    status = (entry / "status").read_text(encoding="utf-8", errors="replace")
                    masks = re.findall(r"(?:Name|SigPnd|ShdPnd|SigBlk|SigIgn|SigCgt):\s*\S+", status)
                    shown.append(f"{entry.name} state {stat[0]} group {stat[2]} in front {stat[5]} {masks}")
        return "; ".join(shown)

    def close(self) -> None:
        os.close(self._file)  # hangs up on whatever still runs
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _more(self) -> bool:
        if select.select([self._file], [], [], 0.1)[0]:
            try:
                data = os.read(self._file, 4096)
            except OSError:  # Linux says so when the last one at the terminal has left
                return False
            self.text += data.decode().replace("\r\n", "\n")
            return bool(data)
        return True


def open_screen(screens: list[Screen], pawlock: Pawlock, *argv: str, term: str = "dumb") -> Screen:
    screen = Screen(argv, environment(PAWLOCK_URL=pawlock.server.url, PS1="$ ", TERM=term))
    screens.append(screen)
    return screen
