"""Readers, writers and holders of permits that are killed, and readers that never stop coming."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pawlock
from tests.faults.rig import until
from tests.support.pace import pace
from tests.support.servers import Server

pytestmark = pytest.mark.fault

TTL = 1.0
HOLDER = """
import asyncio, sys, time, pawlock

url, api, what = sys.argv[1:]

def taken(client):
    if what == "semaphore":
        return client.semaphore("n", permits=3, ttl=1.0)
    return getattr(client.rwlock("n", ttl=1.0), what)

async def main():
    async with pawlock.connect_async(url) as client, taken(client):
        print("held", flush=True)
        await asyncio.sleep(60)

if api == "asyncio":
    asyncio.run(main())
else:
    with pawlock.connect(url) as client, taken(client):
        print("held", flush=True)
        time.sleep(60)
"""


@contextmanager
def holder(server: Server, api: str, what: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds, and renews."""
    command = [sys.executable, "-c", HOLDER, server.url, api, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("api", ["threads", pytest.param("asyncio", marks=pytest.mark.slow)])
def test_row_68_a_killed_reader_is_not_kept_alive_by_a_living_one(server: Server, api: str) -> None:
    with pawlock.connect(server.url) as client, holder(server, api, "read") as dying:
        book = client.rwlock("n", ttl=TTL)
        with book.read as living:
            time.sleep(TTL)
            assert book.inspect().count == 2, "both renew"
            dying.kill()
            killed = time.monotonic()
            until(lambda: book.inspect().count == 1, timeout=TTL + 1, what="the end of the dead reader")
            assert time.monotonic() - killed < pace() * (TTL + 0.5)
            time.sleep(TTL)
            living.check()
            assert book.inspect().count == 1
        with pawlock.connect(server.url) as other, other.rwlock("n", ttl=TTL).write.acquire(timeout=0.5):
            pass


@pytest.mark.parametrize("what", [pytest.param("write", marks=pytest.mark.slow), "semaphore"])
def test_row_71_what_a_killed_process_held_is_free_within_its_ttl(server: Server, what: str) -> None:
    with pawlock.connect(server.url) as client, holder(server, "threads", what) as dying:
        pool = client.semaphore("n", permits=3, ttl=TTL)
        kept = pool.acquire(2) if what == "semaphore" else None
        taken = pool if what == "semaphore" else client.rwlock("n", ttl=TTL).read
        time.sleep(TTL * 1.2)
        assert taken.try_acquire() is None, "it is renewed while its holder lives"
        dying.kill()
        killed = time.monotonic()
        with taken.acquire(timeout=TTL + 2):
            assert time.monotonic() - killed < pace() * (TTL + 0.7)
        if kept is not None:
            kept.check()
            assert pool.available() == 1
            kept.release()
            assert pool.available() == 3


def test_row_69_a_writer_gets_through_readers_without_end(server: Server) -> None:
    with pawlock.connect(server.url) as client, pawlock.connect(server.url) as other:
        over, reads = threading.Event(), [0] * 5

        def read(number: int) -> None:
            book = client.rwlock("n", ttl=5)
            while not over.is_set():
                with book.read:
                    reads[number] += 1
                    time.sleep(0.02)

        readers = [threading.Thread(target=read, args=(number,)) for number in range(len(reads))]
        for reader in readers:
            reader.start()
        try:
            until(lambda: min(reads) >= 2, what="that all read")
            for _ in range(5):
                began = time.monotonic()
                with other.rwlock("n", ttl=5).write.acquire(timeout=5):
                    # One read is waited for, not a gap between all of them.
                    assert time.monotonic() - began < pace() * 1.0
                before = sum(reads)
                until(lambda before=before: sum(reads) > before + len(reads), what="readers after the writer")  # type: ignore[misc]
        finally:
            over.set()
            for reader in readers:
                reader.join()
