"""A server that comes back without what it knew, or without the last of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import pawlock
from tests.faults.rig import Api, Client, Lock, in_thread, until, value
from tests.support.pace import pace
from tests.support.proxy import Proxy, Request
from tests.support.scripts import published
from tests.support.servers import Server

pytestmark = pytest.mark.fault


def log_of(server: Server) -> Path:
    """The file to which the server appends every write."""
    (found,) = (server.folder / "data" / "appendonlydir").glob("*.incr.aof")
    return found


def test_row_43_a_restart_without_data_is_told_and_the_fence_rises(api: Api, broken: Server) -> None:
    client, rival = api.connect(broken.url), api.connect(broken.url)
    lease = client.lock(ttl=3, renew=0.3, ticket_ttl=1).acquire(5)
    counted = Lock(api, client.raw.semaphore("counted", permits=2, ttl=3, renew=0.3, ticket_ttl=1)).acquire(5)
    broken.restart(keep_data=False)
    # The server knows of nobody, so the next who asks is served at once: that is what memory alone can promise.
    second = rival.lock(ttl=10).acquire(5)
    assert second.fence > lease.fence
    took = until(lambda: lease.reason is not None, timeout=3.5, what="the old holder's loss")
    assert took < 2.5, "the next renewal tells, not the end of the ttl"
    until(lambda: counted.reason is not None, timeout=3.5, what="the loss of the counted hold")
    with pytest.raises(pawlock.NotHeld):
        lease.release()
    second.check()
    assert value(broken) == second.token
    again = Lock(api, client.raw.semaphore("counted", permits=2, ttl=3)).acquire(5)
    assert again.fence > counted.fence
    again.release()
    second.release()


_LEAVE = {published(name) for name in ("mutex/leave", "permits/leave")}


def leaves(request: Request) -> bool:
    """Whether it is a release of any primitive."""
    return any(request.contains(word) for leave in _LEAVE for word in (leave.sha, leave.source[:200]))


@pytest.mark.parametrize(
    "kind",
    [
        "lock",
        "semaphore",
        *[pytest.param(kind, marks=pytest.mark.slow) for kind in ("read", "write")],
    ],
)
def test_row_43_a_release_that_another_owner_met_after_a_restart_is_not_called_done(
    api: Api, broken: Server, kind: str
) -> None:
    """The server forgot the lease while its release was on the way, and gave the name to another owner."""

    def lock(client: Client, who: str) -> Lock:
        options: dict[str, Any] = {"ttl": 20, "renew": 6, "ticket_ttl": 0.9}
        made = {
            "lock": lambda: client.raw.lock("n", **options),
            "read": lambda: getattr(
                client.raw.rwlock("n", **options), {"first": "read", "second": "write"}[who]
            ),
            "write": lambda: client.raw.rwlock("n", **options).write,
            "semaphore": lambda: client.raw.semaphore("n", permits=1, **options),
        }
        return Lock(api, made[kind]())

    with Proxy(broken) as proxy:
        client, rival = api.connect(proxy.url), api.connect(broken.url)
        lease = lock(client, "first").acquire(5)
        rule = proxy.drop_request(leaves)
        releasing = in_thread(lease.release)
        rule.wait()
        # A copy that arrives before the other owner does finds nobody, and rightly counts as done.
        proxy.blackhole()
        broken.restart(keep_data=False)
        second = lock(rival, "second").acquire(5)
        proxy.blackhole(on=False)
        with pytest.raises((pawlock.BackendUnavailable, pawlock.NotHeld)):
            releasing.result(10)
        second.check()
        second.release()


@pytest.mark.slow
def test_row_43_a_waiter_queues_again_after_a_restart_without_data(api: Api, broken: Server) -> None:
    client, rival = api.connect(broken.url), api.connect(broken.url)
    lease = client.lock(ttl=5, renew=False).acquire(5)
    waiting = rival.lock(ttl=5, ticket_ttl=1).start(15)
    until(lambda: client.inspect().queue_length == 1, what="the ticket")
    broken.restart(keep_data=False)
    got = waiting.result(10)
    assert got.fence > lease.fence
    got.check()
    got.release()


def test_row_44_what_the_log_had_not_on_disk_is_lost_and_told(api: Api, lasting: Server) -> None:
    """Power fails: what was appended last never reached the disk. The log is cut where it would have ended."""
    client, rival = api.connect(lasting.url), api.connect(lasting.url)
    kept = client.lock("kept", ttl=20, ticket_ttl=1).acquire(5)
    log = log_of(lasting)
    on_disk = log.stat().st_size
    lost = client.lock("lost", ttl=8, renew=0.5, ticket_ttl=1).acquire(5)
    assert log.stat().st_size > on_disk
    lasting.kill()
    with log.open("r+b") as file:
        file.truncate(on_disk)
    lasting.start()
    assert value(lasting, "kept") == kept.token
    assert value(lasting, "lost") is None
    assert rival.lock("kept").try_acquire() is None
    second = rival.lock("lost", ttl=10).acquire(5)
    assert second.fence > lost.fence
    until(lambda: lost.reason is not None, timeout=5, what="the loss of the grant that is not on disk")
    kept.extend(20)
    kept.check()
    second.check()
    kept.release()
    second.release()


@pytest.mark.slow
def test_row_44_a_release_that_is_not_on_disk_ends_with_the_ttl(api: Api, lasting: Server) -> None:
    client = api.connect(lasting.url)
    lease = client.lock(ttl=2, ticket_ttl=0.5).acquire(5)
    log = log_of(lasting)
    on_disk = log.stat().st_size
    lease.release()
    released = time.monotonic()
    lasting.kill()
    with log.open("r+b") as file:
        file.truncate(on_disk)
    lasting.start()
    assert value(lasting) is not None, "the old grant is back, and nobody holds it"
    again = client.lock(ttl=5).acquire(10)
    assert time.monotonic() - released < pace() * (2 + 1.5)
    assert again.fence > lease.fence
    again.release()
