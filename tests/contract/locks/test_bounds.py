"""Nothing grows without bound: what idle names leave behind is small and has an end."""

from __future__ import annotations

import time

import pytest

import pawlock
from tests.faults.rig import Api, Client
from tests.support.resp import texts
from tests.support.servers import Server

HOUR_MS = 3_600_000


def keys_of(server: Server) -> list[str]:
    return list(texts(server.command("KEYS", "*")))


def ends(server: Server, key: str) -> int:
    left = server.command("PTTL", key)
    assert isinstance(left, int)
    return left


def test_short_lived_names_leave_only_small_fences(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        for number in range(2000):
            client.lock(f"order:{number}").acquire().release()
    keys = texts(valkey.command("KEYS", "*"))
    assert len(keys) == 2000
    assert all(key.endswith(":fence") for key in keys)
    sizes = []
    for key in keys[::10]:
        assert 0 < ends(valkey, key) <= HOUR_MS
        size = valkey.command("MEMORY", "USAGE", key)
        assert isinstance(size, int)
        sizes.append(size)
    print("bytes", max(sizes))
    assert max(sizes) <= 200


def test_short_lived_names_leave_nothing_where_fences_are_not_kept(valkey: Server) -> None:
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url, fence_ttl=0) as client:
        for number in range(2000):
            client.lock(f"order:{number}").acquire().release()
        time.sleep(
            0.005
        )  # one that was released within the microseconds of its own block ends a millisecond later
        assert keys_of(valkey) == []


def use_each_kind(api: Api, client: Client) -> None:
    """Take and give back one of every primitive that leases."""
    raw = client.raw
    rw = raw.rwlock("n")
    made = [raw.lock("n"), raw.rlock("n"), raw.fair_lock("n")]
    made += [raw.semaphore("n", permits=2), rw.read, rw.write, raw.multi_lock(["m", "o"])]
    for lock in made:
        lease = api.run(lock.acquire)
        api.run(lease.release)
    election = raw.election("n")
    lease = api.run(election.campaign)
    api.run(lease.release)


@pytest.mark.parametrize("fence_ttl", [0, 3])
def test_no_kind_leaves_more_than_was_asked_for(server: Server, api: Api, fence_ttl: int) -> None:
    server.command("FLUSHALL")
    client = api.connect(server.url, fence_ttl=fence_ttl)
    use_each_kind(api, client)
    time.sleep(0.005)
    left = keys_of(server)
    if fence_ttl == 0:
        assert left == []
    assert all(key.endswith(":fence") for key in left)
    assert all(0 < ends(server, key) <= fence_ttl * 1000 for key in left)
    assert len(left) == (6 if fence_ttl else 0)


def test_a_lease_that_is_renewed_past_the_fences_time_keeps_it(server: Server, api: Api) -> None:
    server.command("FLUSHALL")
    client = api.connect(server.url, fence_ttl=0.2)
    lease = client.lock(ttl=1.0).acquire()
    time.sleep(1.5)
    assert client.inspect().fence == lease.fence
    assert ends(server, "{pawlock:n}:fence") > 200
    lease.release()
    assert ends(server, "{pawlock:n}:fence") <= 200


def test_fences_rise_though_none_is_kept(server: Server, api: Api) -> None:
    clients = [api.connect(server.url, fence_ttl=fence_ttl) for fence_ttl in (0, 60, 0)]
    fences = []
    for _ in range(30):
        for client in clients:
            lease = client.lock().acquire()
            fences.append(lease.fence)
            lease.release()
    assert fences == sorted(set(fences))
