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
