"""Permits with ``replicas=k``: a grant, also one by hand-off, counts once it is on the replicas."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import pawlock
from tests.contract.contention.rig import eventually
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """A master and its replica."""
    args = ["--repl-diskless-sync-delay", "0"]
    with (
        Server("valkey", unix=False, args=args) as master,
        Server("valkey", unix=False, args=args) as replica,
    ):
        replica.command("REPLICAOF", "127.0.0.1", str(master.port))
        with pawlock.connect(master.url) as client:
            eventually(lambda: reaches(client), "the replica is in step", timeout=20)
        yield master, replica


def reaches(client: pawlock.Client) -> bool:
    try:
        client.lock("step", replicas=1).acquire(timeout=1).release()
    except pawlock.NotReplicated:
        return False
    return True


def test_a_grant_and_a_hand_off_are_on_the_replica(servers: tuple[Server, Server]) -> None:
    master, replica = servers
    with pawlock.connect(master.url) as client:
        pool, book = client.semaphore("pool", permits=2, replicas=1), client.rwlock("book", replicas=1)
        with pool.acquire(2), book.write as writer:
            assert replica.command("ZCARD", "{pawlock:pool}:1:permits") == 1
            assert replica.command("ZRANGE", "{pawlock:book}:1:rwlock", "0", "-1") == [
                f"x:{writer.token}".encode()
            ]
            writer.downgrade()
            eventually(
                lambda: (
                    replica.command("ZRANGE", "{pawlock:book}:1:rwlock", "0", "-1")
                    == [f"1:{writer.token}".encode()]
                ),
                "the downgrade is on the replica",
            )
        began = time.monotonic()
        with pool, pool:
            assert replica.command("ZCARD", "{pawlock:pool}:1:permits") == 2
        assert time.monotonic() - began < pace() * 5


def test_a_grant_that_does_not_reach_the_replica_is_undone(servers: tuple[Server, Server]) -> None:
    master, _ = servers
    with pawlock.connect(master.url) as client:
        pool, book = client.semaphore("lone", permits=2, replicas=2), client.rwlock("lone", replicas=2)
        for take in (pool.acquire, book.read.acquire, book.write.acquire):
            with pytest.raises(pawlock.NotReplicated):
                take(timeout=1)
        assert pool.available() == 2
        assert not book.inspect().held
