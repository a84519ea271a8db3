"""Words for what the tests of latches, barriers and elections do alike in both APIs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from tests.faults.rig import Api, Client, in_thread
from tests.support.resp import texts
from tests.support.servers import Server

TICKET = 0.6
"""Incarnation of a ticket in most tests, in seconds: a lost message costs a third of it."""


class Made:
    """A latch, a barrier or an election of either API behind one blocking face."""

    def __init__(self, api: Api, raw: Any) -> None:
        self.api, self.raw = api, raw

    def do(self, method: str, *args: object, **kwargs: object) -> Any:
        return self.api.run(lambda: getattr(self.raw, method)(*args, **kwargs))

    def start(self, method: str, *args: object, **kwargs: object) -> Future[Any]:
        """The same in a thread or task of its own."""
        return in_thread(lambda: self.do(method, *args, **kwargs))


def make(client: Client, kind: str, *args: object, **options: object) -> Made:
    api = client._api
    return Made(api, api.run(lambda: getattr(client.raw, kind)(*args, **options)))


def key(name: str, suffix: str) -> str:
    return f"{{pawlock:{name}}}:1:{suffix}"


def number(server: Server, *command: str) -> int:
    return int(str(server.command(*command)))


def waiting(server: Server, name: str, suffix: str = "latch:waiters") -> int:
    return number(server, "ZCARD", key(name, suffix))


def endless(server: Server) -> list[str]:
    """Keys without an end: there must never be one."""
    return [name for name in texts(server.command("KEYS", "*")) if number(server, "PTTL", name) == -1]


@contextmanager
def program(code: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program of its own; it has said "ready" when this goes on, and is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield process
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        process.wait()


def says(process: subprocess.Popen[str]) -> str:
    """The next line that a program says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], text: str = "go") -> None:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
