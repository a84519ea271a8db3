"""``lock_delay``: after a lease that was not released the name stays closed for a while."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import pawlock
from tests.faults.rig import Api, helper, key, until
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture
def server(valkey: Server) -> Server:
    valkey.command("FLUSHALL")
    return valkey


def test_a_release_opens_the_name_at_once(server: Server, api: Api) -> None:
    client, other = api.connect(server.url), api.connect(server.url)
    lease = client.lock(ttl=1.0, lock_delay=30.0).acquire()
    assert lease.remaining() <= 1.0, "the delay is not the holder's"
    lease.release()
    second = other.lock(ttl=1.0).try_acquire()
    assert second is not None
    second.release()


def test_a_waiter_is_served_at_once_after_a_release(server: Server, api: Api) -> None:
    client, other = api.connect(server.url), api.connect(server.url)
    lease = client.lock(ttl=5.0, lock_delay=30.0).acquire()
    waiting = other.lock(ttl=5.0, lock_delay=30.0).start()
    until(lambda: client.inspect().queue_length == 1, what="it queues")
    began = time.monotonic()
    lease.release()
    second = waiting.result(10.0)
    assert time.monotonic() - began < pace() * 1.0
    assert 30_000 < int(str(server.command("PTTL", key("n")))) <= 35_000, (
        "confirmed, with its delay, before it is given"
    )
    second.release()


CRASH = """
import os, sys, pawlock
client = pawlock.connect(sys.argv[1])
lease = client.lock("n", ttl=0.5, lock_delay=1.0).acquire()
print(lease.fence, flush=True)
os._exit(1)
"""


def test_a_crash_leaves_the_name_closed(server: Server, api: Api) -> None:
    client = api.connect(server.url)
    client.lock("warm").acquire().release()
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CRASH, server.url], capture_output=True, text=True, check=False, timeout=20
    )
    fence = int(done.stdout)
    crashed = time.monotonic()
    lease = client.lock(ttl=5.0).acquire()
    waited = time.monotonic() - crashed
    assert lease.fence > fence
    assert waited >= 0.5 + 1.0 - (crashed - began), "ttl and delay"
    assert waited <= 3.0
    lease.release()


def test_the_lease_itself_ends_at_its_ttl(server: Server, api: Api) -> None:
    """What the server keeps longer gives the holder nothing: not at the grant, nor by a renewal or a resend."""
    client = api.connect(server.url)
    lease = client.lock(ttl=0.5, lock_delay=30.0).acquire()
    until(lambda: client.counter("renewed") >= 3, what="renewals")
    assert lease.remaining() <= 0.5
    assert int(str(server.command("PTTL", key("n")))) > 30_000
    lease.extend(0.8)
    assert lease.remaining() <= 0.8
    lease.release()
    fixed = client.lock(ttl=0.3, lock_delay=30.0, renew=False).acquire()
    time.sleep(0.35)
    assert fixed.state == "lost"


def test_a_holder_that_lost_its_lease_keeps_the_name_closed(server: Server, api: Api) -> None:
    """It may still be at work: the token is left, but the name is not open yet."""
    client, other = api.connect(server.url), api.connect(server.url)
    other.lock("warm").acquire().release()
    lease = client.lock(ttl=0.3, lock_delay=1.0, renew=False).acquire()
    until(lambda: lease.state == "lost", what="its end")
    lost = time.monotonic()
    second = other.lock().acquire()
    waited = time.monotonic() - lost
    assert 0.9 <= waited <= 2.5
    second.release()


def test_without_it_nothing_changes(server: Server, api: Api) -> None:
    client = api.connect(server.url)
    lease = client.lock(ttl=5.0).acquire()
    assert int(str(server.command("PTTL", key("n")))) <= 5000
    lease.release()
    assert server.command("EXISTS", key("n"), helper("n", "1:queue")) == 0


def test_local_hand_over_is_for_equals(server: Server, api: Api) -> None:
    """A lock without the delay does not take over a lease that has one."""
    client = api.connect(server.url)
    lease = client.lock(ttl=5.0, lock_delay=2.0).acquire()
    waiting = client.lock(ttl=5.0).start()
    until(lambda: client.inspect().queue_length == 1, what="it queues on the server")
    lease.release()
    second = waiting.result(5.0)
    assert int(str(server.command("PTTL", key("n")))) <= 5000
    second.release()


def test_on_independent_masters_it_counts_to_what_a_restarted_one_may_forget(
    server: Server, api: Api
) -> None:
    urls = [server.url, "redis://127.0.0.1:1", "redis://127.0.0.1:2"]
    with pytest.raises(pawlock.NotSupported, match="cannot be used with independent masters"):
        api.connect(urls).lock(replicas=1)
    with pytest.raises(pawlock.ConfigurationError, match="ttl and lock_delay are 61 s"):
        api.connect(urls).lock(ttl=30, lock_delay=31)


def test_a_confirmation_gives_no_more_than_was_left(server: Server, api: Api) -> None:
    """After a failover a lease without renewal is only asked for: what the server keeps longer is not its holder's."""
    client = api.connect(server.url)
    lease = client.lock(ttl=3.0, lock_delay=30.0, renew=False).acquire()
    time.sleep(0.6)
    engine = api.run(lambda: api.engine(client.raw))
    api.run(engine.suspect_all)
    until(lambda: client.counter("renewed") == 1, what="the confirmation")
    assert lease.state == "held"
    assert 1.5 < lease.remaining() <= 2.4
    lease.release()
