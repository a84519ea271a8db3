"""An outside witness: it gets each step of each runner with its fencing token, and judges who ran when."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.nightly.apps.rig import PATIENCE, until


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a runner.

    Attributes:
        at: When it arrived, in seconds.
        pid: The runner's process.
        fence: Its fencing token.
    """

    at: float
    pid: int
    fence: int


class Witness:
    """Takes steps on a socket, in the order in which the kernel got them.

    Args:
        folder: Where the socket is made.
    """

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "witness")
        self.steps: list[Step] = []
        self.late: list[Step] = []
        """Steps with an older token than one that was seen: what a guarded resource refuses."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._thread = threading.Thread(target=self._take)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self.path)
        self._thread.join()
        self._socket.close()

    def _take(self) -> None:
        newest = 0
        while content := self._socket.recv(1000):
            pid, fence = json.loads(content)
            step = Step(time.monotonic(), pid, fence)
            if fence < newest:
                self.late.append(step)
                continue
            newest = fence
            self.steps.append(step)

    def runner(self, after: float = 0.0, other_than: int = 0) -> Step:
        """The first step after a moment, of another process than one."""

        def look() -> Step | None:
            found = (step for step in list(self.steps) if step.at > after and step.pid != other_than)
            return next(found, None)

        found = until("another process runs", look, PATIENCE)
        assert found is not None
        return found

    def turns(self) -> list[tuple[int, int]]:
        """Who ran, in order, each with its token: a process is named twice if another ran in between."""
        found: list[tuple[int, int]] = []
        for step in self.steps:
            if not found or found[-1] != (step.pid, step.fence):
                found.append((step.pid, step.fence))
        return found
