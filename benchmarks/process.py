"""A participant's process, seen from the runner: start it, ask it, end it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from benchmarks.model import ViolationError
from benchmarks.placement import pin
from benchmarks.worker import Job

__all__ = ["ParticipantError", "Program"]

ROOT = Path(__file__).resolve().parent.parent


class ParticipantError(Exception):
    """A participant failed or did not answer; the text says what it said last."""


class Program:
    """One worker process: commands go in, one JSON line each, and answers come out.

    It ends when its standard input closes, which the kernel does if we die.

    Args:
        job: What it is to be.
        cpus: Where it may run; None leaves that to the kernel.
        command: The program of a library of another language or environment; None: a Python worker.
        src: A folder of sources that it imports pawlock from; "": the installed one.
    """

    def __init__(
        self,
        job: Job,
        cpus: frozenset[int] | None = None,
        command: Callable[[str], list[str]] | None = None,
        src: str = "",
    ) -> None:
        self._label = job.name
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self.process = subprocess.Popen(
            command(job.dump()) if command else [sys.executable, "-m", "benchmarks.worker", job.dump()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env={**os.environ, **({"PYTHONPATH": src} if src else {})},
            start_new_session=True,
        )
        if cpus is not None:
            # Before it has imported anything: what it starts later inherits it.
            pin(self.process.pid, cpus)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, command: dict[str, float], timeout: float) -> dict[str, Any]:
        """Send a command and return the answer.

        Raises:
            ViolationError: The lock under test did not lock.
            ParticipantError: The process failed, died or did not answer in time.
        """
        self.tell(command)
        return self.hear(timeout)

    def tell(self, command: dict[str, float]) -> None:
        """Send a command; its answers are read with `hear`."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ParticipantError(f"{self._label}: ended early: {self._last_words()}") from None

    def hear(self, timeout: float) -> dict[str, Any]:
        """Return the next answer (see `ask`)."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ParticipantError(f"{self._label}: no answer within {timeout:g} s")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
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
        """Close both ways, and end the process, which may be in the middle of a lock."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        try:
            self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._errors.close()

    def _last_words(self) -> str:
        # What a process says last comes a moment after its answers end.
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        self._errors.seek(0)
        return self._errors.read()[-1000:].decode(errors="replace").strip() or "(it said nothing)"
