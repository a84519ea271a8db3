"""Nothing outlives the run: no child, no server, however its process was detached.

The run gets a temporary folder of its own, an environment mark, and a state folder apart from the user's, so
that what belongs to it can be told from everything else on the machine, other runs of these tests included.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pawlock._environment import VARIABLES

MARK = "PAWLOCK_TEST_RUN"
SETTINGS = (
    *VARIABLES.values(),
    "PAWLOCK_URL",
    "PAWLOCK_NAMESPACE",
    "PAWLOCK_STATE_DIR",
    "PAWLOCK_REQUIRE_URL",
    "PAWLOCK_EMBEDDED_IDLE",
)
"""What pawlock reads from the environment: a developer's settings are not the tests'."""
GRACE = float(os.environ.get("PAWLOCK_TEST_GRACE", "5"))
"""Seconds that processes have to end after the last test."""
PYTHON_OWN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helpers that multiprocessing keeps until the interpreter ends."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc shows it.

    Attributes:
        pid: Its id.
        parent: The id of its parent.
        command: Its command line, as far as the kernel tells it.
        ours: It carries the run's mark or works below the run's folder.
    """

    pid: int
    parent: int
    command: str
    ours: bool


def look(pid: int, mark: bytes, folder: str) -> Process | None:
    """Read one process; None when it has ended, is a zombie, or is not ours to read."""
    entry = Path("/proc", str(pid))
    try:
        # The second field is a name in parentheses that may hold spaces and parentheses itself.
        state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        # A server that shows its state in its title writes over its environment; its folder still tells.
        marked = mark in (entry / "environ").read_bytes()
        there = str((entry / "cwd").readlink()).startswith(folder) or folder in command
    except OSError:
        return None
    return None if state == "Z" else Process(pid, int(parent), command, marked or there)


def survivors(folder: str) -> list[Process]:
    """List the processes of this run, itself left out: descendants, marked ones, those in its folder."""
    mark = folder.encode()
    everything = [
        look(int(entry.name), mark, folder) for entry in Path("/proc").iterdir() if entry.name.isdigit()
    ]
    alive = [process for process in everything if process is not None]
    family = {os.getpid()}
    while grown := {process.pid for process in alive if process.parent in family} - family:
        family |= grown
    return [
        process
        for process in alive
        if process.pid != os.getpid()
        and (process.pid in family or process.ours)
        and not any(helper in process.command for helper in PYTHON_OWN)
    ]


def settled(folder: str) -> list[Process]:
    """Wait for processes that are just ending; list those that do not."""
    deadline = time.monotonic() + GRACE
    while (found := survivors(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def isolate() -> str:
    """Give this run its own temporary folder, mark and state folder, and forget the developer's settings."""
    for name in SETTINGS:
        os.environ.pop(name, None)
    # A run within another one has its folder beside that one's, since sockets bear no long paths; its processes bear
    # the marks of both.
    outer = os.environ.get(MARK, "")
    folder = tempfile.mkdtemp(prefix="pawlock-t-", dir=Path(outer.split(":")[0]).parent if outer else None)
    os.environ[MARK] = f"{outer}:{folder}" if outer else folder
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ["XDG_STATE_HOME"] = f"{folder}/state"
    return folder


@pytest.fixture(scope="session", autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the run when a process of it is still there at its end; end that process then."""
    folder = request.config.stash[FOLDER]
    yield
    if not sys.platform.startswith("linux"):
        return
    left = settled(folder)
    for process in left:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if left:
        lines = "\n".join(f"  {process.pid}: {process.command}" for process in left)
        pytest.fail(f"processes left by the tests (ended now):\n{lines}", pytrace=False)


FOLDER = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Isolate the run before anything makes a temporary file."""
    config.stash[FOLDER] = isolate()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the run's folder, with what pytest kept of temporary files in it."""
    shutil.rmtree(config.stash[FOLDER], ignore_errors=True)
