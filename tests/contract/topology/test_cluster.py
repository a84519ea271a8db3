"""In a cluster: each name at its node, slots that move under waiters, nodes that die."""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pawlock
from tests.contract.edges.helpers import in_child
from tests.faults.rig import Api, in_thread, key, until
from tests.support.groups import ClusterGroup
from tests.support.pace import pace
from tests.support.resp import Wire
from tests.support.servers import Server

pytestmark = pytest.mark.fault
CREW = Path(__file__).with_name("crew.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterGroup]:
    """Three masters, for tests that break nothing for good."""
    with ClusterGroup() as group:
        yield group


def names_by_node(cluster: ClusterGroup, each: int = 1) -> dict[int, list[str]]:
    """Names for every master, by its port."""
    found: dict[int, list[str]] = {node.port: [] for node in cluster.nodes[:3]}
    number = 0
    while any(len(names) < each for names in found.values()):
        name = f"n{number}"
        names = found[cluster.owner(cluster.slot_of(key(name))).port]
        if len(names) < each:
            names.append(name)
        number += 1
    return found


def test_each_name_is_at_its_node(cluster: ClusterGroup, api: Api) -> None:
    client = api.connect(cluster.url)
    for port, names in names_by_node(cluster).items():
        node = next(node for node in cluster.nodes if node.port == port)
        lease = client.lock(names[0]).acquire()
        assert node.command("GET", key(names[0])) == lease.token.encode()
        assert client.inspect(names[0]).held
        lease.extend(40.0)
        lease.release()
        assert node.command("GET", key(names[0])) is None


def test_one_node_tells_of_all(cluster: ClusterGroup, api: Api) -> None:
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.nodes[1].port}"
    client = api.connect(url)
    for names in names_by_node(cluster).values():
        client.lock(names[0]).acquire().release()


def test_a_plain_server_is_no_cluster(valkey: Server, api: Api) -> None:
    with pytest.raises(pawlock.NotSupported, match="not part of a cluster: use redis://"):
        api.connect(f"redis+cluster://127.0.0.1:{valkey.port}").lock().acquire()


def test_a_node_is_no_plain_server(cluster: ClusterGroup, api: Api) -> None:
    with pytest.raises(pawlock.NotSupported, match=r"a node of a cluster: use redis\+cluster://"):
        api.connect(cluster.nodes[0].url).lock().acquire()


def test_no_node_at_all(api: Api) -> None:
    began = time.monotonic()
    with pytest.raises(pawlock.BackendUnavailable, match="no node returned the slot map"):
        api.connect("redis+cluster://127.0.0.1:1,127.0.0.1:2").lock(unavailable_after=0.3).acquire()
    assert time.monotonic() - began < pace() * 3.0


def test_a_hand_off_wakes_at_once_wherever_one_listens(cluster: ClusterGroup, api: Api) -> None:
    """Waiters listen on one node, whichever; names are on all of them."""
    client, other = api.connect(cluster.url), api.connect(cluster.url)
    other.lock("elsewhere").acquire().release()
    for names in names_by_node(cluster).values():
        lease = client.lock(names[0], ttl=20.0, ticket_ttl=20.0).acquire()
        waiting = other.lock(names[0], ttl=20.0, ticket_ttl=20.0).start(timeout=15.0)
        until(lambda name=names[0]: client.inspect(name).queue_length == 1, what="it queues")  # type: ignore[misc]
        began = time.monotonic()
        lease.release()
        second = waiting.result(10.0)
        assert time.monotonic() - began < pace() * 2.0, (
            "by the message, not by the question after a third of 20 s"
        )
        second.release()


def test_many_leases_on_all_nodes_are_renewed(cluster: ClusterGroup, api: Api) -> None:
    client = api.connect(cluster.url)
    names = [name for names in names_by_node(cluster, 5).values() for name in names]
    leases = [client.lock(name, ttl=1.0).acquire() for name in names]
    until(lambda: client.counter("renewed") >= 3 * len(names), what="three renewals each")
    assert {lease.state for lease in leases} == {"held"}
    for lease in leases:
        lease.release()


