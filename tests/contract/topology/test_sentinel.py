"""Behind Sentinels: found at connect, found again after a failover, told what a failover lost."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

import pawlock
from tests.contract.edges.helpers import in_child
from tests.faults.rig import Api, in_thread, key, until
from tests.support.groups import SentinelGroup
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.fault


@pytest.fixture
def group() -> Iterator[SentinelGroup]:
    """One master, one replica, three Sentinels: to be broken."""
    with SentinelGroup() as group:
        yield group


@pytest.fixture(scope="module")
def calm() -> Iterator[SentinelGroup]:
    """The same, for tests that break nothing."""
    with SentinelGroup(replicas=2) as group:
        yield group


def replicated(group: SentinelGroup, name: str = "n") -> bool:
    """Whether every replica has the key of a lock."""
    return all(group.ask(replica, "GET", key(name)) is not None for replica in group.replicas)


def test_the_master_is_found(calm: SentinelGroup, api: Api) -> None:
    client = api.connect(calm.url)
    lease = client.lock().acquire()
    assert calm.master.command("GET", key("n")) == lease.token.encode()
    assert client.lock().try_acquire() is None
    lease.release()


def test_sentinels_that_are_gone_are_passed_over(calm: SentinelGroup, api: Api) -> None:
    hosts = ["127.0.0.1:1", "127.0.0.1:2", f"127.0.0.1:{calm.sentinels[0].port}"]
    client = api.connect(f"redis+sentinel://{','.join(hosts)}/mymaster")
    client.lock("few").acquire().release()


def test_a_service_that_no_sentinel_knows(calm: SentinelGroup, api: Api) -> None:
    client = api.connect(calm.url.replace("mymaster", "theirmaster"))
    began = time.monotonic()
    with pytest.raises(pawlock.BackendUnavailable, match="have no master named 'theirmaster'"):
        client.lock().acquire()
    assert time.monotonic() - began < pace() * 2.0, "told at once"


def test_a_plain_server_is_no_sentinel(valkey: Server, api: Api) -> None:
    client = api.connect(f"redis+sentinel://127.0.0.1:{valkey.port}/mymaster")
    with pytest.raises(pawlock.NotSupported, match="not a Sentinel: for a plain server use redis://"):
        client.lock().acquire()


def test_a_sentinel_is_no_plain_server(calm: SentinelGroup, api: Api) -> None:
    client = api.connect(f"redis://127.0.0.1:{calm.sentinels[0].port}")
    with pytest.raises(pawlock.NotSupported, match=r"a Sentinel: use redis\+sentinel://"):
        client.lock().acquire()


def test_no_sentinel_at_all(api: Api) -> None:
    client = api.connect("redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster")
    began = time.monotonic()
    with pytest.raises(pawlock.BackendUnavailable, match="no Sentinel answered"):
        client.lock("n", unavailable_after=0.3).acquire()
    assert time.monotonic() - began < pace() * 3.0


def test_sentinels_with_a_password_of_their_own(api: Api) -> None:
    with SentinelGroup(sentinels=1, password="data-s3cret", sentinel_password="watch") as group:
        with pytest.raises(pawlock.BackendDenied, match="sentinel_password") as caught:
            api.connect(group.url).lock().acquire()
        assert "s3cret" not in str(caught.value)
        url = group.url + "?sentinel_password=watch"
        api.connect(url).lock().acquire().release()
        with pytest.raises(pawlock.BackendDenied) as wrong:
            api.connect(url.replace("data-", "wr0ng-")).lock().acquire()
        assert "s3cret" not in str(wrong.value)


def test_a_held_lease_survives_a_failover(group: SentinelGroup, api: Api) -> None:
    """What was replicated is confirmed by the new master, in the meantime suspect, and goes on."""
    client = api.connect(group.url)
    lease = client.lock(ttl=20.0).acquire()
    until(lambda: replicated(group), what="the replica has the lock")
    old = group.master
    old.kill()
    master = group.wait_for_failover(old)
    until(lambda: client.counter("doubted") > 0, what="the lease is doubted")
    until(lambda: lease.state == "held" and client.counter("renewed") > 0, what="the new master confirms it")
    assert master.command("GET", key("n")) == lease.token.encode()
    lease.check()
    lease.release()
    assert master.command("GET", key("n")) is None


@pytest.mark.slow
def test_a_lease_is_suspect_while_there_is_no_master(group: SentinelGroup, api: Api) -> None:
    client = api.connect(group.url)
    lease = client.lock(ttl=20.0, renew=0.2).acquire()
    until(lambda: replicated(group), what="the replica has the lock")
    old = group.master
    old.kill()
    until(lambda: lease.state == "suspect", what="the renewal fails")
    group.wait_for_failover(old)
    until(lambda: lease.state == "held", what="the new master confirms it")
    lease.release()


def test_a_waiter_rides_out_a_failover(group: SentinelGroup, api: Api) -> None:
    client, other = api.connect(group.url), api.connect(group.url)
    lease = client.lock(ttl=20.0).acquire()
    waiting = other.lock(ttl=20.0).start(timeout=30.0)
    until(lambda: client.inspect().queue_length == 1, what="it queues")
    until(lambda: replicated(group), what="the replica has the lock")
    old = group.master
    old.kill()
    group.wait_for_failover(old)
    until(lambda: lease.state == "held" and client.counter("renewed") > 0, what="the new master confirms it")
    assert not waiting.done()
    fence = lease.fence
    lease.release()
    began = time.monotonic()
    second = waiting.result(10.0)
    assert time.monotonic() - began < pace() * 2.0, "woken by the new master"
    assert second.fence > fence
    second.release()


def test_what_a_failover_lost_is_told(group: SentinelGroup, api: Api) -> None:
    """Replication is frozen, the master dies: the second holder's fence is higher, and the first is told."""
    client, other = api.connect(group.url), api.connect(group.url)
    client.lock("warm").acquire().release()
    group.freeze_replication()
    lease = client.lock(ttl=30.0).acquire()
    old = group.master
    old.kill()
    group.wait_for_failover(old)
    second = other.lock(ttl=30.0).acquire(timeout=20.0)
    assert second.fence > lease.fence
    took = until(lambda: lease.state == "lost", what="the first holder is told")
    assert took < 5.0, "by a question at once, not by the next renewal in 10 s"
    assert lease.reason in ("taken", "data_lost"), "by who asked the new master first"
    second.check()
    second.release()


