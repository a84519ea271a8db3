"""What tests of the embedded server share: a state folder that nothing outlives, who works in it, and a plain question."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pawlock import embedded
from tests.support.pace import pace
from tests.support.resp import Reply, Wire

__all__ = [
    "Spawn", "ask", "clean_environment", "eventually", "lives", "looked_after", "servers", "spawn", "state",
    "supervisor_of", "supervisors", "workers",
]  # fmt: skip

Spawn: TypeAlias = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAWLOCK_STATE_DIR", "PAWLOCK_SERVER_BIN", "PAWLOCK_EMBEDDED_IDLE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A state folder for one test, and a server that does not outlive it."""
    folder = tmp_path / "state"
    yield folder
    if folder.exists():
        folder.chmod(0o700)
        embedded.stop(folder, force=True)


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Run a piece of Python in a process of its own; whatever is left of it is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *args: object, **options: Any) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def ask(server: embedded.EmbeddedServer, *args: str) -> Reply:
    """Ask the server one thing, on a connection of its own."""
    with Wire(server.socket) as wire:
        return wire.command(*args)


def eventually(condition: Callable[[], bool], timeout: float = 5.0) -> bool:
    """Whether it comes to that in time."""
    deadline = time.monotonic() + pace() * timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def workers(state: Path) -> dict[int, str]:
    """Who works in a folder, also when it is gone, and the name of its program."""
    found: dict[int, str] = {}
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        entry = cwd.parent
        try:
            if str(cwd.readlink()).removesuffix(" (deleted)") != str(state):
                continue
            # The shell that becomes a supervisor in a moment is neither.
            if b"exec 3<&0" not in (entry / "cmdline").read_bytes():
                found[int(entry.name)] = (entry / "exe").readlink().name
        except OSError:
            continue
    return found


def servers(state: Path) -> list[int]:
    """The server processes of a folder."""
    return [pid for pid, program in workers(state).items() if not program.startswith("python")]


def supervisors(state: Path) -> list[int]:
    """The processes that look after the server of a folder."""
    return [pid for pid, program in workers(state).items() if program.startswith("python")]


def supervisor_of(state: Path) -> int:
    """The one process that looks after the server of a folder."""
    assert eventually(lambda: supervisors(state) != [])
    (found,) = supervisors(state)
    return found


def looked_after(connection: Wire) -> None:
    """Wait until the supervisor is connected and has said so: before, it counts as a client."""
    assert eventually(lambda: "name=pawlock-supervisor" in str(connection.command("CLIENT", "LIST")))
