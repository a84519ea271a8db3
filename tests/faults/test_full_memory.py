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
from typing import Any

import pytest

import pawlock
from tests.faults.rig import until
from tests.support.servers import Server

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


@pytest.fixture(params=["threads", "asyncio"])
def side(request: pytest.FixtureRequest, own_server: Server) -> Iterator[Side]:
    made = Side(request.param, own_server.url)
    yield made
    own_server.command("CONFIG", "SET", "maxmemory", "0")
    made.close()


@pytest.fixture
def other(own_server: Server) -> Iterator[pawlock.Client]:
    """Who was there before."""
    with pawlock.connect(own_server.url, deadlock_after=60) as client:
        yield client
        own_server.command("CONFIG", "SET", "maxmemory", "0")


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


def upgradable(client: Any) -> Any:
    return client.rwlock("n", upgradable=True).read


def lock(client: Any) -> Any:
    return client.lock("n")


def owner(client: Any) -> Any:
    return client.rlock("n", owner="job")


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
    "an owner's first hold": (nothing, fast(owner)),
    "an owner's second hold": (held(owner), fast(owner)),
    "a place in the queue of an owner": (held(lock), slow(owner)),
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
    "to read upgradably": (nothing, fast(upgradable)),
    "to read upgradably beside others": (held(read), fast(upgradable)),
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


@pytest.mark.parametrize("row", NEW)
def test_nothing_new_is_granted(row: str, side: Side, other: pawlock.Client, own_server: Server) -> None:
    prepare, act = NEW[row]
    keep = prepare(other)
    full(own_server)
    with pytest.raises(pawlock.BackendOutOfMemory):
        side.do(lambda: act(side.client))
    own_server.command("CONFIG", "SET", "maxmemory", "0")
    if hasattr(keep, "release"):
        keep.release()


DEAD = {
    "a lock": ("client.lock('n', ttl=0.4, ticket_ttl=0.3)", slow(lock)),
    "an owner's lock": ("client.rlock('n', owner='job', ttl=0.4, ticket_ttl=0.3)", slow(owner)),
    "a permit": (
        "client.semaphore('n', permits=1, ttl=0.4, ticket_ttl=0.3)",
        slow(lambda client: client.semaphore("n", permits=1)),
    ),
    "a writer's lock": ("client.rwlock('n', ttl=0.4, ticket_ttl=0.3).write", slow(write)),
}
"""What a holder and a waiter leave behind that die: what is taken out of the way first must not open the way."""


@pytest.mark.parametrize("row", DEAD)
def test_nothing_new_is_granted_where_the_dead_are_swept(row: str, side: Side, own_server: Server) -> None:
    make, act = DEAD[row]
    died = subprocess.Popen([sys.executable, "-c", HOLDS.format(make=make), own_server.url])
    until(lambda: bool(_queue(own_server)), timeout=60, what="the waiter's ticket")
    died.kill()
    died.wait(60)
    time.sleep(1.5)
    full(own_server)
    with pytest.raises(pawlock.BackendOutOfMemory):
        side.do(lambda: act(side.client))


HOLDS = """
import sys
import pawlock
def make(client):
    return {make}
lease = make(pawlock.connect(sys.argv[1])).acquire(timeout=20)
client = pawlock.connect(sys.argv[1])
other = client.rlock("n", owner="another", ttl=0.4, ticket_ttl=0.3) if "owner" in {make!r} else make(client)
other.acquire(timeout=60)
"""
"""A process that holds and waits, until it is killed."""


def _queue(server: Server) -> list[object]:
    found: Any = server.command("KEYS", "*:queue")
    return list(found)


HELD: dict[str, tuple[Do, Do]] = {
    "a lock": (lock, lock),
    "an owner's lock": (owner, lock),
    "a lock, for an owner": (lock, owner),
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
    row: str, side: Side, other: pawlock.Client, own_server: Server
) -> None:
    mine, theirs = HELD[row]
    lease = side.do(lambda: mine(side.client).acquire(timeout=5))
    got: list[pawlock.Lease] = []
    waiting = threading.Thread(target=lambda: got.append(theirs(other).acquire(timeout=60)))
    waiting.start()
    until(lambda: bool(_queue(own_server)), what="the waiter's ticket")
    full(own_server)
    side.do(lambda: lease.extend(40))
    side.do(lease.check)
    side.do(lease.release)
    waiting.join(60)
    assert got
    got[0].extend(40)
    got[0].release()


def test_a_downgrade_lets_readers_in(side: Side, other: pawlock.Client, own_server: Server) -> None:
    lease = side.do(lambda: write(side.client).acquire(timeout=5))
    got: list[pawlock.Lease] = []
    waiting = threading.Thread(target=lambda: got.append(read(other).acquire(timeout=60)))
    waiting.start()
    until(lambda: bool(_queue(own_server)), what="the waiter's ticket")
    full(own_server)
    side.do(lease.downgrade)
    waiting.join(60)
    assert got
    side.do(lease.check)
    got[0].release()
    side.do(lease.release)


def test_a_latch_that_is_there_opens(side: Side, other: pawlock.Client, own_server: Server) -> None:
    opened: list[bool] = []

    def wait() -> None:
        other.latch("n", 1).wait(timeout=60)
        opened.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: own_server.command("KEYS", "*:waiters") != [], what="the waiter's note")
    full(own_server)
    side.do(lambda: side.client.latch("n", 1).count_down())
    waiting.join(60)
    assert opened
