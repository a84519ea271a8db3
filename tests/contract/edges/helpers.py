"""What the tests of the hard edges share: waiting for a condition, a child of ours, a script of its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Generator
from typing import Any, Self, TypeVar

import redis

import pawlock
from tests.support.pace import pace
from tests.support.servers import Server

__all__ = [
    "Script",
    "count_up",
    "eventually",
    "free",
    "holder_of",
    "in_child",
    "local_waiters",
    "outcome",
    "run_script",
    "script_calls",
    "started_threads",
    "wait_for_renewal",
]

T = TypeVar("T")


def eventually(condition: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """Wait until a condition is true; fail saying what did not happen."""
    end = time.monotonic() + pace() * timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {timeout:g} s: {what}")
        time.sleep(0.005)


def holder_of(server: Server, name: str, namespace: str = "pawlock") -> str | None:
    """The value of a name's key as the server has it; None when the name is free."""
    value = server.command("GET", f"{namespace}:{name}")
    return None if value is None else bytes(value).decode()  # type: ignore[arg-type]


def wait_for_renewal(server: Server, name: str, namespace: str = "pawlock") -> None:
    """Wait until a holder pushes the expiry of a name on."""
    key = f"{namespace}:{name}"
    before = server.command("PEXPIRETIME", key)
    assert isinstance(before, int)
    assert before > 0, f"{key} is not held"
    eventually(lambda: (server.command("PEXPIRETIME", key) or 0) > before, f"{name} is renewed")  # type: ignore[operator]


def script_calls(server: Server) -> int:
    """How many scripts the server has run so far: every step of a lock that it took part in."""
    stats = server.command("INFO", "commandstats")
    assert isinstance(stats, bytes)
    return sum(int(n) for n in re.findall(rb"cmdstat_eval(?:sha)?:calls=(\d+)", stats))


def local_waiters(client: pawlock.Client) -> int:
    """How many threads sleep in the local queues of a client."""
    return sum(len(queue.sleepers) for queue in list(client._engine.local_queues.values()))


def free(server: Server, name: str) -> bool:
    """Whether nobody holds or waits for a name, by the server's own keys."""
    return (
        server.command(
            "EXISTS", f"pawlock:{name}", f"{{pawlock:{name}}}:1:queue", f"{{pawlock:{name}}}:1:tickets"
        )
        == 0
    )


def in_child(work: Callable[[], T], timeout: float = 10.0) -> T:
    """Run something in a forked child and return its result; its error, if it raised one.

    The child ends without clean-up, as a forked worker does.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                answer: tuple[bool, Any] = True, work()
            except BaseException:  # noqa: BLE001 - told to the parent
                answer = False, traceback.format_exc()
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            if not select.select([pipe], [], [], timeout)[0]:
                raise AssertionError(f"the child hangs: no result within {timeout:g} s")
            worked, value = pickle.load(pipe)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not worked:
        raise AssertionError(f"in the child:\n{value}")
    result: T = value
    return result


class Script:
    """A Python program of its own, with the server's URL as its first argument."""

    def __init__(self, text: str, *args: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(text), *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the program ended: {self.process.communicate()[1]}")
        return line.strip()

    def say(self, text: str = "go") -> None:
        """Write a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self, timeout: float = 20.0) -> tuple[int, str, str]:
        """Wait for its end: exit status, the rest of its output, and of its errors."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


def run_script(text: str, *args: str, timeout: float = 30.0, **environ: str) -> str:
    """Run a program to its end and return what it printed; it must end well and complain of nothing."""
    with Script(text, *args, **environ) as script:
        status, out, err = script.end(timeout)
    assert status == 0, f"exit status {status}\n{out}\n{err}"
    assert not err, err
    return out.strip()


@contextlib.contextmanager
def started_threads(*works: Callable[[], object]) -> Generator[list[object]]:
    """Threads that run at the side; at the end of the block all must be done, and none may have failed.

    Gives the list of their results, in order of their ends.
    """
    results: list[object] = []
    errors: list[BaseException] = []

    def serve(work: Callable[[], object]) -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread below
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    yield results
    for thread in threads:
        thread.join(20.0)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def count_up(lock: pawlock.Lock, url: str, rounds: int) -> int:
    """Count a number up in two steps under a lock: the work of a pool's worker."""
    plain = redis.Redis.from_url(url)
    for _ in range(rounds):
        with lock:
            plain.set("m", int(plain.get("m") or 0) + 1)
    plain.close()
    return rounds


def outcome(work: Callable[[], object]) -> str:
    """What a step gave: the class of its error with the reason of a loss, or "done"."""
    try:
        work()
    except pawlock.LeaseLost as error:
        return f"LeaseLost:{error.reason}"
    except pawlock.PawlockError as error:
        return type(error).__name__
    return "done"
