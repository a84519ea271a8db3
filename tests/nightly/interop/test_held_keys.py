"""The holder of a key that others may delete is notified of that; a notice alone ends no lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import pawlock
from tests.contract.edges.helpers import eventually, in_child
from tests.contract.redlock.test_hints import count
from tests.faults.rig import APIS, Api, Client, until
from tests.support.groups import ClusterGroup
from tests.support.servers import Server, available

TTL = 180.0
"""A renewal comes after a minute, where nothing asks for one."""

KEY = "job-lock:default:report"


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Threads, then asyncio."""
    with Api(request.param) as api:
        yield api


def engine(api: Api, client: Client) -> Any:
    """What is behind a client; of asyncio there is one for each loop."""
    return api.run(lambda: api.engine(client.raw))


class Held:
    """A lease of a key, which the server tracks by now."""

    def __init__(self, api: Api, url: str, node: Server, key: str = KEY, **options: Any) -> None:
        self.api = api
        self.client: Client = api.connect(url, ttl=TTL)
        self.lost: list[Any] = []
        before = tracked(node)
        raw = self.client.raw.lock(pawlock.Key(key), on_lost=self.lost.append, **options)
        self.lease = api.run(raw.acquire)
        until(lambda: tracked(node) > before, what="the key is tracked")

    @property
    def counters(self) -> Any:
        return engine(self.api, self.client).reports.counters

    def reason(self) -> str:
        """Wait until the loss is reported, far sooner than the next renewal is due."""
        until(lambda: self.lost, timeout=10, what="the loss is reported")
        with pytest.raises(pawlock.LeaseLost) as caught:
            self.api.run(self.lease.check)
        return str(caught.value.reason)


def tracked(server: Server) -> int:
    """How many keys a server tracks for its clients."""
    info = server.command("INFO", "stats")
    assert isinstance(info, bytes)
    (line,) = [line for line in info.split(b"\r\n") if line.startswith(b"tracking_total_keys:")]
    return int(line.partition(b":")[2])


def tracked_since(server: Server, before: int) -> bool:
    """Whether a key was tracked since then."""
    return count(server, "client|caching") > before


TAKES: dict[str, tuple[Callable[[Server], object], str]] = {
    "DEL": (lambda server: server.command("DEL", KEY), "expired"),
    "SET": (lambda server: server.command("SET", KEY, "ADDED:now@host:uuid", "XX", "PX", 60_000), "taken"),
    "DEL and SET NX": (
        lambda server: server.command("EVAL", "redis.call('DEL',KEYS[1]) redis.call('SET',KEYS[1],'x')", 1, KEY),
        "taken",
    ),
    "FLUSHALL": (lambda server: server.command("FLUSHALL"), "expired"),
}  # fmt: skip


@pytest.mark.parametrize("how", TAKES)
def test_a_loss_is_reported_at_once(server: Server, api: Api, how: str) -> None:
    take, reason = TAKES[how]
    held = Held(api, server.url, server)
    take(server)
    assert held.reason() == reason


def test_a_change_that_leaves_the_lease_is_no_loss(server: Server, api: Api) -> None:
    held = Held(api, server.url, server)
    for number in (1, 2, 3):
        before = count(server, "client|caching")
        server.command("PEXPIRE", KEY, round(TTL * 1000) - number)
        until(partial(tracked_since, server, before), what="it looked, and tracks again")
    api.run(held.lease.check)
    assert not held.lost
    server.command("DEL", KEY)
    assert held.reason() == "expired"


def test_its_own_writes_are_no_notices(server: Server, api: Api) -> None:
    """Neither a renewal nor what it does with other names."""
    client = api.connect(server.url, ttl=TTL)
    raw = client.raw.lock(pawlock.Key(KEY), renew_every=0.3)
    lease = api.run(raw.acquire)
    until(lambda: count(server, "client|caching") >= 1, what="it is tracked")
    api.run(Held(api, server.url, server, "another").lease.release)
    counters = engine(api, client).reports.counters
    before = counters["renewed"]
    until(lambda: counters["renewed"] >= before + 3, what="it renews")
    assert counters["key_changed"] == 0
    api.run(lease.release)


def test_a_short_hold_sends_nothing_more(server: Server, api: Api) -> None:
    client = api.connect(server.url, ttl=TTL)
    before = count(server, "client|tracking")
    for _ in range(20):
        api.run(api.run(client.raw.lock(pawlock.Key(KEY)).acquire).release)
    assert count(server, "client|tracking") == before
    assert not engine(api, client).leases.tracked