def test_a_key_with_braces_keeps_its_helpers_beside_it(cluster: ClusterGroup, api: Api) -> None:
    client = api.connect(cluster.url, namespace="")
    other = api.connect(cluster.url, namespace="")
    lease = client.lock("lock:{{order}}:7").acquire()
    node = cluster.owner(cluster.slot_of("order"))
    assert node.command("GET", "lock:{order}:7") == lease.token.encode()
    assert node.command("EXISTS", "lock:{order}:7:pawlock:fence") == 1
    waiting = other.lock("lock:{{order}}:7").start()
    until(lambda: client.inspect("lock:{{order}}:7").queue_length == 1, what="it queues")
    lease.release()
    waiting.result(5.0).release()


def test_a_slot_that_moved_is_followed(cluster: ClusterGroup, api: Api) -> None:
    """MOVED: a held lease goes on at the new node, and its waiter is served there."""
    client, other = api.connect(cluster.url), api.connect(cluster.url)
    slot = cluster.slot_of(key("moved"))
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not source)
    lease = client.lock("moved", ttl=1.5).acquire()
    waiting = other.lock("moved", ttl=20.0).start(timeout=20.0)
    until(lambda: client.inspect("moved").queue_length == 1, what="it queues")
    cluster.move(slot, source, target)
    renewed = client.counter("renewed")
    until(lambda: client.counter("renewed") > renewed, what="a renewal at the new node")
    assert target.command("GET", key("moved")) == lease.token.encode()
    assert lease.state == "held"
    fence = lease.fence
    lease.release()
    second = waiting.result(10.0)
    assert second.fence > fence
    second.release()


def test_a_slot_on_its_way_is_waited_for(cluster: ClusterGroup, api: Api) -> None:
    """TRYAGAIN and ASK: while the keys of a name are in two places nothing is granted, and nothing fails."""
    client, other = api.connect(cluster.url), api.connect(cluster.url)
    slot = cluster.slot_of(key("under way"))
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not source)
    lease = client.lock("under way", ttl=20.0).acquire()
    cluster.begin_move(slot, source, target)
    try:
        taking = in_thread(lambda: other.lock("under way", ttl=20.0).acquire(timeout=15.0))
        releasing = in_thread(lease.release)
        time.sleep(0.3)
        cluster.move_keys(slot, source, target)
        time.sleep(0.3)
        assert not taking.done()
    finally:
        cluster.end_move(slot, source, target)
    releasing.result(10.0)
    second = taking.result(10.0)
    assert second.fence > lease.fence
    assert target.command("GET", key("under way")) == second.token.encode()
    second.release()


@pytest.mark.parametrize("kind", ["lock", "rwlock", "semaphore"])
def test_a_release_waits_for_a_slot_on_its_way(cluster: ClusterGroup, api: Api, kind: str) -> None:
    """Also for longer than the lease lives, as one does that was handed off there: its owner was done in time."""
    client, name = api.connect(cluster.url).raw, f"{kind} on its way"
    options = {"ttl": 0.4, "renew": False}
    lock = {
        "lock": lambda: client.lock(name, **options),
        "rwlock": lambda: client.rwlock(name, **options).write,
        "semaphore": lambda: client.semaphore(name, permits=2, **options),
    }[kind]()
    slot = cluster.slot_of(key(name))
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not source)
    lease = api.run(lock.acquire)
    cluster.begin_move(slot, source, target)
    try:
        releasing = in_thread(lambda: api.run(lease.release))
        time.sleep(0.6)
        assert not releasing.done()
        cluster.move_keys(slot, source, target)
    finally:
        cluster.end_move(slot, source, target)
    releasing.result(10.0)
    with pytest.raises(pawlock.NotHeld):
        api.run(lease.release)
    again = api.run(lambda: lock.acquire(timeout=5.0))
    api.run(again.release)


