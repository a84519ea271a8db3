"""A client of another library, driven as a process behind the line protocol (docs/dev/interop.md)."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from interop.kinds import Kind

__all__ = ["CLUSTER", "Driver", "DriverFailed", "Reply", "drivers"]

Reply = dict[str, Any]

CLUSTER = "redis+cluster://"

START = 60.0
"""Seconds that a driver may take to be ready: a JVM on a busy machine."""


class DriverFailed(Exception):
    """A driver ended, said nothing in time, or said what is no reply."""


class Driver:
    """One process of a driver, for one client.

    Args:
        kind: What to start.
        url: The server.
        environ: More environment variables for it.
    """

    def __init__(self, kind: Kind, url: str, **environ: str) -> None:
        self.kind = kind
        if kind.part == "java" and url.startswith(CLUSTER):
            url = f"redis://{url.removeprefix(CLUSTER).partition(',')[0]}"
            options = environ.get("JAVA_TOOL_OPTIONS", "")
            environ = {**environ, "JAVA_TOOL_OPTIONS": f"{options} -Dcluster=true"}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the driver
        self._process = subprocess.Popen(
            [*kind.command, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **dict(kind.environ), **environ},
        )
        self._last = ""
        self._lines: queue.Queue[Reply | None] = queue.Queue()
        self.events: list[Reply] = []
        """What `count` reported, in its order."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> Self:
        """Wait until it has started."""
        if not self.reply(START).get("ready"):
            raise DriverFailed(f"{self.kind.name}: it does not begin with {{'ready': true}}")
        return self

    def send(self, *words: object) -> None:
        """Send a command without waiting for its reply."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def reply(self, timeout: float = 30.0) -> Reply:
        """The next reply, up to ``timeout`` seconds from now.

        Raises:
            DriverFailed: There is none.
        """
        try:
            found = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise DriverFailed(f"{self.kind.name}: no reply in {timeout:g} s{self._said()}") from None
        if found is None:
            raise DriverFailed(f"{self.kind.name}: it ended{self._said()}")
        return found

    def silent(self, timeout: float) -> bool:
        """Whether it says nothing for so many seconds; a reply that comes is kept for nobody."""
        try:
            return self._lines.get(timeout=timeout) is None
        except queue.Empty:
            return True

    def ask(self, *words: object, timeout: float = 30.0) -> Reply:
        """Send a command and wait for its reply."""
        self.send(*words)
        return self.reply(timeout)

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if not self._errors.closed:
            self._last = self._said()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # it was killed while it wrote
            found: Reply = json.loads(line)
            if "event" in found:
                self.events.append(found)
            else:
                self._lines.put(found)
        self._lines.put(None)

    def _said(self) -> str:
        if self._errors.closed:
            return self._last
        self._errors.seek(0)
        said = self._errors.read().strip()[-2000:]
        return f"\n{said}" if said else ""


@contextmanager
def drivers(kinds: Iterable[Kind], url: str, **environ: str) -> Iterator[list[Driver]]:
    """Start a driver for each kind, all at the same time; they end with the block."""
    started: list[Driver] = []
    try:
        # One by one into the list, so that those that run are ended when one cannot start.
        started.extend(Driver(kind, url, **environ) for kind in kinds)
        yield [driver.ready() for driver in started]
    finally:
        for driver in started:
            driver.kill()
