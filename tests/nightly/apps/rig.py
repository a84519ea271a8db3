"""Starts the programs of an application as an operator would, and asks them over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
PATIENCE = 60.0
"""Seconds for something that takes one on a quiet machine."""


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: Any


@dataclass
class Rig:
    """Processes of one application in one environment; all are ended with it.

    Attributes:
        folder: Where the application keeps its files.
        environ: What its processes find in their environment.
    """

    folder: Path
    environ: dict[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *command: str, fds: Sequence[int] = (), log: str = "log") -> subprocess.Popen[str]:
        """Start a program of the environment in a process group of its own."""
        with (self.folder / log).open("a") as output:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.environ,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=fds,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def run(self, *command: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            env=self.environ,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def log(self, log: str = "log") -> str:
        path = self.folder / log
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def rig(folder: Path, environ: dict[str, str]) -> Iterator[Rig]:
    """Give an application its environment: this checkout's code, and nothing of pawlock's settings of the developer."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH"))))
    found = Rig(folder, {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environ})
    try:
        yield found
    finally:
        found.end()


def listening() -> socket.socket:
    """A socket that listens already, to be inherited: no other process can take the port meanwhile."""
    found = socket.create_server(("127.0.0.1", 0))
    found.set_inheritable(True)
    return found


def ask(port: int, method: str, path: str, timeout: float = PATIENCE) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path)
        found = connection.getresponse()
        body = found.read()
        return Answer(found.status, found.headers, json.loads(body) if body else None)
    finally:
        connection.close()


def until(what: str, look: Callable[[], T], patience: float = PATIENCE) -> T:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {patience} s: {what}")
