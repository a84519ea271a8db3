"""Running `pawlock`: in this process where that shows the same, else as a user does, told by signals."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pawlock as library
from tests.support.command import PAWLOCK, ROOT, call, environment
from tests.support.pace import pace
from tests.support.servers import Server

if TYPE_CHECKING:
    from tests.cli.screen import Screen

__all__ = ["PAWLOCK", "ROOT", "Command", "Pawlock", "default_signals", "environment", "eventually", "lives"]


def eventually(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until something holds; fail when it does not in time."""
    end = time.monotonic() + pace() * seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    try:
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def default_signals() -> None:
    """Undo what a shell in the background has ignored or blocked, for the command under test."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Command:
    """A running `pawlock`."""

    def __init__(
        self, arguments: Sequence[str], env: dict[str, str], stdin: int = subprocess.DEVNULL
    ) -> None:
        self.process = subprocess.Popen(
            [*PAWLOCK, *arguments],
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=default_signals,  # noqa: PLW1509  # it takes no lock that a thread could have
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """Return the next line that the child prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"no line, but: {self.process.communicate(timeout=10)}"
        return line.rstrip("\n")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = 15.0) -> tuple[int, str, str]:
        """Wait for its end: exit code, what it printed, what it said."""
        out, err = self.process.communicate(timeout=pace() * timeout)
        assert "Traceback" not in err
        return self.process.returncode, out, err


@dataclass
class Pawlock:
    """Runs `pawlock` against one server.

    Attributes:
        server: The server.
        commands: The processes that were started.
        client: Holds what others hold; closed at the end.
    """

    server: Server
    commands: list[Command]
    client: library.Client

    def call(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """Run it in this process: what starts no child."""
        return call(*arguments, env=environment(**{"PAWLOCK_URL": self.server.url, **variables}))

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> Command:
        command = Command(arguments, environment(PAWLOCK_URL=self.server.url), stdin)
        self.commands.append(command)
        return command

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run it in a process of its own."""
        return self.start(*arguments).end()

    def hold(self, name: str, *arguments: str) -> Command:
        """Start a command that holds a lock until it is ended; returns once it does."""
        command = self.start("run", *arguments, name, "--", "sh", "-c", "echo $$; exec sleep 60")
        assert command.line().isdigit()
        return command

    def left_over(self) -> list[str]:
        """List the keys that nothing takes away: not fences and tombstones, which live on purpose, and end."""
        reply = self.server.command("KEYS", "*")
        assert isinstance(reply, list)
        names = [key.decode() for key in reply if isinstance(key, bytes)]
        lasting = [name for name in names if ":1:dead:" not in name and not name.endswith(":fence")]
        assert all(self.server.command("PTTL", name) != -1 for name in names)
        return sorted(lasting)

    def waiting(self, name: str) -> int:
        """How many tickets stand in the queue of a name."""
        reply = self.server.command("ZCARD", f"{{pawlock:{name}}}:1:queue")
        assert isinstance(reply, int)
        return reply


def _commands(server: Server) -> Iterator[Pawlock]:
    with library.connect(server.url) as client:
        pawlock = Pawlock(server, [], client)
        yield pawlock
    for command in pawlock.commands:
        if command.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                command.process.send_signal(signal.SIGCONT)
                command.process.kill()
        with contextlib.suppress(ValueError):  # the pipes were closed by `communicate`
            command.process.communicate(timeout=10)


@pytest.fixture
def pawlock(valkey: Server) -> Iterator[Pawlock]:
    """`pawlock` on a clean server."""
    valkey.command("FLUSHALL")
    yield from _commands(valkey)


@pytest.fixture
def pawlock_alone() -> Iterator[Pawlock]:
    """`pawlock` on a server that the test may break."""
    with Server("valkey") as server:
        yield from _commands(server)


@pytest.fixture
def screens() -> Iterator[list["Screen"]]:
    """Terminals that a test opened; hung up at its end."""
    made: list[Screen] = []
    yield made
    for screen in made:
        screen.close()