@pytest.mark.parametrize("options", [{"hear": False}, {"renew": False}])
def test_only_where_it_is_wanted(server: Server, api: Api, options: dict[str, Any]) -> None:
    client = api.connect(server.url, ttl=TTL)
    before = count(server, "client|tracking")
    lease = api.run(client.raw.lock(pawlock.Key(KEY), **options).acquire)
    name = client.lock("a name", ttl=0.9).acquire()
    counters = engine(api, client).reports.counters
    until(lambda: counters["renewed"] >= 2, what="the maintenance is at work")
    assert count(server, "client|tracking") == before
    name.release()
    api.run(lease.release)


def test_a_release_ends_the_tracking(server: Server, api: Api) -> None:
    held = Held(api, server.url, server)
    api.run(held.lease.release)
    server.command("SET", KEY, "they", "PX", 1000)
    server.command("DEL", KEY)
    assert not engine(api, held.client).leases.tracked
    assert held.counters["key_changed"] == 0
    assert not held.lost


def test_a_connection_that_breaks_is_replaced(server: Server, api: Api) -> None:
    held = Held(api, server.url, server)
    server.command("CLIENT", "KILL", "TYPE", "pubsub")
    until(lambda: tracked(server) == 1, what="it is tracked on the next connection")
    api.run(held.lease.check)
    server.command("DEL", KEY)
    assert held.reason() == "expired"


def test_where_the_acl_refuses_the_next_renewal_finds_it(own_server: Server, api: Api) -> None:
    own_server.command("ACL", "SETUSER", "default", "-client|tracking")
    client = api.connect(own_server.url, ttl=1.5)
    lease = api.run(client.raw.lock(pawlock.Key(KEY)).acquire)
    counters = engine(api, client).reports.counters
    until(lambda: counters["renewed"] >= 3, what="it renews")
    own_server.command("DEL", KEY)
    until(lambda: api.run(lambda: lease.state) != "held", what="the loss is noticed")


@pytest.mark.skipif(bool(available("valkey")), reason=str(available("valkey")))
def test_each_node_of_a_cluster_notifies(api: Api) -> None:
    with ClusterGroup() as group:
        held = {}
        for number in range(50):
            node = group.owner(group.slot_of(f"n{number}"))
            if node.port not in held:
                held[node.port] = node, f"n{number}", Held(api, group.url, node, f"n{number}")
        assert len(held) == 3
        client = api.connect(group.url, ttl=TTL)
        both = client.raw.multi_lock([pawlock.Key("a"), pawlock.Key("b")])
        lease = api.run(both.acquire)
        for node, key, one in held.values():
            node.command("DEL", key)
            assert one.reason() == "expired"
        api.run(lease.release)


@pytest.mark.parametrize("kind", ["rlock", "redisson", "multi_lock"])
def test_the_other_locks_of_a_key_are_notified_too(server: Server, api: Api, kind: str) -> None:
    client = api.connect(server.url, ttl=TTL)
    lost: list[Any] = []
    key = pawlock.Key.redisson(KEY) if kind == "redisson" else pawlock.Key(KEY)
    raw = (
        client.raw.rlock(key, on_lost=lost.append)
        if kind != "multi_lock"
        else client.raw.multi_lock([key, "name"])
    )
    lease = api.run(raw.acquire)
    until(lambda: tracked(server) >= 1, what="the key is tracked")
    server.command("DEL", KEY)
    until(lambda: api.run(lambda: lease.state) == "lost", what="the loss is reported")
    if kind != "multi_lock":
        until(lambda: lost, what="its callback ran")
    else:
        # The name, which it still has.
        with suppress(pawlock.NotHeld):
            api.run(lease.release)


def test_a_child_does_not_look_after_the_keys_of_its_parent(server: Server) -> None:
    with Api("threads") as threads:
        held = Held(threads, server.url, server)
        client: pawlock.Client = held.client.raw

        def child() -> None:
            with client.lock("another") as lease:
                eventually(lambda: client._engine.activity.maintenance_runs, "it is at work")
                leases = client._engine.leases
                assert [one.token for one in leases.schedule.all()] == [lease.token]
                assert not leases.tracked

        in_child(child)
        threads.run(held.lease.check)
        server.command("DEL", KEY)
        assert held.reason() == "expired"
