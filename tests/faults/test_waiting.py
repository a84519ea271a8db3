"""Waiters whose wake-up is lost, who die, are paused, give up or come too many."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import pawlock
from tests.faults.rig import Api, Client, helper, key, remains, until, waiters
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.servers import Server

pytestmark = pytest.mark.fault

WAITER = """
import sys, pawlock
client = pawlock.connect(sys.argv[1])
lock = client.lock("n", ttl=float(sys.argv[2]), ticket_ttl=float(sys.argv[3]))
print("ready", flush=True)
lease = lock.acquire(30)
print("held", lease.fence, flush=True)
sys.stdin.readline()
try:
    lease.check()
    lease.release()
    print("released", flush=True)
except pawlock.PawlockError as error:
    print(type(error).__name__, flush=True)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def other(server: Server) -> Iterator[Start]:
    """Another process that acquires, holds until it is told to end, and says so."""
    started: list[subprocess.Popen[str]] = []

    def start(ttl: float = 20, ticket_ttl: float = 1.0) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", WAITER, server.url, str(ttl), str(ticket_ttl)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert said(process) == "ready"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return said(process)


def test_row_58_all_wake_ups_are_lost(client: Client, rival: Client, proxy: Proxy, server: Server) -> None:
    proxy.cut_push("message")
    held = rival.lock(ttl=20).acquire(5)
    waiting = client.lock(ttl=20, ticket_ttl=1.5).start(20)
    until(lambda: waiters(server, "n") == 1, what="the ticket")
    held.release()
    began = time.monotonic()
    got = waiting.result(10)
    # It asks after a third of its ticket's life.
    assert time.monotonic() - began < pace() * 2.5
    got.check()
    got.release()
    assert remains(server) == []


def test_row_58_the_connection_breaks_while_it_waits(
    client: Client, rival: Client, proxy: Proxy, server: Server
) -> None:
    held = rival.lock(ttl=20).acquire(5)
    waiting = client.lock(ttl=20, ticket_ttl=3).start(20)
    until(lambda: waiters(server, "n") == 1, what="the ticket")
    for _ in range(3):
        proxy.reset_all()
        time.sleep(0.1)
    assert not waiting.done()
    held.release()
    waiting.result(5).release()
    until(lambda: remains(server) == [], what="a clean server")


def test_row_59_a_paused_listener_is_dropped(
    client: Client, rival: Client, proxy: Proxy, server: Server
) -> None:
    """The server drops a subscriber that does not read; what it missed it asks for."""
    held = rival.lock(ttl=60).acquire(5)
    waiting = client.lock(ttl=60, ticket_ttl=60).start(20)
    until(lambda: waiters(server, "n") == 1, what="the ticket")
    missed = proxy.cut_push("message", times=1)
    held.release()
    proxy.wait_hit(missed)
    with redis.Redis(unix_socket_path=server.socket_path) as plain:
        plain.client_kill_filter(_type="pubsub", skipme=True)
    waiting.result(5).release()


@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.002, 0.005])
def test_row_60_a_release_in_the_instant_of_queueing(
    pause: float, client: Client, rival: Client, proxy: Proxy, server: Server
) -> None:
    for _ in range(15):
        held = rival.lock(ttl=20).acquire(5)
        waiting = client.lock(ttl=20, ticket_ttl=3).start(20)
        time.sleep(pause)
        held.release()
        began = time.monotonic()
        waiting.result(5).release()
        assert time.monotonic() - began < pace() * 3
    assert remains(server) == []


@pytest.mark.parametrize("foreign", [False, True], ids=["a pawlock token", "a foreign value"])
def test_row_61_an_expiry_that_nobody_announces(foreign: bool, rival: Client, server: Server) -> None:  # noqa: FBT001
    server.command("SET", key("n"), "theirs" if foreign else "secret@gone:1/x", "PX", "700")
    began = time.monotonic()
    rival.lock(ttl=20, ticket_ttl=1.5).acquire(10).release()
    assert 0.6 < time.monotonic() - began < pace() * 3


def test_row_32_and_61_a_killed_holder(other: Start, rival: Client, server: Server) -> None:
    holder = other(ttl=1.5)
    assert said(holder).startswith("held")
    waiting = rival.lock(ttl=20, ticket_ttl=0.9).start(20)
    until(lambda: waiters(server, "n") == 1, what="the ticket")
    holder.kill()
    began = time.monotonic()
    waiting.result(10).release()
    # What is left of the ttl, and a third of a ticket.
    assert time.monotonic() - began < pace() * (1.5 + 0.3 + 1.5)


def test_row_62_one_release_wakes_one(api: Api, server: Server) -> None:
    clients = [api.connect(server.url) for _ in range(8)]
    held = clients[0].lock(ttl=20).acquire(5)
    waiting = [client.lock(ttl=20, ticket_ttl=10).start(20) for client in clients[1:]]
    until(lambda: waiters(server, "n") == 7, what="the tickets")
    before = _scripts(server)
    held.release()
    until(lambda: any(future.done() for future in waiting))
    time.sleep(0.1)
    # The release, and the winner's confirmation.
    assert _scripts(server) - before <= 3
    while waiting:
        until(lambda: any(future.done() for future in waiting))
        done = [future for future in waiting if future.done()]
        assert len(done) == 1
        waiting.remove(done[0])
        done[0].result().release()