def test_a_release_that_waits_for_a_slot_says_that_an_operator_took_the_lock(
    cluster: ClusterGroup, api: Api
) -> None:
    """The lease ran out meanwhile; whether its owner was done in time is known from the mark of the operator."""
    client, operator, name = (
        api.connect(cluster.url).raw,
        api.connect(cluster.url).raw,
        "taken on its way",
    )
    slot = cluster.slot_of(key(name))
    source = cluster.owner(slot)
    target = next(node for node in cluster.nodes if node is not source)
    lease = api.run(client.lock(name, ttl=0.8, renew=False).acquire)
    assert api.run(lambda: operator.force_release(name, reason="test")).count == 1
    second = api.run(lambda: operator.lock(name, ttl=20.0).acquire(timeout=5.0))
    cluster.begin_move(slot, source, target)
    try:
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", key(name))
        releasing = in_thread(lambda: api.run(lease.release))
        time.sleep(1.0)
        assert not releasing.done()
        cluster.move_keys(slot, source, target)
    finally:
        cluster.end_move(slot, source, target)
    with pytest.raises(pawlock.NotHeld, match="taken"):
        releasing.result(10.0)
    api.run(second.release)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_slots_move_under_eight_contending_processes(cluster: ClusterGroup, kind: str) -> None:
    """The counter is exact, no error reaches anybody, and no wait is long."""
    rounds, name = 60, "contended"
    slot = cluster.slot_of(key(name))
    with Server("valkey") as counter:
        command = [sys.executable, str(CREW), kind, cluster.url, counter.url, name, str(rounds)]
        crew = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(8)
        ]
        try:
            for member in crew:
                assert member.stdout is not None
                assert member.stdout.readline() == "ready\n"
            for member in crew:
                assert member.stdin is not None
                member.stdin.write("go\n")
                member.stdin.flush()
            moves = 0
            while any(member.poll() is None for member in crew):
                source = cluster.owner(slot)
                at = cluster.nodes.index(source)
                cluster.begin_move(slot, source, cluster.nodes[(at + 1) % 3])
                time.sleep(0.05)
                cluster.move_keys(slot, source, cluster.nodes[(at + 1) % 3])
                cluster.end_move(slot, source, cluster.nodes[(at + 1) % 3])
                moves += 1
                time.sleep(0.3)
            results = [member.communicate(timeout=60) for member in crew]
        finally:
            for member in crew:
                member.kill()
                member.wait()
        assert [err for _, err in results if err] == [], "no error reaches the user"
        waits = [wait for out, _ in results for wait in json.loads(out)]
        assert len(waits) == 8 * rounds
        assert counter.command("GET", "counter") == str(8 * rounds).encode()
        assert counter.command("GET", "falling") is None, "fences only rise"
    assert moves >= 2
    assert statistics.quantiles(waits, n=100)[98] <= 3.0, f"{max(waits):.2f} s"


@pytest.fixture
def replicated() -> Iterator[ClusterGroup]:
    """Three masters with a replica each, to be broken."""
    with ClusterGroup(replicas=1, node_timeout=1.0) as group:
        yield group


