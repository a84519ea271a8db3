"""The tests' own servers, connections and proxy for etcd."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.matrix import certificate
from tests.support.etcd import Etcd
from tests.support.etcd_proxy import EtcdProxy
from tests.support.etcd_wire import EtcdError, EtcdWire, b64, prefix_end


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    with Etcd() as started:
        yield started


@pytest.fixture
def wire(etcd: Etcd) -> Iterator[EtcdWire]:
    with etcd.wire() as made:
        made.delete("")
        yield made


@pytest.fixture
def proxy(etcd: Etcd) -> Iterator[EtcdProxy]:
    with EtcdProxy(etcd.members[0]) as started:
        yield started


def behind(proxy: EtcdProxy, timeout: float = 10.0) -> EtcdWire:
    return EtcdWire("127.0.0.1", proxy.port, timeout=timeout)


def test_keys_and_leases(wire: EtcdWire) -> None:
    lease = wire.grant(5)
    wire.put("b", "2", lease)
    wire.put("a", b"\xff\x00")
    assert [(one.key, one.value, one.lease) for one in wire.range()] == [
        (b"b", b"2", lease), (b"a", b"\xff\x00", 0),
    ]  # fmt: skip
    assert 0 < wire.keep_alive(lease) <= 5
    assert 0 < wire.time_to_live(lease) <= 5
    assert wire.leases() == [lease]
    wire.revoke(lease)
    assert [one.key for one in wire.range()] == [b"a"]
    assert (wire.keep_alive(lease), wire.time_to_live(lease)) == (0, -1)
    assert wire.delete("a", exact=True) == 1
    with pytest.raises(EtcdError, match="lease not found") as refused:
        wire.revoke(lease)
    assert refused.value.code == 5


def test_a_transaction(wire: EtcdWire) -> None:
    absent = {"key": b64("k"), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
    put = {"request_put": {"key": b64("k"), "value": b64("v")}}
    assert wire.txn([absent], [put]).get("succeeded")
    assert not wire.txn([absent], [put]).get("succeeded")


def test_a_watch_also_of_what_was_and_what_is_compacted(wire: EtcdWire) -> None:
    with wire.watch("w/") as events:
        first = wire.put("w/1", "x")
        wire.delete("w/1")
        made, gone = next(events), next(events)
    assert (made.deleted, made.pair.value, made.pair.mod_revision) == (False, b"x", first)
    assert gone.deleted
    with wire.watch("w/", first) as events:
        assert next(events) == made
    wire.compact(wire.revision())
    with wire.watch("w/", first) as events, pytest.raises(EtcdError, match="compact"):
        next(events)


def test_the_end_of_a_prefix() -> None:
    assert prefix_end(b"a") == b"b"
    assert prefix_end(b"a\xff\xff") == b"b"
    assert prefix_end(b"\xff") == b"\x00"


def test_a_member_keeps_its_data(etcd: Etcd, wire: EtcdWire) -> None:
    wire.put("kept", "1")
    member = etcd.members[0]
    member.kill()
    assert not member.healthy()
    etcd.start()
    wire.close()
    assert [one.key for one in wire.range()] == [b"kept"]
    with member.paused(), member.wire(timeout=0.2) as hasty, pytest.raises(TimeoutError):
        hasty.status()
    assert member.healthy()


@pytest.mark.slow
def test_a_cluster_elects_another_leader() -> None:
    with Etcd(3) as three:
        leader = three.leader()
        leader.kill()
        with three.followers()[0].wire() as wire:
            wire.put("a", "b")
        assert three.leader() is not leader
        three.start()
        with leader.wire() as wire:
            assert [one.key for one in wire.range()] == [b"a"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_tls(tmp_path: Path) -> None:
    with Etcd(tls=certificate(tmp_path)) as etcd, etcd.wire() as wire:
        assert wire.put("a", "b") > 0
        assert etcd.url.startswith("etcds://localhost:")


def test_the_proxy_is_transparent(proxy: EtcdProxy) -> None:
    with behind(proxy) as wire:
        lease = wire.grant(5)
        assert wire.keep_alive(lease) == 5
        wire.put("big", b"x" * 300_000, lease)
        assert len(wire.range("big")[0].value) == 300_000
        with wire.watch("w/") as events:
            wire.put("w/1", b"y" * 10_000)
            wire.put("w/2")
            assert [len(next(events).pair.value) for _ in range(2)] == [10_000, 0]
    assert [one.command for one in proxy.requests("w/1")] == ["KV/PUT"]
    assert len(proxy.requests("watch")) == 1


def test_lost_and_doubled_messages(proxy: EtcdProxy, wire: EtcdWire) -> None:
    with behind(proxy, 0.3) as hasty:
        proxy.drop_request("kv/put")
        with pytest.raises(TimeoutError):
            hasty.put("lost")
        proxy.swallow_reply("kv/put")
        with pytest.raises(TimeoutError):
            hasty.put("done")
        proxy.kill_on_reply("kv/put")
        with pytest.raises(ConnectionResetError):
            hasty.put("done too")
    assert [one.key for one in wire.range()] == [b"done", b"done too"]
    with behind(proxy) as patient:
        before = wire.revision()
        rule = proxy.duplicate_request("kv/put")
        patient.put("twice")
        # The second answer is nobody's.
        assert patient.range("twice")[0].key == b"twice"
        assert (rule.hits, wire.revision()) == (1, before + 2)


def test_a_late_copy(proxy: EtcdProxy, wire: EtcdWire) -> None:
    rule = proxy.duplicate_request_late("kv/put")
    with behind(proxy) as patient:
        patient.put("twice")
        wire.delete("twice")
        rule.release()
        rule.wait()
        assert wire.range("twice")


def test_late_messages(proxy: EtcdProxy, wire: EtcdWire) -> None:
    with behind(proxy, 0.2) as hasty:
        rule = proxy.hold_request("kv/put")
        with pytest.raises(TimeoutError):
            hasty.put("late")
    assert wire.range() == []
    rule.release()
    end = time.monotonic() + 10
    while not wire.range() and time.monotonic() < end:
        time.sleep(0.01)
    assert [one.key for one in wire.range()] == [b"late"]
    with behind(proxy) as patient:
        began = time.monotonic()
        proxy.hold_reply("kv/range", seconds=0.3)
        patient.range()
        assert time.monotonic() - began >= 0.3
        proxy.blackhole()
    with behind(proxy, 0.2) as hasty, pytest.raises(TimeoutError):
        hasty.range()
    proxy.blackhole(on=False)


def test_lost_events_of_a_watch(proxy: EtcdProxy, wire: EtcdWire) -> None:
    with behind(proxy, 0.3) as hasty, hasty.watch("w/") as events:
        rule = proxy.cut_push(times=1)
        wire.put("w/1")
        rule.wait()
        wire.put("w/2")
        assert next(events).pair.key == b"w/2"
