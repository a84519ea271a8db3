"""Clients of a cluster or of Sentinels that the user made and hands over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
import valkey
import valkey.asyncio

from pawlock.topology.endpoint import ClusterNodes, Sentinels
from pawlock.transport.handed import target_of
from tests.faults.rig import Api, key
from tests.support.groups import ClusterGroup, SentinelGroup

CLUSTERS: list[Callable[..., Any]] = [
    redis.RedisCluster,
    redis.asyncio.RedisCluster,
    valkey.ValkeyCluster,
    valkey.asyncio.ValkeyCluster,
]


def close(client: Any) -> None:
    """End what the test made, where it can be ended from here."""
    if isinstance(client, (redis.RedisCluster, redis.Redis, valkey.ValkeyCluster)):
        client.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterGroup]:
    """Three masters."""
    with ClusterGroup() as group:
        yield group


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelGroup]:
    """A master, a replica and three Sentinels, each asking for a password."""
    with SentinelGroup(password="inner", sentinel_password="outer") as group:
        yield group


@pytest.mark.parametrize("make", CLUSTERS, ids=lambda make: f"{make.__module__}")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_cluster_client_leads_to_its_cluster(
    cluster: ClusterGroup, api: Api, make: Callable[..., Any]
) -> None:
    theirs = make(host="127.0.0.1", port=cluster.nodes[0].port)
    client = api.connect(theirs)
    names = [f"n{number}" for number in range(6)]
    leases = [client.lock(name).acquire() for name in names]
    for name, lease in zip(names, leases, strict=True):
        node = cluster.owner(cluster.slot_of(key(name)))
        assert node.command("GET", key(name)) == lease.token.encode()
        lease.release()
    assert len({cluster.owner(cluster.slot_of(key(name))).port for name in names}) > 1
    close(theirs)


@pytest.mark.parametrize("module", [redis.sentinel, redis.asyncio.sentinel], ids=["sync", "asyncio"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_client_of_sentinels_leads_to_their_master(
    sentinels: SentinelGroup,
    api: Api,
    module: Any,
) -> None:
    client = api.connect(given(sentinels, module))
    lease = client.lock("s").acquire()
    assert sentinels.ask(sentinels.master, "GET", key("s")) == lease.token.encode()
    lease.release()


def given(group: SentinelGroup, module: Any) -> Any:
    """What a user has."""
    listed = [("127.0.0.1", sentinel.port) for sentinel in group.sentinels]
    made = module.Sentinel(listed, sentinel_kwargs={"password": "outer"}, password="inner")
    return made.master_for(group.service)


@pytest.mark.slow
def test_it_leads_to_the_next_master_too(api: Api) -> None:
    with SentinelGroup(password="inner", sentinel_password="outer") as group:
        client = api.connect(given(group, redis.sentinel))
        client.lock("s").acquire().release()
        old = group.master
        old.kill()
        lease = client.lock("s").acquire(timeout=30)
        assert group.wait_for_failover(old).port != old.port
        lease.release()


def test_logins_and_tls_come_along_and_are_not_shown() -> None:
    sentinel = redis.sentinel.Sentinel(
        [("h1", 26379), ("h2", 26380)],
        sentinel_kwargs={"password": "outer"},
        username="u",
        password="inner",
        db=2,
        ssl=True,
        ssl_ca_certs="/ca.pem",
    )
    made: Any = sentinel
    found = target_of(made.master_for("mymaster"))
    assert isinstance(found, Sentinels)
    assert found.shown == "rediss+sentinel://h1:26379,h2:26380/mymaster?db=2"
    assert found.master.settings == {
        "username": "u", "password": "inner", "db": 2, "ssl_ca_certs": "/ca.pem",
        **{k: v for k, v in found.master.settings.items() if k.startswith("ssl_")},
    }  # fmt: skip
    assert [node.settings["port"] for node in found.sentinels] == [26379, 26380]
    assert [node.settings.get("password") for node in found.sentinels] == ["outer", "outer"]
    cluster = target_of(redis.asyncio.RedisCluster(host="h", port=7000, password="inner", ssl=True))
    assert isinstance(cluster, ClusterNodes)
    assert cluster.nodes[0].scheme == "rediss"
    assert cluster.nodes[0].mode == "cluster"
    assert cluster.nodes[0].settings["password"] == "inner"
    for shown in (repr(found), repr(cluster)):
        assert "inner" not in shown
        assert "outer" not in shown
