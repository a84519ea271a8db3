"""The first waiter behind a program that is not pawlock is notified by the node that has the key, wherever that is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pawlock.core.acquire import queue
from tests.contract.redlock.test_hints import count
from tests.faults.rig import Api, until
from tests.support.groups import ClusterGroup, SentinelGroup
from tests.support.pace import pace
from tests.support.servers import Server

SLEEPS = 60.0
"""Seconds that a waiter sleeps here, where nothing wakes it."""

pytestmark = pytest.mark.usefixtures("never_polls")


@pytest.fixture
def never_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that is notified asks for nothing else."""
    monkeypatch.setattr(queue, "_NOTIFIED_POLL", SLEEPS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterGroup]:
    """Three masters."""
    with ClusterGroup() as group:
        yield group


def wakes(api: Api, url: str, node: Server, name: str) -> None:
    """Wait for a foreign key of a node, and have it deleted there."""
    client = api.connect(url, namespace="", ttl=3 * SLEEPS, ticket_ttl=3 * SLEEPS)
    node.command("SET", name, "they", "PX", 600_000)
    before = count(node, "client|caching")
    waiting = client.lock(name).start(timeout=SLEEPS)
    until(lambda: count(node, "client|caching") > before, what=f"{name} is tracked")
    node.command("DEL", name)
    waiting.result(10 * pace()).release()


def test_each_node_of_a_cluster_notifies_of_its_keys(cluster: ClusterGroup, api: Api) -> None:
    nodes: dict[int, tuple[Server, str]] = {}
    for number in range(50):
        node = cluster.owner(cluster.slot_of(f"n{number}"))
        nodes.setdefault(node.port, (node, f"n{number}"))
    assert len(nodes) == 3
    for node, name in nodes.values():
        wakes(api, cluster.url, node, name)


def test_one_client_waits_for_keys_of_two_nodes(cluster: ClusterGroup, api: Api) -> None:
    client = api.connect(cluster.url, namespace="", ttl=3 * SLEEPS, ticket_ttl=3 * SLEEPS)
    first = cluster.owner(cluster.slot_of("n0"))
    number = next(n for n in range(1, 50) if cluster.owner(cluster.slot_of(f"n{n}")) is not first)
    found = [(first, "n0"), (cluster.owner(cluster.slot_of(f"n{number}")), f"n{number}")]
    waits = []
    for node, name in found:
        before = count(node, "client|caching")
        node.command("SET", name, "they", "PX", 600_000)
        waits.append(client.lock(name).start(timeout=SLEEPS))
        until(lambda n=node, b=before: count(n, "client|caching") > b, what=f"{name} is tracked")  # type: ignore[misc]
    for (node, name), waiting in zip(found, waits, strict=True):
        node.command("DEL", name)
        waiting.result(10 * pace()).release()


@pytest.mark.slow
def test_a_slot_that_moves_takes_its_waiter_along(cluster: ClusterGroup, api: Api) -> None:
    """The key is deleted where it was, which is a change; the waiter is then notified by the other node."""
    client = api.connect(cluster.url, namespace="", ttl=3 * SLEEPS, ticket_ttl=3 * SLEEPS)
    slot = cluster.slot_of("moves")
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes[:3] if node is not source)
    source.command("SET", "moves", "they", "PX", 600_000)
    before = count(source, "client|caching")
    waiting = client.lock("moves").start(timeout=SLEEPS)
    until(lambda: count(source, "client|caching") > before, what="it is tracked")
    tracked = count(target, "client|caching")
    cluster.move(slot, source, target)
    until(lambda: count(target, "client|caching") > tracked, what="it is tracked by the other node")
    target.command("DEL", "moves")
    waiting.result(10 * pace()).release()


@pytest.mark.slow
def test_behind_sentinels_the_next_master_notifies(api: Api) -> None:
    with SentinelGroup() as group:
        master = group.master
        wakes(api, group.url, master, "stock")
        client = api.connect(group.url, namespace="", ttl=3 * SLEEPS, ticket_ttl=3 * SLEEPS)
        master.command("SET", "stock", "they", "PX", 600_000)
        master.command("WAIT", 1, 5000)
        before = count(master, "client|caching")
        waiting = client.lock("stock").start(timeout=SLEEPS)
        until(lambda: count(master, "client|caching") > before, what="it is tracked")
        master.kill()
        new = group.wait_for_failover(master)
        until(lambda: count(new, "client|caching"), what="it is tracked by the next master", timeout=20)
        new.command("DEL", "stock")
        waiting.result(10 * pace()).release()
