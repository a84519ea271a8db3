"""Whatever another program wrote under a key is foreign: it is waited for, shown, and can be freed by force."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

import pawlock
from tests.support.pace import pace
from tests.support.servers import Server

VALUES = {
    "redis-py": uuid.UUID(int=7).hex.encode(),
    "ShedLock": b"ADDED:2026-11-22T14:00:00.000Z@build-7:7a1b",
    "rueidislock": b"Zk3@\xff\x00q9\x80Vw1x\xfe0123456789",
    "DistributedLock.Redis": b"host_4711_" + uuid.UUID(int=9).hex.encode(),
    "SimpleRedisLock": str(uuid.UUID(int=8)).encode() + b"-1",
    "empty": b"",
    "not UTF-8": b"\xff\xfe\x80@\x00",
    "a megabyte": b"x" * 1_000_000,
}
SOME = [VALUES["ShedLock"], VALUES["rueidislock"]]


@pytest.fixture
def client(server: Server) -> Iterator[pawlock.Client]:
    with pawlock.connect(server.url, namespace="") as client:
        yield client


def asked(server: Server) -> int:
    """How many scripts the server has run."""
    text = server.command("INFO", "commandstats")
    assert isinstance(text, bytes)
    return sum(int(n) for n in re.findall(rb"cmdstat_eval(?:sha)?:calls=(\d+)", text))


def test_it_is_foreign_and_has_nothing_of_pawlocks_last_grant(client: pawlock.Client, server: Server) -> None:
    client.lock("x").acquire().release()
    for what, value in VALUES.items():
        server.command("SET", "x", value, "PX", "60000")
        info = client.inspect("x")
        shown = (info.held, info.foreign, info.holder, info.fence, info.since)
        assert shown == (True, True, "", None, None), what
        assert 0 < info.ttl_left <= 60, what
        assert client.lock("x").try_acquire() is None, what
        assert server.command("GET", "x") == value, what


def test_it_is_freed_by_force(client: pawlock.Client, server: Server) -> None:
    for what, value in VALUES.items():
        with client.lock("x") as before:
            pass
        server.command("SET", "x", value, "PX", "60000")
        forced = client.force_release("x", reason="a test")
        assert (forced.count, forced.holder) == (1, ""), what
        assert server.command("EXISTS", "x") == 0, what
        with client.lock("x").acquire(timeout=0) as lease:
            assert lease.fence > before.fence, what
            assert server.command("GET", "x") == lease.token.encode(), what


def test_a_waiter_asks_every_tenth_of_a_second(client: pawlock.Client, server: Server) -> None:
    """And not each second, as behind a holder of pawlock, who tells of its release."""
    for value in SOME:
        server.command("SET", "x", value, "PX", "60000")
        found: list[pawlock.Lease] = []
        waiter = threading.Thread(target=lambda to=found: to.append(client.lock("x").acquire(timeout=30)))
        waiter.start()
        try:
            while not client.inspect("x").queue_length:
                time.sleep(0.005)
            begin, before = time.monotonic(), asked(server)
            while asked(server) < before + 5:
                time.sleep(0.01)
            assert time.monotonic() - begin < 1.2 * pace(), value
        finally:
            server.command("DEL", "x")
            waiter.join()
        found[0].release()


def test_the_command_shows_it(server: Server) -> None:
    server.command("SET", "x", VALUES["rueidislock"], "PX", "60000")
    show = (sys.executable, "-m", "pawlock", "show", "--json", "x", "--url", server.url, "--namespace", "")
    done = subprocess.run(show, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (shown,) = json.loads(done.stdout)["locks"]
    assert (shown["held"], shown["foreign"], shown["fence"]) == (True, True, None)
