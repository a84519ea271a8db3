"""A server without memory: nothing new is granted, of any kind, whatever the name's state; what is there goes on.

One row for each primitive, state and operation, against a real server whose ``maxmemory`` is one byte.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import pawlock
from tests.conftest import started
from tests.faults.rig import until
from tests.support.servers import FLAVOURS, Server

# The rows are for both APIs: what they call has the same name in both, and is awaited in one.
Do = Callable[[Any], Any]


def full(server: Server) -> None:
    """Leave no memory."""
    server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.command("CONFIG", "SET", "maxmemory", "1")


class Side:
    """A client of either API, which a row calls step by step."""

    def __init__(self, api: str, url: str) -> None:
        self.runner = asyncio.Runner() if api == "asyncio" else None
        self.client: Any = (
            self.do(lambda: _connected(url)) if self.runner else pawlock.connect(url, deadlock_after=60)
        )

    def do(self, call: Callable[[], Any]) -> Any:
        """Call it, and wait for what it gives."""
        if self.runner is None:
            return call()

        async def run() -> Any:
            found = call()
            return await found if hasattr(found, "__await__") else found

        return self.runner.run(run())

    def close(self) -> None:
        """End it."""
        self.do(self.client.close)
        if self.runner is not None:
            self.runner.close()


async def _connected(url: str) -> pawlock.AsyncClient:
    return pawlock.connect_async(url, deadlock_after=60)


@pytest.fixture(scope="module", params=FLAVOURS)
def flavoured(request: pytest.FixtureRequest) -> Iterator[Server]:
    with started(request.param) as server:
        yield server


@pytest.fixture
def small(flavoured: Server) -> Iterator[Server]:
    """An empty server whose memory a test may take away."""
    flavoured.command("FLUSHALL")
    yield flavoured
    flavoured.command("CONFIG", "SET", "maxmemory", "0")


@pytest.fixture(params=["threads", "asyncio"])
def side(request: pytest.FixtureRequest, small: Server) -> Iterator[Side]:
    with closing(Side(request.param, small.url)) as made:
        yield made
        small.command("CONFIG", "SET", "maxmemory", "0")


@pytest.fixture
def other(small: Server) -> Iterator[pawlock.Client]:
    """Who was there before."""
    with pawlock.connect(small.url, deadlock_after=60) as client:
        yield client
        small.command("CONFIG", "SET", "maxmemory", "0")


def nothing(_: pawlock.Client) -> None:
    """A name that nobody ever used."""


def used(make: Do) -> Do:
    """A name that somebody had, and gave back."""
    return lambda client: make(client).acquire(timeout=5).release()


def held(make: Do) -> Do:
    """A name that somebody has."""
    return lambda client: make(client).acquire(timeout=5)


def sem(client: Any) -> Any:
    return client.semaphore("n", permits=3)


def write(client: Any) -> Any:
    return client.rwlock("n").write


def read(client: Any) -> Any:
    return client.rwlock("n").read


def lock(client: Any) -> Any:
    return client.lock("n")


def several(client: Any) -> Any:
    return client.multi_lock(["n", "m"])


def fast(make: Do) -> Do:
    """Take it if it is free."""
    return lambda client: make(client).acquire(timeout=0)


def slow(make: Do) -> Do:
    """Queue for it."""
    return lambda client: make(client).acquire(timeout=5)


NEW: dict[str, tuple[Do, Do]] = {
    "a lock that is free": (nothing, fast(lock)),
    "a lock that was used": (used(lock), fast(lock)),
    "a place in the queue of a lock": (held(lock), slow(lock)),
    "a re-entrant lock": (nothing, fast(lambda client: client.rlock("n"))),
    "a fair lock": (nothing, fast(lambda client: client.fair_lock("n"))),
    "a permit, the first time": (nothing, fast(sem)),
    "a permit that was used": (used(sem), fast(sem)),
    "a permit beside others": (held(sem), fast(sem)),
    "a place in the queue for a permit": (lambda client: sem(client).acquire(3, timeout=5), slow(sem)),
    "to write": (nothing, fast(write)),
    "to write where somebody wrote": (used(write), fast(write)),
    "a place in the queue of writers": (held(read), slow(write)),
    "to read": (nothing, fast(read)),
    "to read where somebody read": (used(read), fast(read)),
    "to read beside others": (held(read), fast(read)),
    "a place in the queue of readers": (held(write), slow(read)),
    "several locks": (nothing, fast(several)),
    "several locks that were used": (used(several), fast(several)),
    "to lead": (nothing, lambda client: client.election("n").campaign(timeout=0)),
    "to stand behind a leader": (
        lambda client: client.election("n").campaign(timeout=5),
        lambda client: client.election("n").campaign(timeout=5),
    ),
    "to count down a new latch": (nothing, lambda client: client.latch("n", 2).count_down()),
    "to wait at a new latch": (nothing, lambda client: client.latch("n", 2).wait(timeout=5)),
    "to wait at a latch that is there": (
        lambda client: client.latch("n", 2).count_down(),
        lambda client: client.latch("n", 2).wait(timeout=5),
    ),
    "to arrive at a barrier": (nothing, lambda client: client.barrier("n", 2).wait(timeout=5)),
}


@pytest.mark.parametrize("api", ["threads", "asyncio"])
def test_nothing_new_is_granted(api: str, small: Server) -> None:
    for row, (prepare, act) in NEW.items():
        small.command("FLUSHALL")
        with pawlock.connect(small.url, deadlock_after=60) as other, closing(Side(api, small.url)) as side:
            keep = prepare(other)
            full(small)
            try:
                side.do(lambda act=act, side=side: act(side.client))  # type: ignore[misc]
            except pawlock.BackendOutOfMemory:
                granted = False
            else:
                granted = True
            small.command("CONFIG", "SET", "maxmemory", "0")
            assert not granted, row
            if hasattr(keep, "release"):
                keep.release()


DEAD: dict[str, Callable[[Any, str], Any]] = {
    "lock": lambda client, name: client.lock(name),
    "permit": lambda client, name: client.semaphore(name, permits=1),
    "writer": lambda client, name: client.rwlock(name).write,
}
"""What a holder and a waiter leave behind that die: what is taken out of the way first must not open the way."""


def test_nothing_new_is_granted_where_the_dead_are_swept(side: Side, small: Server) -> None:
    died = subprocess.Popen([sys.executable, "-c", HOLDS, small.url])
    until(lambda: len(_queue(small)) == len(DEAD), timeout=60, what="a waiter's ticket in each queue")
    died.kill()
    died.wait(60)
    time.sleep(1.5)
    full(small)
    for name, make in DEAD.items():
        with pytest.raises(pawlock.BackendOutOfMemory):
            side.do(lambda make=make, name=name: make(side.client, name).acquire(timeout=5))  # type: ignore[misc]


HOLDS = """
import sys, threading
import pawlock
client = pawlock.connect(sys.argv[1], ttl=0.4)
soon = {"ttl": 0.4, "ticket_ttl": 0.3}
def lock(): return client.lock("lock", **soon)
def permit(): return client.semaphore("permit", permits=1, **soon)
def writer(): return client.rwlock("writer", **soon).write
held = [lock().acquire(), permit().acquire(), writer().acquire()]
client = pawlock.connect(sys.argv[1])
for waiting in (lock(), permit(), writer()):
    threading.Thread(target=waiting.acquire, kwargs={"timeout": 60}).start()
