"""Starting the sellers, hearing what they say, and ending them."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.worker import Task

_END = 10.0
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Member:
    """One worker as seen from outside.

    Attributes:
        number: Which one.
        process: Its process.
        sold: Orders it sold.
        refused: Orders it told "sold out".
        fence: Of its last grant.
        state: "starting", "waiting", "holds", "sells", "stopped", "killed" or "done".
    """

    number: int
    process: subprocess.Popen[bytes]
    sold: int = 0
    refused: int = 0
    fence: int = 0
    state: str = "starting"
    rest: bytes = b""


class Crew:
    """All workers of one run; none is left when the `with` block ends, however it ends."""

    def __init__(self, tasks: Sequence[Task], errors: Path) -> None:
        self.members: dict[int, Member] = {}
        self._tasks = tasks
        self._errors = errors
        self._select = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        with self._errors.open("ab") as errors:
            for task in self._tasks:
                process = subprocess.Popen(
                    [sys.executable, "-m", "demo.worker", task.dump()],
                    cwd=_ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    # A Ctrl-C is for the demo, which ends them in good order, also those that are only just starting.
                    process_group=0,
                )
                member = Member(task.number, process)
                self.members[task.number] = member
                if process.stdout is None:
                    raise RuntimeError("no pipe to a worker")
                self._select.register(process.stdout, selectors.EVENT_READ, member)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            with contextlib.suppress(ProcessLookupError):
                member.process.kill()
        for member in self.members.values():
            member.process.wait()
            for pipe in (member.process.stdin, member.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self._select.close()

    def kill(self, member: Member) -> float:
        """End a worker with SIGKILL, as a crash or the kernel's out-of-memory killer would.

        Returns:
            When, on `time.monotonic()`.
        """
        member.process.kill()
        at = time.monotonic()
        member.process.wait()
        member.state = "killed"
        return at

    def failed(self) -> int:
        """Wait for the ends of the workers, and count those that ended badly without having been killed by us."""
        codes = [m.process.wait(_END) for m in self.members.values() if m.state != "killed"]
        return sum(code != 0 for code in codes)

    def stop(self, member: Member) -> None:
        """Stop a worker as a debugger, a full disk or a long garbage collection would; it knows nothing of it."""
        member.process.send_signal(signal.SIGSTOP)
        member.state = "stopped"

    def wake(self, member: Member) -> None:
        """Let a stopped worker go on where it was."""
        member.state = "holds"  # so it thinks
        member.process.send_signal(signal.SIGCONT)

    def events(self, *, timeout: float) -> Iterator[tuple[Member, dict[str, Any]] | None]:
        """Yield what the workers say until all have ended; None about ten times a second.

        Raises:
            TimeoutError: they did not end in time.
        """
        give_up = time.monotonic() + timeout
        while self._select.get_map():
            if time.monotonic() > give_up:
                raise TimeoutError(f"the workers did not end within {timeout:g} s")
            for key, _ in self._select.select(0.1):
                member: Member = key.data
                yield from self._lines(member)
            yield None

    def _lines(self, member: Member) -> Iterator[tuple[Member, dict[str, Any]]]:
        pipe = member.process.stdout
        if pipe is None:
            return
        data = os.read(pipe.fileno(), 65536)
        if not data:
            self._select.unregister(pipe)
            return
        lines = (member.rest + data).split(b"\n")
        member.rest = lines.pop()
        for line in lines:
            event = json.loads(line)
            _remember(member, event)
            yield member, event


def _remember(member: Member, event: dict[str, Any]) -> None:
    if member.state == "killed":
        return
    match event["event"]:
        case "granted":
            member.fence = event["fence"]
            member.state = "holds"
        case "sold":
            member.sold += 1
            member.state = "waiting" if member.fence else "sells"
        case "refused":
            member.refused += 1
            member.state = "waiting" if member.fence else "sells"
        case "done":
            member.state = "done"
        case _:
            pass
