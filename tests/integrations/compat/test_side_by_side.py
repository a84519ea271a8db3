"""The migration pages with the real libraries: programs that moved and programs that did not, on one unprotected counter."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio

import pawlock
from pawlock.compat.redis import AsyncLock, Lock
from tests.support.pace import pace
from tests.support.servers import Server

Block = Callable[[], AbstractContextManager[Any]]
ROUNDS = 20
redis_lock: Any = importlib.import_module("redis_lock")
"""It has no type marks."""


class Counter:
    """Counts what happens inside of a lock: lost updates show, and so does who waits for long.

    Attributes:
        value: Read and written with a pause in between.
        longest: The longest wait.
    """

    def __init__(self) -> None:
        self.value = 0
        self.longest = 0.0

    def work(self, make: Block) -> None:
        """Count so many times, with a rest in which others have their turn."""
        for _ in range(ROUNDS):
            began = time.monotonic()
            with make():
                self.longest = max(self.longest, time.monotonic() - began)
                seen = self.value
                time.sleep(0.002)
                self.value = seen + 1
            time.sleep(0.01)

    async def work_in_tasks(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """The same in asyncio."""
        for _ in range(ROUNDS):
            began = time.monotonic()
            async with make():
                self.longest = max(self.longest, time.monotonic() - began)
                seen = self.value
                await asyncio.sleep(0.002)
                self.value = seen + 1
            await asyncio.sleep(0.01)

    def check(self, programs: int) -> None:
        """Nothing was lost, and nobody starved."""
        assert self.value == programs * ROUNDS
        assert self.longest < 10 * pace()


@pytest.fixture
def server(valkey: Server) -> Iterator[Server]:
    valkey.command("FLUSHALL")
    yield valkey
    valkey.command("FLUSHALL")


def mix(*programs: Block) -> None:
    """Have several programs count at once."""
    counter = Counter()
    with ThreadPoolExecutor(len(programs)) as threads:
        for done in [threads.submit(counter.work, make) for make in programs]:
            done.result()
    counter.check(len(programs))


@pytest.fixture
def clients(server: Server) -> Iterator[list[redis.Redis]]:
    """One for each program. A waiter of python-redis-lock sits in BLPOP, longer than redis-py 8 waits for answers."""
    made = [redis.Redis.from_url(server.url, socket_timeout=None) for _ in range(4)]
    yield made
    for client in made:
        client.close()


def test_redis_py_and_the_drop_in(clients: list[redis.Redis]) -> None:
    old = [partial(client.lock, "{order}:42", timeout=30) for client in clients[:2]]
    new: list[Block] = [
        partial(client.lock, "{order}:42", timeout=30, lock_class=Lock) for client in clients[2:]
    ]
    mix(*old, *new)


def test_redis_py_and_a_key(clients: list[redis.Redis], server: Server) -> None:
    old = [partial(client.lock, "{order}:42", timeout=30) for client in clients[:2]]
    key = pawlock.Key("{order}:42")
    with pawlock.connect(server.url) as one, pawlock.connect(server.url) as two:
        mix(*old, partial(one.lock, key, ttl=30), partial(two.lock, key, ttl=30))


async def test_redis_py_in_asyncio(server: Server) -> None:
    counter = Counter()
    clients = [redis.asyncio.Redis.from_url(server.url) for _ in range(4)]
    options: list[dict[str, Any]] = [{}, {}, {"lock_class": AsyncLock}, {"lock_class": AsyncLock}]
    async with pawlock.connect_async(server.url) as one:
        await asyncio.gather(
            *[
                counter.work_in_tasks(partial(client.lock, "{order}:42", timeout=30, **some))
                for client, some in zip(clients, options, strict=True)
            ],
            counter.work_in_tasks(partial(one.lock, pawlock.Key("{order}:42"), ttl=30)),
        )
    counter.check(5)
    for client in clients:
        await client.aclose()


def test_programs_that_moved_leave_turns_to_one_that_did_not(clients: list[redis.Redis]) -> None:
    """Of a queue on the server it knows nothing: it would find the lock free almost never, while others are in there."""
    old, *new = clients
    stop, grants = threading.Event(), [0] * len(new)

    def work(number: int) -> None:
        while not stop.is_set():
            with new[number].lock("order:42", timeout=30, lock_class=Lock):
                time.sleep(0.005)
                grants[number] += 1

    with ThreadPoolExecutor(len(new)) as threads:
        done = [threads.submit(work, number) for number in range(len(new))]
        try:
            for _ in range(5):
                with old.lock("order:42", timeout=30, blocking_timeout=20 * pace()):
                    pass
        finally:
            stop.set()
        for one in done:
            one.result()
    assert sum(grants) > 0


def test_django_redis(server: Server) -> None:
    """In a process of its own: Django can be set up once."""
    code = """
import sys
from functools import partial
from django.conf import settings

def location(options):
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1], "OPTIONS": options}

settings.configure(CACHES={
    "old": location({}), "default": location({"REDIS_CLIENT_CLASS": "pawlock.compat.redis.Redis"}),
})
import django
django.setup()
from django.core.cache import caches
from pawlock.compat.redis import Lock
from tests.integrations.compat.test_side_by_side import mix

old, new = caches["old"], caches["default"]
assert isinstance(new.lock("{order}:42"), Lock) and not isinstance(old.lock("{order}:42"), Lock)
mix(*[partial(cache.lock, "{order}:42", timeout=30) for cache in (old, old, new, new)])
"""
    words = [sys.executable, "-c", code, server.url]
    done = subprocess.run(words, timeout=60 * pace(), check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_python_redis_lock(clients: list[redis.Redis], server: Server) -> None:
    """Each release wakes the other library's waiter: one that is not woken sleeps for its ``expire``."""
    old: list[Block] = [partial(redis_lock.Lock, client, "order:42", expire=120) for client in clients[:2]]
    key = pawlock.Key.python_redis_lock("order:42")
    with pawlock.connect(server.url) as one, pawlock.connect(server.url) as two:
        mix(*old, partial(one.lock, key, ttl=120), partial(two.lock, key, ttl=120))


async def test_python_redis_lock_in_asyncio(clients: list[redis.Redis], server: Server) -> None:
    key, counter = pawlock.Key.python_redis_lock("order:42"), Counter()
    async with pawlock.connect_async(server.url) as one, pawlock.connect_async(server.url) as two:
        await asyncio.gather(
            *[
                asyncio.to_thread(counter.work, partial(redis_lock.Lock, client, "order:42", expire=120))
                for client in clients[:2]
            ],
            *[counter.work_in_tasks(partial(client.lock, key, ttl=120)) for client in (one, two)],
        )
    counter.check(4)