@pytest.mark.slow
def test_an_acquire_during_a_failover_waits_for_the_new_master(group: SentinelGroup, api: Api) -> None:
    client = api.connect(group.url)
    client.lock().acquire().release()
    old = group.master
    old.kill()
    acquiring = in_thread(lambda: client.lock(ttl=20.0).acquire(timeout=20.0))
    master = group.wait_for_failover(old)
    lease = acquiring.result(15.0)
    assert master.command("GET", key("n")) == lease.token.encode()
    lease.release()


@pytest.mark.slow
def test_a_switch_without_a_crash(group: SentinelGroup, api: Api) -> None:
    """The old master lives and answers as a replica: nobody stays with it."""
    client = api.connect(group.url)
    lease = client.lock(ttl=20.0).acquire()
    until(lambda: replicated(group), what="the replica has the lock")
    old = group.master
    group.sentinels[0].command("SENTINEL", "FAILOVER", group.service)
    master = group.wait_for_failover(old)
    until(lambda: client.counter("doubted") > 0, what="the switch is heard of")
    until(lambda: lease.state == "held", what="the new master confirms it")
    assert master.command("GET", key("n")) == lease.token.encode()
    lease.release()
    client.lock("again").acquire().release()


@pytest.mark.slow
def test_a_master_that_hangs_is_left(group: SentinelGroup, api: Api) -> None:
    """It would answer again later, and take writes until it hears of its successor: nobody must still be there."""
    client, other = api.connect(group.url), api.connect(group.url)
    lease = client.lock(ttl=20.0).acquire()
    until(lambda: replicated(group), what="the replica has the lock")
    old = group.master
    with old.paused():
        master = group.wait_for_failover(old)
        until(lambda: client.counter("doubted") > 0, what="the switch is heard of")
        until(lambda: lease.state == "held", what="the new master confirms it")
    assert other.lock().try_acquire() is None
    lease.release()
    second = other.lock().acquire(timeout=10.0)
    assert master.command("GET", key("n")) == second.token.encode()
    second.release()


