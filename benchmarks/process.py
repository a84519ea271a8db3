"""A participant's process, seen from the runner: start it, ask it, end it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.model import ViolationError
from benchmarks.placement import pin
from benchmarks.worker import Job

ROOT = Path(__file__).resolve().parent.parent


class ParticipantError(Exception):
    """A participant failed or did not answer; the text says what it said last."""


class Child:
    """One worker process; it ends when its standard input closes, which the kernel does if we die."""

    def __init__(
        self,
        job: Job,
        cpus: frozenset[int] | None = None,
        command: Callable[[str], list[str]] | None = None,
    ) -> None:
        self._label = job.name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._process = subprocess.Popen(
            command(job.dump()) if command else [sys.executable, "-m", "benchmarks.worker", job.dump()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
        )
        if cpus is not None:
            # Before it has imported anything: what it starts later inherits it.
            pin(self._process.pid, cpus)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, command: dict[str, float], timeout: float) -> dict[str, Any]:
        """Send a command and return the answer.

        Args:
            command: Sent as one line of JSON.
            timeout: Seconds to wait for the answer.

        Returns:
            The answer.

        Raises:
            ViolationError: The lock under test did not lock.
            ParticipantError: The process failed, died or did not answer in time.
        """
        self.tell(command)
        return self.hear(timeout)

    def tell(self, command: dict[str, float]) -> None:
        """Send a command; its answers are read with `hear`."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(command).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise ParticipantError(f"{self._label}: ended early: {self._last_words()}") from None

    def hear(self, timeout: float) -> dict[str, Any]:
        """Return the next answer (see `ask`)."""
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ParticipantError(f"{self._label}: no answer within {timeout:g} s")
            data = os.read(stdout.fileno(), 65536)
            if not data:
                raise ParticipantError(f"{self._label}: died: {self._last_words()}")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            kind = ViolationError if answer["kind"] == ViolationError.__name__ else ParticipantError
            raise kind(f"{self._label}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process and wait for it."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            # A program that is in the middle of a lock need not hear that its input has ended.
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _last_words(self) -> str:
        self._process.wait(5)
        self._errors.seek(0)
        return self._errors.read()[-1000:].decode(errors="replace").strip() or "(it said nothing)"
