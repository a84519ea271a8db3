"""What is on its way when a thread or a client ends."""

from __future__ import annotations

import asyncio
import threading

import pawlock
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.conftest import FRESH, Cluster


def left(cluster: Cluster) -> dict[str, list[bytes]]:
    """What is on the nodes, without tombstones: a vote that comes late, on a busy machine, is with_tombstone by one."""
    kept = {node: [key for key in keys if b":dead:" not in key] for node, keys in cluster.keys().items()}
    return {node: keys for node, keys in kept.items() if keys}


def test_threads_that_end_after_their_release_leave_nothing(five: Cluster) -> None:
    with five.client() as client:

        def once(number: int) -> None:
            with client.lock(f"t{number}"):
                pass

        for turn in range(10):
            threads = [threading.Thread(target=once, args=(turn * 4 + n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        # Their connections serve those that come after.
        clients = five.servers[0].command("CLIENT", "LIST")
        assert isinstance(clients, bytes)
        assert clients.count(b"\n") < 20
    eventually(lambda: not left(five), f"nothing is left: {left(five)}")


def test_a_client_that_closes_right_after_a_release_leaves_nothing(five: Cluster) -> None:
    for _ in range(15):
        with five.client() as client:
            client.lock("c").acquire().release()

    async def once() -> None:
        async with five.aclient() as client:
            await (await client.lock("c").acquire()).release()

    for _ in range(15):
        asyncio.run(once())
    eventually(lambda: not left(five), f"nothing is left: {left(five)}")


def test_a_thread_goes_on_with_the_connections_of_one_that_ended(five: Cluster) -> None:
    fences: list[int] = []
    with pawlock.connect(five.urls, redlock=FRESH) as client:

        def once() -> None:
            with client.lock("f") as lease:
                fences.append(lease.fence)

        for _ in range(25):
            thread = threading.Thread(target=once)
            thread.start()
            thread.join()
    assert fences == sorted(set(fences))
    assert len(fences) == 25


def test_a_release_whose_script_a_node_has_forgotten_is_sent_again(five: Cluster) -> None:
    """Also to nodes that were not waited for, and with other requests behind it."""
    with five.client() as client:
        lock = client.lock("s")
        lock.acquire().release()
        for _ in range(5):
            lease = lock.acquire()
            for server in five.servers:
                server.command("SCRIPT", "FLUSH")
            lease.release()
            with client.lock("other"):
                pass
    eventually(lambda: not left(five), f"nothing is left: {left(five)}")
