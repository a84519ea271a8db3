"""Waiters of one client that say for each other that they wait: none is forgotten, whatever gets lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import Future

import pytest

import pawlock
from tests.faults.rig import Api, Client, Lease, helper, remains, script, until, waiters
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.resp import texts
from tests.support.servers import Server

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SOME = 6
TICKET = 1.5
BEATS = script("renew", "beat")


def queue(client: Client, server: Server, count: int = SOME, timeout: float = 30.0) -> list[Future[Lease]]:
    """So many waiters in strict order."""
    lock = client.lock(ttl=20, handover=0, ticket_ttl=TICKET)
    waiting: list[Future[Lease]] = []
    for _ in range(count):
        before = waiters(server, "n")
        waiting.append(lock.start(timeout))
        until(lambda there=before: waiters(server, "n") == there + 1, what="the ticket")  # type: ignore[misc]
    return waiting


def served(waiting: list[Future[Lease]]) -> list[int]:
    """Let all of them have it; their fences in the order in which they came to wait."""
    fences: list[int] = []
    for future in waiting:
        lease = future.result(15)
        fences.append(lease.fence)
        lease.release()
    return fences


def test_one_of_them_asks_and_nobody_s_ticket_lapses(
    client: Client, rival: Client, proxy: Proxy, server: Server
) -> None:
    held = rival.lock(ttl=20).acquire(5)
    waiting = queue(client, server)
    before = len(proxy.requests(BEATS))
    # More than two lives of a ticket; each by itself would ask at least four times.
    time.sleep(2.2 * TICKET)
    assert len(proxy.requests(BEATS)) - before < 2.5 * SOME
    assert len(proxy.requests(script("beat"))) >= 3
    held.release()
    fences = served(waiting)
    assert fences == sorted(fences)
    assert client.counter("requeued") == 0
    assert remains(server) == []


def test_row_58_all_messages_to_many_are_lost(
    client: Client, rival: Client, proxy: Proxy, server: Server
) -> None:
    proxy.cut_push("message")
    held = rival.lock(ttl=20).acquire(5)
    waiting = queue(client, server, 4)
    time.sleep(TICKET)
    held.release()
    fences = served(waiting)
    assert fences == sorted(fences)
    assert remains(server) == []


@pytest.mark.parametrize("fate", ["swallowed", "dropped"])
def test_row_58_the_answer_for_many_is_lost(
    fate: str, client: Client, rival: Client, proxy: Proxy, server: Server
) -> None:
    held = rival.lock(ttl=20).acquire(5)
    waiting = queue(client, server)
    rule = (proxy.swallow_reply if fate == "swallowed" else proxy.drop_request)(script("beat"))
    proxy.wait_hit(rule, 10)
    time.sleep(1.5 * TICKET)
    held.release()
    fences = served(waiting)
    assert fences == sorted(fences)
    assert client.counter("requeued") == 0
    assert remains(server) == []


def test_row_58_a_ticket_that_vanished_is_told_by_the_beat_of_another(
    client: Client, rival: Client, server: Server
) -> None:
    held = rival.lock(ttl=20).acquire(5)
    waiting = queue(client, server)
    victim = texts(server.command("ZRANGE", helper("n", "1:queue"), "3", "3"))[0]
    server.command("ZREM", helper("n", "1:queue"), victim)
    server.command("HDEL", helper("n", "1:tickets"), victim)
    until(lambda: client.counter("requeued") == 1, what="its waiter queues anew")
    until(lambda: waiters(server, "n") == SOME, what="the new ticket")
    held.release()
    fences = served([*waiting[:3], *waiting[4:], waiting[3]])
    assert fences == sorted(fences)


def test_a_waiter_gives_up_in_time_while_another_speaks_for_it(
    client: Client, rival: Client, server: Server
) -> None:
    held = rival.lock(ttl=20).acquire(5)
    others = queue(client, server, 3)
    began = time.monotonic()
    (short,) = queue(client, server, 1, timeout=2.4)
    with pytest.raises(pawlock.AcquireTimeout):
        short.result(10)
    assert 2.3 < time.monotonic() - began < pace() * 3.5
    until(lambda: waiters(server, "n") == 3, what="its ticket is gone")
    held.release()
    served(others)
    assert remains(server) == []


CROWD = """
import asyncio, sys, pawlock
async def main():
    async with pawlock.connect_async(sys.argv[1]) as client:
        lock = client.fair_lock("n", ttl=20, ticket_ttl=1.0)
        await asyncio.gather(*(lock.acquire() for _ in range(50)))
asyncio.run(main())
"""


def test_row_64_the_fifty_waiters_of_a_dead_client_delay_others_once(rival: Client, server: Server) -> None:
    held = rival.lock(ttl=20).acquire(5)
    process = subprocess.Popen([sys.executable, "-c", CROWD, server.url])
    try:
        until(lambda: waiters(server, "n") == 50, what="all of them queue")
        (mine,) = queue(rival, server, 1)
        time.sleep(2.0)
        assert waiters(server, "n") == 51
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        killed = time.monotonic()
        held.release()
        mine.result(10).release()
        # The first of them holds for the rest of its ticket's life; by then all the others are dead too.
        assert time.monotonic() - killed < pace() * 2.5
    finally:
        process.kill()
        process.wait()
    until(lambda: remains(server) == [], what="a clean server")


def test_a_thread_uses_its_own_connection_now_and_then(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, server: Server
) -> None:
    """Else nobody would notice that it is dead before a message is lost on it."""
    monkeypatch.setattr("pawlock.core.acquire.ticket_batch._IN_A_ROW", 1)
    with Api("threads") as api:
        held = api.connect(server.url).lock(ttl=20).acquire(5)
        waiting = queue(api.connect(proxy.url), server, 4)
        before = len(proxy.requests(BEATS))
        until(lambda: len({one.connection for one in proxy.requests(BEATS)[before:]}) == 4, what="each asks")
        held.release()
        served(waiting)
