"""``bool(lease)``: true while the lease may be relied on, false once it is released or lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pawlock
from tests.faults.rig import Api, Client, until
from tests.support.refusal import case
from tests.support.servers import Server

TAKEN: dict[str, Callable[[Any], Any]] = {
    "lock": lambda client: client.lock("a", ttl=1.0),
    "rlock": lambda client: client.rlock("b", ttl=1.0),
    "write": lambda client: client.rwlock("c", ttl=1.0).write,
    "semaphore": lambda client: client.semaphore("d", permits=2, ttl=1.0),
    "multi_lock": lambda client: client.multi_lock(["e", "f"], ttl=1.0),
}


def test_a_lease_is_true_until_it_is_released(api: Api, pair: list[Client]) -> None:
    for kind, make in TAKEN.items():
        with case(kind):
            lease = api.run(make(pair[0].raw).try_acquire)
            assert lease is not None
            assert api.run(lambda: bool(lease)) is True
            api.run(lease.release)
            assert api.run(lambda: bool(lease)) is False
            assert lease.state == "released"


def test_a_lease_is_false_once_it_is_lost(api: Api, pair: list[Client], valkey: Server) -> None:
    leases = {kind: api.run(make(pair[0].raw).acquire) for kind, make in TAKEN.items()}
    for lease in leases.values():
        assert api.run(lambda: bool(lease)) is True
    valkey.command("FLUSHALL")
    for kind, lease in leases.items():
        with case(kind):
            until(lambda: not api.run(lambda: bool(lease)), what="a loop over the lease ends")
            assert lease.lost
            with pytest.raises(pawlock.NotHeld):
                api.run(lease.release)
            assert api.run(lambda: bool(lease)) is False


def test_a_suspect_lease_is_true(api: Api, pair: list[Client]) -> None:
    lease = api.run(pair[0].raw.lock("a", ttl=60).acquire)
    lease._record.hold.state = pawlock.LeaseState.SUSPECT
    assert api.run(lambda: (bool(lease), lease.state)) == (True, "suspect")
    api.run(lease.release)


def test_a_lease_entered_again_is_true_until_the_last_release(api: Api, pair: list[Client]) -> None:
    async def twice() -> list[bool]:
        lock: Any = pair[0].raw.rlock("a")
        outer = await lock.acquire()
        inner = await lock.acquire()
        seen = [bool(inner)]
        await inner.release()
        seen.append(bool(outer))
        await outer.release()
        return [*seen, bool(outer)]

    def plain() -> list[bool]:
        lock: Any = pair[0].raw.rlock("a")
        outer = lock.acquire()
        inner = lock.acquire()
        seen = [bool(inner)]
        inner.release()
        seen.append(bool(outer))
        outer.release()
        return [*seen, bool(outer)]

    assert api.run(twice if api.name == "asyncio" else plain) == [True, True, False]