def test_a_node_dies_and_its_replica_takes_over(
    replicated: ClusterGroup, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Held, waiting and new: all go on at the replica; names on other nodes notice nothing."""
    caplog.set_level(logging.ERROR)
    client, other = api.connect(replicated.url), api.connect(replicated.url)
    masters = replicated.nodes[:3]
    by_node = names_by_node(replicated)
    victim = masters[0]
    name = by_node[victim.port][0]
    calm = by_node[masters[1].port][0]
    lease = client.lock(name, ttl=30.0, unavailable_after=25.0).acquire()
    calm_lease = client.lock(calm, ttl=1.0).acquire()
    waiting = other.lock(name, ttl=30.0, unavailable_after=25.0).start(timeout=40.0)
    until(lambda: client.inspect(name).queue_length == 1, what="it queues")
    replica = next(node for node in replicated.nodes[3:] if replica_of(node) == victim.port)
    until(
        lambda: has(replica, f"{{{key(name)}}}:1:tickets"),
        what="replication of the ticket, and so of all before",
    )
    victim.kill()
    until(lambda: slot_served(replicated, name, victim), 30.0, what="a failover")
    until(lambda: client.counter("doubted") > 0 or lease.state == "held", what="the lease is looked after")
    assert client.lock(name).try_acquire() is None
    fence = lease.fence
    lease.release()
    second = waiting.result(30.0)
    assert second.fence > fence
    second.release()
    assert calm_lease.state == "held"
    calm_lease.release()


def replica_of(node: Server) -> int:
    role = node.command("ROLE")
    assert isinstance(role, list)
    return int(str(role[2]))


def has(replica: Server, name: str) -> bool:
    """Whether a replica has a key."""
    with Wire(replica.address, timeout=5.0) as wire:
        wire.command("READONLY")
        return wire.command("EXISTS", name) == 1


def slot_served(cluster: ClusterGroup, name: str, victim: Server) -> bool:
    """Whether somebody else serves the slot of a name, and the cluster says that it is whole."""
    node = next(node for node in cluster.nodes if node.running)
    slot = int(str(node.command("CLUSTER", "KEYSLOT", key(name))))
    state = node.command("CLUSTER", "INFO")
    assert isinstance(state, bytes)
    return cluster.owner(slot) is not victim and b"cluster_state:ok" in state


@pytest.fixture(scope="module")
def patient() -> Iterator[ClusterGroup]:
    """Three masters with a replica each, none of which is taken for dead."""
    with ClusterGroup(replicas=1, node_timeout=60.0) as group:
        yield group


@pytest.mark.parametrize("replicas", [0, 1])
def test_masters_that_hang_do_not_end_the_leases_of_another(
    patient: ClusterGroup, api: Api, replicas: int
) -> None:
    """All are due at once. One after the other the two that hang would take the time of the third."""
    client = api.connect(patient.url)
    locks = [client.lock(names[0], ttl=3.0, replicas=replicas) for names in names_by_node(patient).values()]
    first, live, last = [lock.acquire() for lock in locks]
    until(lambda: client.counter("renewed") >= 3, what="a renewal of each")
    with patient.nodes[0].paused(), patient.nodes[2].paused():
        until(lambda: first.state == last.state == "lost", what="the ends of those that nobody answers for")
        assert live.state == "held"
        renewed = client.counter("renewed")
        until(lambda: client.counter("renewed") > renewed, what="one more renewal")
    live.release()


def test_a_child_finds_the_nodes_by_itself(cluster: ClusterGroup) -> None:
    with pawlock.connect(cluster.url) as client, client.lock("parent") as lease:
        names = [names[0] for names in names_by_node(cluster).values()]
        assert in_child(lambda: [client.lock(name).acquire().fence > 0 for name in names]) == [True] * 3
        lease.check()
        for name in names:
            node = next(node for node in cluster.nodes if node is cluster.owner(cluster.slot_of(key(name))))
            node.command("DEL", key(name))


def test_a_wrong_password_for_the_cluster(cluster: ClusterGroup, api: Api) -> None:
    client = api.connect(cluster.url, username="nobody", password="s3cret")
    with pytest.raises(pawlock.BackendDenied) as caught:
        client.lock().acquire()
    assert "s3cret" not in str(caught.value)


def test_tls_to_plain_nodes(cluster: ClusterGroup, api: Api) -> None:
    url = cluster.url.replace("redis+", "rediss+")
    with pytest.raises(pawlock.BackendUnavailable, match="the port is plain, without TLS"):
        api.connect(url).lock(unavailable_after=0.5).acquire()


def test_a_user_who_may_not_see_the_cluster_is_told_at_once(cluster: ClusterGroup, api: Api) -> None:
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "blind", "on", ">s3cret", "~*", "&*", "+@all", "-cluster")
    client = api.connect(cluster.url.replace("://", "://blind:s3cret@"))
    began = time.monotonic()
    with pytest.raises(pawlock.BackendDenied, match="no node returned the slot map"):
        client.lock("a").acquire()
    assert time.monotonic() - began < pace() * 5
    for node in cluster.nodes:
        node.command("ACL", "DELUSER", "blind")