def _scripts(server: Server) -> int:
    with redis.Redis(unix_socket_path=server.socket_path) as plain:
        stats: Any = plain.info("commandstats")
    return int(stats["cmdstat_evalsha"]["calls"])


def test_row_63_a_waiter_killed_in_the_instant_of_its_turn(
    other: Start, rival: Client, server: Server
) -> None:
    held = rival.lock(ttl=20).acquire(5)
    doomed = other(ttl=20, ticket_ttl=1.0)
    until(lambda: waiters(server, "n") == 1, what="the first ticket")
    waiting = rival.lock(ttl=20, ticket_ttl=1.0, handover=0).start(20)
    until(lambda: waiters(server, "n") == 2, what="the second ticket")
    # It cannot even hear that it was granted.
    doomed.send_signal(19)
    held.release()
    doomed.kill()
    began = time.monotonic()
    waiting.result(10).release()
    # The grant lived on its ticket's expiry, not on the ttl of 20 s.
    assert time.monotonic() - began < pace() * 4


def test_row_64_many_dead_waiters_cost_one_ticket(other: Start, rival: Client, server: Server) -> None:
    held = rival.lock(ttl=20).acquire(5)
    dead = [other(ttl=20, ticket_ttl=1.0) for _ in range(2)]
    until(lambda: waiters(server, "n") == 2, what="the tickets")
    waiting = rival.lock(ttl=20, ticket_ttl=1.0, handover=0).start(20)
    until(lambda: waiters(server, "n") == 3, what="the live ticket")
    for process in dead:
        process.kill()
    held.release()
    began = time.monotonic()
    waiting.result(10).release()
    assert time.monotonic() - began < pace() * 3


def test_row_65_a_paused_waiter_queues_again(other: Start, rival: Client, server: Server) -> None:
    held = rival.lock(ttl=20).acquire(5)
    slow = other(ttl=20, ticket_ttl=0.6)
    until(lambda: waiters(server, "n") == 1, what="its ticket")
    slow.send_signal(19)
    time.sleep(0.8)
    held.release()
    # Its ticket has lapsed: others go on without it.
    rival.lock(ttl=20).acquire(3).release()
    slow.send_signal(18)
    assert said(slow).startswith("held")
    assert tell(slow) == "released"
    assert remains(server) == []


def test_row_65_a_waiter_paused_while_it_is_granted(other: Start, rival: Client, server: Server) -> None:
    """The grant lapsed while it slept: it does not believe the old message."""
    held = rival.lock(ttl=20).acquire(5)
    slow = other(ttl=20, ticket_ttl=0.6)
    until(lambda: waiters(server, "n") == 1, what="its ticket")
    slow.send_signal(19)
    held.release()
    time.sleep(0.8)
    newer = rival.lock(ttl=20).acquire(3)
    slow.send_signal(18)
    time.sleep(0.5)
    newer.check()
    assert server.command("GET", key("n")) == newer.token.encode()
    newer.release()
    fence = int(said(slow).split()[1])
    assert fence > newer.fence
    assert tell(slow) == "released"


@pytest.mark.parametrize("offset", [-0.01, -0.003, 0.0, 0.003])
def test_row_66_a_timeout_in_the_instant_of_the_grant(
    offset: float, client: Client, rival: Client, server: Server
) -> None:
    for _ in range(8):
        held = rival.lock(ttl=20).acquire(5)
        waiting = client.lock(ttl=20, ticket_ttl=3).start(0.1)
        time.sleep(0.1 + offset)
        held.release()
        with contextlib.suppress(pawlock.AcquireTimeout):
            waiting.result(5).release()
        until(lambda: remains(server) == [], timeout=2, what="a clean server")


def test_row_67_too_many_waiters(api: Api, server: Server) -> None:
    clients = [api.connect(server.url) for _ in range(4)]
    held = clients[0].lock(ttl=20, max_waiters=2).acquire(5)
    waiting = [client.lock(ttl=20, max_waiters=2).start(20) for client in clients[1:3]]
    until(lambda: waiters(server, "n") == 2, what="two tickets")
    with pytest.raises(pawlock.QueueFull):
        clients[3].lock(ttl=20, max_waiters=2).acquire(5)
    assert int(str(server.command("PTTL", helper("n", "1:queue")))) > 0
    held.release()
    until(lambda: any(future.done() for future in waiting))
    while waiting:
        until(lambda: any(future.done() for future in waiting))
        done = next(future for future in waiting if future.done())
        waiting.remove(done)
        done.result().release()
    assert remains(server) == []


def test_the_last_question_of_a_wait_is_not_an_outage(
    client: Client, rival: Client, proxy: Proxy, server: Server
) -> None:
    """A key of another program is asked about until the wait is over; the last question may have no time for an answer."""
    server.command("SET", "theirs", "token", "PX", "60000")
    lock = client.lock(pawlock.Key("theirs"))
    proxy.delay(replies=0.06)
    for _ in range(6):
        with pytest.raises(pawlock.AcquireTimeout):
            lock.acquire(0.4)
    proxy.delay()
    server.command("DEL", "theirs")
    held = rival.lock(ttl=20).acquire(5)
    proxy.delay(replies=0.08)
    for _ in range(3):
        with pytest.raises(pawlock.AcquireTimeout):
            # It asks after 0.3 s at the latest, and has no time for the answer.
            client.lock(ttl=20, ticket_ttl=0.9).acquire(0.45)
    proxy.delay()
    held.release()
    lock.acquire(5).release()
    assert remains(server) == []