"""
"""A process that holds and waits, until it is killed."""


def _queue(server: Server) -> list[object]:
    found: Any = server.command("KEYS", "*:queue")
    return list(found)


HELD: dict[str, tuple[Do, Do]] = {
    "a lock": (lock, lock),
    "permits": (
        lambda client: client.semaphore("n", permits=1),
        lambda client: client.semaphore("n", permits=1),
    ),
    "a writer's lock, for a writer": (write, write),
    "a writer's lock, for a reader": (write, read),
    "a reader's lock, for a writer": (read, write),
}


@pytest.mark.parametrize("row", HELD)
def test_what_is_there_is_renewed_released_and_passed_on(
    row: str, side: Side, other: pawlock.Client, small: Server
) -> None:
    mine, theirs = HELD[row]
    lease = side.do(lambda: mine(side.client).acquire(timeout=5))
    got: list[pawlock.Lease] = []
    waiting = threading.Thread(target=lambda: got.append(theirs(other).acquire(timeout=60)))
    waiting.start()
    until(lambda: bool(_queue(small)), what="the waiter's ticket")
    full(small)
    side.do(lambda: lease.extend(40))
    side.do(lease.check)
    side.do(lease.release)
    waiting.join(60)
    assert got
    got[0].extend(40)
    got[0].release()


def test_a_downgrade_lets_readers_in(side: Side, other: pawlock.Client, small: Server) -> None:
    lease = side.do(lambda: write(side.client).acquire(timeout=5))
    got: list[pawlock.Lease] = []
    waiting = threading.Thread(target=lambda: got.append(read(other).acquire(timeout=60)))
    waiting.start()
    until(lambda: bool(_queue(small)), what="the waiter's ticket")
    full(small)
    side.do(lease.downgrade)
    waiting.join(60)
    assert got
    side.do(lease.check)
    got[0].release()
    side.do(lease.release)


def test_a_latch_that_is_there_opens(side: Side, other: pawlock.Client, small: Server) -> None:
    opened: list[bool] = []

    def wait() -> None:
        other.latch("n", 1).wait(timeout=60)
        opened.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: small.command("KEYS", "*:waiters") != [], what="the waiter's note")
    full(small)
    side.do(lambda: side.client.latch("n", 1).count_down())
    waiting.join(60)
    assert opened
