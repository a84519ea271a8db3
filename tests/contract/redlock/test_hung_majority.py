"""A majority that hangs, as stopped processes do: a caller gets ``QuorumNotReached``, in its time and little more."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

import pawlock
from tests.contract.redlock.apis import APIS, connect, done, play
from tests.contract.redlock.conftest import FRESH, Cluster, cluster

_LATE = 2.1
"""Seconds beyond a caller's time: the longest that node_timeout may be, and a moment for the thread to wake up."""

_AT_ONCE = 8.0
"""Seconds for a caller that does not wait: two until its last attempt begins, two for it, two to undo it, and slack."""


@pytest.fixture(scope="module")
def hung() -> Iterator[Cluster]:
    """Three servers of which a test stops two."""
    yield from cluster(3)


async def asked(hung: Cluster, api: str, timeout: float | None) -> float:
    """Ask while two of three hang; how long it took until a refusal. Afterwards the client works again."""
    client = connect(api, hung.urls, redlock=FRESH)
    await done((await done(client.lock("warm").acquire())).release())
    pids = [server.pid for server in hung.servers[:2]]
    began = time.monotonic()
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        lock = client.lock(f"hung.{api}.{timeout}")
        with pytest.raises(pawlock.QuorumNotReached):
            await done(lock.try_acquire() if timeout is None else lock.acquire(timeout=timeout))
        took = time.monotonic() - began
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    lease = await done(client.lock(f"hung.{api}.{timeout}").acquire(timeout=20.0))
    await done(lease.release())
    await done(client.close())
    return took


@pytest.mark.parametrize(
    "timeout", [0.5, pytest.param(1.0, marks=pytest.mark.slow), pytest.param(3.0, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("api", APIS)
def test_a_wait_ends_within_one_node_timeout_of_its_time(hung: Cluster, api: str, timeout: float) -> None:
    took: list[float] = []

    async def ask() -> None:
        took.append(await asked(hung, api, timeout))

    play(api, ask)
    assert timeout * 0.9 < took[0] < timeout + _LATE


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
def test_a_try_gives_up_a_hung_majority(hung: Cluster, api: str) -> None:
    took: list[float] = []

    async def ask() -> None:
        took.append(await asked(hung, api, None))

    play(api, ask)
    assert took[0] < _AT_ONCE
