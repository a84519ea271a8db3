"""What the tests of deadlocks and operators share: parties that take names in their order, and what became of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

import pawlock
from tests.support.pace import pace
from tests.support.servers import Server

__all__ = [
    "AFTER",
    "Party",
    "eventually",
    "published_waits",
    "run_tasks",
    "run_threads",
    "wait_in_vain",
]

AFTER = 0.1
"""How long a waiter waits before it looks for a cycle, in tests."""


def eventually(condition: Callable[[], object], what: str, timeout: float = 10.0) -> None:
    """Wait until a condition is true; fail saying what did not happen."""
    end = time.monotonic() + pace() * timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {timeout:g} s: {what}")
        time.sleep(0.005)


@dataclass
class Party:
    """One thread or task that takes names in turn.

    Attributes:
        client: Whose.
        names: What it takes, one inside the other.
        after: Seconds before it begins to take the last one: the youngest waiter is the one that begins last.
        error: The deadlock that it was told of.
        waited: How long it waited for the last name.
        done: Whether it got all of them.
    """

    client: Any
    names: tuple[str, ...]
    after: float = 0.0
    error: pawlock.DeadlockDetected | None = None
    waited: float = 0.0
    done: bool = False
    other: list[BaseException] = field(default_factory=list[BaseException])

    def run(self, ready: threading.Barrier) -> None:
        """Take all but the last name, meet the others, take the last."""
        with contextlib.ExitStack() as stack:
            for name in self.names[:-1]:
                stack.enter_context(self.client.lock(name))
            ready.wait(10)
            time.sleep(self.after)
            began = time.monotonic()
            try:
                stack.enter_context(self.client.lock(self.names[-1]).acquire(timeout=20))
                self.done = True
            except pawlock.DeadlockDetected as error:
                self.error = error
            except BaseException as error:  # noqa: BLE001 - told by the test
                self.other.append(error)
            self.waited = time.monotonic() - began

    async def arun(self, ready: asyncio.Barrier) -> None:
        """The same as a task."""
        async with contextlib.AsyncExitStack() as stack:
            for name in self.names[:-1]:
                await stack.enter_async_context(self.client.lock(name))
            await ready.wait()
            await asyncio.sleep(self.after)
            began = time.monotonic()
            try:
                await stack.enter_async_context(self.client.lock(self.names[-1]).acquire(timeout=20))
                self.done = True
            except pawlock.DeadlockDetected as error:
                self.error = error
            self.waited = time.monotonic() - began


def run_threads(*parties: Party) -> None:
    """Run each party in a thread of its own, named ``party-<n>``, to its end."""
    ready = threading.Barrier(len(parties))
    threads = [
        threading.Thread(target=party.run, args=(ready,), name=f"party-{number}", daemon=True)
        for number, party in enumerate(parties)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), f"{thread.name} is stuck"
    for party in parties:
        assert not party.other, party.other


async def run_tasks(*parties: Party) -> None:
    """Run each party in a task of its own."""
    ready = asyncio.Barrier(len(parties))
    async with asyncio.TaskGroup() as group:
        for number, party in enumerate(parties):
            group.create_task(party.arun(ready), name=f"party-{number}")


def published_waits(server: Server, namespace: str = "pawlock") -> list[str]:
    """What is written of waiters: a text for each client that has any."""
    keys = server.command("KEYS", f"{{{namespace}}}:1:waits:*")
    assert isinstance(keys, list)
    found: list[Any] = [server.command("HVALS", cast("bytes", key)) for key in keys]
    words: list[bytes] = [word for words in found for word in words]
    return [word.decode() for word in words]


def wait_in_vain(client: pawlock.Client, name: str, timeout: float) -> None:
    """Wait for a name that is not given back."""
    with pytest.raises(pawlock.AcquireTimeout):
        client.lock(name).acquire(timeout=timeout)