def test_a_sentinel_that_hangs_hides_no_failover(group: SentinelGroup, api: Api) -> None:
    """Nor does it take long from who comes later; the old master is cut off from the Sentinels, and serves."""
    client, other = api.connect(group.url), api.connect(group.url)
    lease = client.lock(ttl=60.0).acquire()
    until(lambda: replicated(group), what="the replica has the lock")
    old = group.hide_master()
    (master,) = (server for server in group.servers if server is not old)
    with group.sentinels[0].paused():
        until(lambda: client.counter("doubted") > 0, timeout=20.0, what="the switch is noticed")
        until(
            lambda: lease.state == "held" and client.counter("renewed") > 0, what="the new master confirms it"
        )
        assert other.lock().try_acquire() is None
        began = time.monotonic()
        second = other.lock("m").acquire()
        assert time.monotonic() - began < pace() * 2.0
        assert master.command("GET", key("m")) == second.token.encode()
        second.release()
    lease.release()
    assert master.command("GET", key("n")) is None


def test_a_sentinel_that_is_cut_off_is_not_believed(calm: SentinelGroup, api: Api) -> None:
    """It names a master that was demoted, by a newer configuration than the others have."""
    with Server("valkey", unix=False) as demoted:
        demoted.command("REPLICAOF", "127.0.0.1", "1")
        with calm.stray(demoted) as stray:
            ports = [sentinel.port for sentinel in (stray, *calm.sentinels[:2])]
            hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
            client = api.connect(f"redis+sentinel://{hosts}/{calm.service}")
            lease = client.lock("stray", unavailable_after=3.0).acquire(timeout=5.0)
            assert calm.master.command("GET", key("stray")) == lease.token.encode()
            lease.release()


def watches() -> int:
    return sum(thread.name == "pawlock-sentinel" for thread in threading.enumerate())


def test_the_watch_ends_with_its_client(calm: SentinelGroup, api: Api) -> None:
    before = watches()
    client = api.connect(calm.url)
    client.lock("watched").acquire().release()
    assert watches() == before + 1
    client.close()
    until(lambda: watches() <= before, what="the end of the watch")


@pytest.mark.slow
def test_the_watch_of_a_client_that_is_dropped_ends(calm: SentinelGroup) -> None:
    before = watches()
    client = pawlock.connect(calm.url)
    client.lock("watched").acquire().release()
    assert watches() == before + 1
    del client
    gc.collect()
    until(lambda: watches() <= before, what="the end of the watch")


def test_a_child_finds_the_master_by_itself(calm: SentinelGroup) -> None:
    with pawlock.connect(calm.url) as client:
        with client.lock("parent") as lease:
            fence = in_child(lambda: client.lock("child").acquire().fence)
            assert fence > lease.fence
            lease.check()
        client.lock("parent").acquire().release()


@pytest.mark.slow
def test_tls_to_plain_sentinels(calm: SentinelGroup, api: Api) -> None:
    url = calm.url.replace("redis+", "rediss+")
    with pytest.raises(pawlock.BackendUnavailable, match="the port is plain, without TLS"):
        api.connect(url).lock(unavailable_after=0.5).acquire()
