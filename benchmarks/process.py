"""A participant's processes, seen from the runner: start them, ask them, end them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from benchmarks.model import ViolationError
from benchmarks.placement import pin
from benchmarks.worker import Job

__all__ = ["Child", "ParticipantError", "Program"]

ROOT = Path(__file__).resolve().parent.parent


class ParticipantError(Exception):
    """A participant failed or did not answer; the text says what it said last."""


class Program:
    """What was started for a participant: one process, or one that splits itself into many.

    They end when their standard input closes, which the kernel does if we die.

    Args:
        job: What each of them is to be.
        cpus: Where they may run; None leaves that to the kernel.
        command: The program of a library of another language; None: a Python worker.
        number: How many. Python workers are forked from one that has imported its library: to start Python 64 times
            takes longer than the whole round. Each makes its own client.
    """

    def __init__(
        self,
        job: Job,
        cpus: frozenset[int] | None = None,
        command: Callable[[str], list[str]] | None = None,
        number: int = 1,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self._processes: list[subprocess.Popen[bytes]] = []
        self.children: list[Child] = []
        if command or number == 1:
            argv = command(job.dump()) if command else _worker(job)
            for _ in range(number):
                self._start(job, argv)
        else:
            self._split(job, number)
        if cpus is not None:
            # Before they have imported anything: what they start later inherits it.
            for process in self._processes:
                pin(process.pid, cpus)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """What was started; siblings are children of the one that is here."""
        return [process.pid for process in self._processes]

    def _start(self, job: Job, argv: Sequence[str]) -> None:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            start_new_session=True,
        )
        self._processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        self.children.append(Child(job.name, process.stdin, process.stdout, self._last_words))

    def _split(self, job: Job, number: int) -> None:
        theirs: list[int] = []
        for _ in range(number):
            commands, told = os.pipe()
            heard, answers = os.pipe()
            theirs += [commands, answers]
            self.children.append(
                Child(job.name, os.fdopen(told, "wb"), os.fdopen(heard, "rb"), self._last_words)
            )
        self._processes.append(
            subprocess.Popen(
                [*_worker(job), *map(str, theirs)],
                stdin=subprocess.DEVNULL,
                stderr=self._errors,
                cwd=ROOT,
                pass_fds=theirs,
                start_new_session=True,
            )
        )
        for number_of_pipe in theirs:
            os.close(number_of_pipe)

    def close(self) -> None:
        """End the processes and wait for them."""
        for child in self.children:
            child.hang_up()
        for process in self._processes:
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                # A program that is in the middle of a lock need not hear that its input has ended.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._errors.close()

    def _last_words(self) -> str:
        # What a process says last comes a moment after its answers end.
        with suppress(subprocess.TimeoutExpired):
            self._processes[0].wait(1)
        self._errors.seek(0)
        return self._errors.read()[-1000:].decode(errors="replace").strip() or "(it said nothing)"


def _worker(job: Job) -> list[str]:
    return [sys.executable, "-m", "benchmarks.worker", job.dump()]


class Child:
    """One worker process: commands go in, one JSON line each, and answers come out."""

    def __init__(
        self, label: str, stdin: IO[bytes], stdout: IO[bytes], last_words: Callable[[], str]
    ) -> None:
        self._label = label
        self._stdin = stdin
        self._stdout = stdout
        self._last_words = last_words
        self._buffer = b""

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
        try:
            self._stdin.write(json.dumps(command).encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise ParticipantError(f"{self._label}: ended early: {self._last_words()}") from None

    def hear(self, timeout: float) -> dict[str, Any]:
        """Return the next answer (see `ask`)."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ParticipantError(f"{self._label}: no answer within {timeout:g} s")
            data = os.read(self._stdout.fileno(), 65536)
            if not data:
                raise ParticipantError(f"{self._label}: died: {self._last_words()}")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            kind = ViolationError if answer["kind"] == ViolationError.__name__ else ParticipantError
            raise kind(f"{self._label}: {answer['error']}")
        return answer

    def hang_up(self) -> None:
        """Close both ways: the process ends when it looks for the next command."""
        for pipe in (self._stdin, self._stdout):
            with suppress(BrokenPipeError):
                pipe.close()
