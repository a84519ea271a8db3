"""The clocks of a program under test are frozen, as by freezegun, or its ``sleep`` is another: leases count real time."""

from __future__ import annotations

import asyncio
import time

import pytest
from freezegun import freeze_time

import pawlock
import pawlock.compat.redis
from tests.contract.edges.helpers import run_script
from tests.support.servers import Server

FROZEN = "2026-01-01"


def test_threads_wait_and_renew_in_real_time(client: pawlock.Client, other: pawlock.Client) -> None:
    lease = client.lock("n", ttl=0.6).acquire()
    permit = client.semaphore("s", permits=1).acquire()
    with freeze_time(FROZEN):
        for wanted in (other.lock("n"), other.semaphore("s", permits=1)):
            with pytest.raises(pawlock.AcquireTimeout):
                wanted.acquire(timeout=0.2)
        assert not lease.lost.wait(1.2)
        lease.check()
        permit.release()
        lease.release()
        ending = client.lock("n", ttl=0.3, renew=False).acquire()
        assert ending.lost.wait(5)


def test_the_drop_in_and_a_leader_too(client: pawlock.Client, valkey: Server) -> None:
    with pawlock.compat.redis.Redis.from_url(valkey.url) as redis:
        held = redis.lock("n", timeout=5)
        assert held.acquire()
        with freeze_time(FROZEN):
            assert not redis.lock("n", timeout=5).acquire(blocking_timeout=0.2)
            assert client.election("lead").run(lambda lease: lease.fence)
        held.release()


async def test_tasks_wait_and_renew_in_real_time(
    aclient: pawlock.AsyncClient, aother: pawlock.AsyncClient
) -> None:
    """The timers of asyncio stand still as well, unless freezegun is told to leave them alone."""
    with freeze_time(FROZEN, real_asyncio=True):
        async with aclient.lock("n", ttl=0.6) as lease:
            with pytest.raises(pawlock.AcquireTimeout):
                await aother.lock("n").acquire(timeout=0.2)
            await asyncio.sleep(1.2)
            lease.check()


def test_what_is_loaded_while_time_stands_still(valkey: Server) -> None:
    text = """
        import sys
        from freezegun import freeze_time
        with freeze_time("2026-01-01"):
            import pawlock
            with pawlock.connect(sys.argv[1]) as client, pawlock.connect(sys.argv[1]) as other:
                with client.lock("frozen"):
                    try:
                        other.lock("frozen").acquire(timeout=0.2)
                    except pawlock.AcquireTimeout:
                        print("done")
    """
    assert run_script(text, valkey.url) == "done"


def test_a_sleep_that_is_none(client: pawlock.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    monkeypatch.setattr("time.time", lambda: 0.0)
    with client.lock("n", ttl=0.6) as lease:
        assert not lease.lost.wait(1.0)
        lease.check()
    monkeypatch.undo()
    assert time.monotonic() - began >= 1.0
