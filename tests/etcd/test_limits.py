"""What etcd does not have, and a store that is full."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

import pawlock
from tests.etcd.rig import slow
from tests.faults.rig import Api, Client
from tests.support.etcd import Etcd
from tests.support.etcd_wire import EtcdError, EtcdWire


@pytest.fixture
def small() -> Iterator[Etcd]:
    with Etcd(args=["--quota-backend-bytes", "500000"]) as started:
        yield started


def fill(wire: EtcdWire) -> None:
    """Write until no more is taken."""
    number = 0
    with contextlib.suppress(EtcdError):
        while number < 100:
            wire.put(f"full:{number}", "x" * 20_000)
            number += 1
    assert number < 100


def make_room(wire: EtcdWire) -> None:
    """What an administrator does then."""
    wire.delete("full:")
    wire.compact(wire.revision())
    wire.call("maintenance/defragment")
    for alarm in wire.call("maintenance/alarm", action="GET").get("alarms", []):
        wire.call("maintenance/alarm", action="DEACTIVATE", **alarm)


def test_a_full_store(api: Api, small: Etcd) -> None:
    """New locks are refused with an error of their own; what is held is renewed and released."""
    client = api.connect(small.url)
    lease = client.lock(ttl=3).acquire()
    permit = client._api.run(lambda: client.raw.semaphore("s", permits=2, ttl=3).acquire())
    with small.wire() as wire:
        fill(wire)
        began = time.monotonic()
        with pytest.raises(pawlock.BackendOutOfMemory):
            client.lock("another").acquire(20)
        assert time.monotonic() - began < slow(3)
        time.sleep(4)
        lease.check()
        lease.release()
        client._api.run(permit.release)
        assert not wire.range("pawlock:n\0")
        make_room(wire)
    client.lock("another").acquire(slow(5)).release()


def test_a_full_store_under_a_waiter(api: Api, small: Etcd) -> None:
    """One who waits already gets the lock, or is told why not; the name is not left closed."""
    client, rival = api.connect(small.url), api.connect(small.url)
    held = client.lock(ttl=20).acquire()
    waiting = rival.lock(ttl=20).start(15)
    with small.wire() as wire:
        while len(wire.range("pawlock:n\0")) < 2:
            time.sleep(0.01)
        fill(wire)
        held.release()
        with contextlib.suppress(pawlock.BackendError, pawlock.AcquireTimeout):
            waiting.result(30).release()
        make_room(wire)
    api.connect(small.url).lock(ttl=20).acquire(slow(10)).release()


@pytest.mark.parametrize("kind", ["latch", "barrier"])
def test_gates_are_refused_by_name(client: Client, kind: str) -> None:
    with pytest.raises(pawlock.NotSupported, match=kind):
        getattr(client.raw, kind)("n", 3)


def test_once_is_refused_by_name(client: Client) -> None:
    with pytest.raises(pawlock.NotSupported, match="once"):
        client.raw.once("n")


@pytest.mark.parametrize(
    "key",
    [
        pawlock.Key("n"),
        pawlock.Key.redisson("n"),
        pawlock.Key.spring("r", "n"),
        pawlock.Key.python_redis_lock("n"),
    ],
    ids=["plain", "redisson", "spring", "python-redis-lock"],
)
def test_keys_of_other_libraries_are_refused(client: Client, key: pawlock.Key) -> None:
    with pytest.raises(pawlock.NotSupported, match="etcd"):
        client.lock(key)


def test_names_that_need_care(client: Client, rival: Client) -> None:
    """Control characters, braces and the like, and a name that another one begins with: none meets another."""
    names = ["a", "a:b", "a\0b", "a\x01b", "a}", "a%00b", "é\u2028", "x" * 200, "a/b", "~"]
    held = [client.lock(name, ttl=20).acquire(5) for name in names]
    for name in names:
        assert rival.lock(name).try_acquire() is None
        assert client.inspect(name).held
    listed = client._api.run(client.raw.locks)
    assert sorted(one.name for one in listed) == sorted(names)
    for lease in held:
        lease.release()
    assert not client._api.run(client.raw.locks)


def test_without_a_namespace(api: Api, etcd: Etcd) -> None:
    client, rival = api.connect(etcd.url, namespace=""), api.connect(etcd.url, namespace="")
    lease = client.lock("order:42", ttl=20).acquire()
    assert rival.lock("order:42").try_acquire() is None
    assert api.connect(etcd.url).lock("order:42").try_acquire() is not None, "another name"
    lease.release()


def test_what_is_no_row_of_pawlock(client: Client, wire: EtcdWire) -> None:
    """Something that another program wrote under the keys of a name is an error of ours, that says so."""
    wire.put("pawlock:n\0foreign", "not JSON")
    with pytest.raises(pawlock.PawlockError):
        client.lock("n").acquire(2)
    client.lock("m").acquire(2).release()


@pytest.mark.parametrize("url", ["etcd://127.0.0.1:1", "etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"])
def test_nobody_there(api: Api, url: str) -> None:
    client = api.connect(url, unavailable_after=1)
    began = time.monotonic()
    with pytest.raises(pawlock.BackendUnavailable, match="127"):
        client.lock().acquire(20)
    assert time.monotonic() - began < slow(4)


@pytest.mark.parametrize("url", ["etcd://", "etcd:///", "etcd://a:b:c", "etcd://a:99999", "etcd://a/1"])
def test_bad_addresses(url: str) -> None:
    with pytest.raises(pawlock.ConfigurationError):
        pawlock.connect(url)


def test_redis_at_the_address_of_etcd(api: Api, valkey: object) -> None:
    """The other server's port, by mistake: an error that says so, before long."""
    port = valkey.port  # type: ignore[attr-defined]
    client = api.connect(f"etcd://127.0.0.1:{port}", unavailable_after=1)
    with pytest.raises(pawlock.BackendError):
        client.lock().acquire(10)
