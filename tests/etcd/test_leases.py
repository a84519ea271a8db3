"""What a lease on etcd does: its life, its end, its fence, its loss; turns passed on inside a client."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import pawlock
from tests.contract.contention.rig import run_threads
from tests.etcd.rig import AGREED, order, queue, slow, stand
from tests.faults.rig import Api, Client, in_thread, until
from tests.support.etcd import Etcd
from tests.support.etcd_wire import EtcdWire

OPEN = Path("/proc/self/fd")


def test_a_lease_hangs_on_a_lease_of_the_server(etcd: Etcd, client: Client, wire: EtcdWire) -> None:
    lease = client.lock(ttl=7).acquire()
    (held,) = order(etcd)
    assert 0 < wire.time_to_live(held.lease) <= 7
    assert 6 < lease.remaining() <= 7
    lease.release()
    assert not queue(etcd)


def test_a_second_holder_has_a_higher_fence_also_after_a_restart(api: Api, own: Etcd) -> None:
    client = api.connect(own.url)
    first = client.lock().acquire()
    first.release()
    own.members[0].kill()
    own.start()
    second = client.lock().acquire(20)
    assert second.fence > first.fence
    assert second.raw.fence_strength == "quorum"


@pytest.mark.slow
def test_many_leases_that_are_due_at_once_need_few_connections(api: Api, own: Etcd) -> None:
    """After an outage all are: a program may open a thousand files, as a rule."""
    client = api.connect(own.url)
    leases = [client.lock(f"n{number}", ttl=12).acquire() for number in range(300)]
    before = most = len(list(OPEN.iterdir()))
    with own.paused(*own.members):
        time.sleep(5)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        most = max(most, len(list(OPEN.iterdir())))
        time.sleep(0.01)
    assert most - before < 150
    assert all(lease.remaining() > 0 for lease in leases)


def test_extend_sets_the_life(etcd: Etcd, client: Client, wire: EtcdWire) -> None:
    lease = client.lock(ttl=5).acquire()
    lease.extend(60)
    assert 50 < wire.time_to_live(order(etcd)[0].lease) <= 60
    assert 58 < lease.remaining() <= 60
    lease.extend(4)
    assert 2 < lease.remaining() <= 4
    lease.release()


def test_re_entry_of_a_thread_asks_nobody(etcd: Etcd, wire: EtcdWire) -> None:
    with pawlock.connect(etcd.url) as client, client.rlock("n") as first:
        before = wire.revision()
        with client.rlock("n") as second:
            assert (second.fence, second.count) == (first.fence, 2)
        assert wire.revision() == before
    assert not queue(etcd)


async def test_re_entry_of_a_task_asks_nobody(etcd: Etcd, wire: EtcdWire) -> None:
    async with pawlock.connect_async(etcd.url) as client, client.rlock("n") as first:
        before = wire.revision()
        async with client.rlock("n") as second:
            assert (second.fence, second.count) == (first.fence, 2)
        assert wire.revision() == before
    assert not queue(etcd)


def test_many_leases_are_renewed_together(etcd: Etcd, client: Client) -> None:
    held = [client.lock(f"n{number}", ttl=2).acquire() for number in range(20)]
    time.sleep(3)
    for lease in held:
        lease.check()
        lease.release()


@pytest.mark.parametrize("ttl", [0.5, 1, 1.999])
def test_a_ttl_below_two_seconds_is_refused_at_construction(client: Client, ttl: float) -> None:
    with pytest.raises(pawlock.ConfigurationError, match=r"at least 2"):
        client.lock(ttl=ttl)


def test_max_hold_ends_it(etcd: Etcd, client: Client, rival: Client) -> None:
    lease = client.lock(ttl=2, max_hold=3).acquire()
    began = time.monotonic()
    until(lambda: lease.state == "lost", 10, "max_hold ends it")
    assert time.monotonic() - began >= 2.9
    assert lease.reason == "max_hold"
    assert rival.lock(ttl=20).acquire(slow(2 + AGREED)).fence > lease.fence


def test_min_hold_keeps_it_closed(etcd: Etcd, client: Client, rival: Client) -> None:
    lease = client.lock(ttl=20, min_hold=2.5).acquire()
    granted = time.monotonic()
    lease.release()
    assert rival.lock(ttl=20).try_acquire() is None
    rival.lock(ttl=20).acquire(10)
    # Whole seconds, two at least, counted from the release.
    assert 2.5 <= time.monotonic() - granted < slow(3 + AGREED)


def test_a_loss_is_told_once_with_its_reason(etcd: Etcd, client: Client, wire: EtcdWire) -> None:
    told: list[Any] = []
    lease = client.lock(ttl=3, on_lost=told.append).acquire()
    wire.delete("pawlock:n\0")
    until(lambda: told, 10, "on_lost is called")
    assert lease.state == "lost"
    assert lease.reason in {"data_lost", "taken", "expired"}
    with pytest.raises(pawlock.NotHeld):
        lease.release()
    time.sleep(1)
    assert len(told) == 1


def test_a_revoked_lease_is_a_loss(etcd: Etcd, client: Client, wire: EtcdWire) -> None:
    lease = client.lock(ttl=3).acquire()
    wire.revoke(order(etcd)[0].lease)
    until(lambda: lease.state == "lost", 10, "the loss")
    # Its number may not be used for the next one.
    client.lock(ttl=3).acquire().release()


def test_force_release_tells_the_holder_and_lets_the_next_in(
    etcd: Etcd, client: Client, rival: Client
) -> None:
    lease = client.lock(ttl=3).acquire()
    waiting = rival.lock(ttl=20).start(20)
    stand(etcd, 2)
    done = rival._api.run(lambda: rival.raw.force_release("n", reason="test"))
    assert done
    assert waiting.result(slow(2)).fence > lease.fence
    until(lambda: lease.state == "lost", 10, "the holder is told")
    assert lease.reason == "taken"


def test_it_is_listed(etcd: Etcd, client: Client) -> None:
    held = [client.lock("a", ttl=20).acquire(), client.lock("é b", ttl=20).acquire()]
    permit = client._api.run(lambda: client.raw.semaphore("pool", permits=2).acquire())
    found = client._api.run(client.raw.locks)
    assert [(one.name, one.held) for one in found] == [("a", True), ("pool", True), ("é b", True)]
    assert client.inspect("a").fence == held[0].fence
    client._api.run(permit.release)


@pytest.mark.parametrize("handover", [64, 0])
def test_turns_of_one_client(etcd: Etcd, wire: EtcdWire, handover: int) -> None:
    """Passed on inside it they cost the server nothing, and have fences of their own; a strict lock passes none."""
    fences: list[int] = []
    with pawlock.connect(etcd.url) as client:
        lock = client.lock("n", handover=handover, ttl=20)

        def serve() -> None:
            for _ in range(10):
                with lock as lease:
                    fences.append(lease.fence)

        before = wire.revision()
        run_threads([serve] * 6)
        turns = wire.revision() - before
        assert bool(client._engine.reports.counters["handed_over"]) is bool(handover)
    assert fences == sorted(set(fences))
    assert len(fences) == 60
    if handover:
        assert turns < 120, "less than an acquire and a release for each"


def test_a_semaphore_counts_weights(etcd: Etcd, client: Client, rival: Client) -> None:
    one = client._api.run(lambda: client.raw.semaphore("s", permits=3).acquire())
    two = client._api.run(lambda: client.raw.semaphore("s", permits=3).acquire(2))
    waiting = in_thread(
        lambda: rival._api.run(lambda: rival.raw.semaphore("s", permits=3).acquire(2, timeout=10))
    )
    time.sleep(0.3)
    assert not waiting.done()
    client._api.run(one.release)
    time.sleep(0.3)
    assert not waiting.done(), "one is free, and it wants two"
    client._api.run(two.release)
    got = waiting.result(slow(2))
    assert got.fence > two.fence
    rival._api.run(got.release)


def test_a_writer_waits_for_readers_and_later_readers_for_it(
    etcd: Etcd, client: Client, rival: Client
) -> None:
    def read(one: Client, timeout: float = 10) -> Any:
        return one._api.run(lambda: one.raw.rwlock("rw", ttl=20).read.acquire(timeout=timeout))

    readers = [read(client), read(rival)]
    writing = in_thread(
        lambda: rival._api.run(lambda: rival.raw.rwlock("rw", ttl=20).write.acquire(timeout=10))
    )
    key = "{{pawlock:{}}}:1:rwlock"
    until(lambda: len(order(etcd, "rw", key)) == 3, what="the writer waits")
    late = in_thread(lambda: read(client))
    until(lambda: len(order(etcd, "rw", key)) == 4, what="the late reader waits")
    for one, lease in zip((client, rival), readers, strict=True):
        one._api.run(lease.release)
    writer = writing.result(slow(2))
    assert not late.done()
    rival._api.run(writer.release)
    client._api.run(late.result(slow(2)).release)
