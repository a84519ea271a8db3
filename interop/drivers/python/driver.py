"""The line protocol for pawlock and for lock libraries of Python: ``driver.py KIND URL``.

It runs in an environment that has the library of its kind, so each is imported by name only where it is wanted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

import redis

FOREVER = 600.0
"""Seconds that stand for a wait without end, where a library has no such thing."""


class Client:
    """What a driver needs of a library. Keys are as on the server, times are milliseconds, a wait of -1 has no end."""

    prefix = ""

    def __init__(self, url: str) -> None:
        # Several, separated by commas, are independent masters, where a library knows the Redlock algorithm.
        self.urls = url.split(",")
        # No limit: redis-py's default of 5 s would end the BLPOP in which python-redis-lock waits.
        counter = os.environ.get("COUNTER_URL") or self.urls[0]
        self.plain = redis.Redis.from_url(counter, decode_responses=True, socket_timeout=None)
        self.held: dict[str, Any] = {}

    def name(self, key: str) -> str:
        if not key.startswith(self.prefix):
            raise ValueError(f"the keys of this library begin with {self.prefix!r}")
        return key[len(self.prefix) :]

    def acquire(self, key: str, ttl_ms: int, wait_ms: int) -> bool:
        lock = self.get(self.name(key), ttl_ms, wait_ms)
        if lock is not None:
            self.held[key] = lock
        return lock is not None

    def get(self, name: str, ttl_ms: int, wait_ms: int) -> Any:
        raise NotImplementedError

    def release(self, key: str) -> None:
        self.held.pop(key).release()

    def extend(self, key: str, ttl_ms: int) -> None:
        self.held[key].extend(ttl_ms / 1000)

    def state(self, key: str) -> str:
        return "held" if self.owns(self.held[key]) else "lost"

    def owns(self, lock: Any) -> bool:
        raise NotImplementedError

    def about(self, key: str) -> dict[str, Any]:
        """The fence of what is held, and until when it may be relied on, where the library tells."""
        return {}


class Pawlock(Client):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.pawlock = import_module("pawlock")
        self.client = self.pawlock.connect(url)

    def lock(self, name: str, **options: Any) -> Any:
        return self.client.lock(name_of(self.pawlock, name), **options)

    def get(self, name: str, ttl_ms: int, wait_ms: int) -> Any:
        lock = self.lock(name, **options_of(ttl_ms))
        if wait_ms == 0:
            return lock.try_acquire()
        try:
            return lock.acquire(timeout=None if wait_ms < 0 else wait_ms / 1000)
        except self.pawlock.AcquireTimeout:
            return None

    def extend(self, key: str, ttl_ms: int) -> None:
        self.held[key].extend(ttl_ms / 1000)

    def state(self, key: str) -> str:
        return "held" if self.held[key].state.name == "HELD" else "lost"

    def about(self, key: str) -> dict[str, Any]:
        lease = self.held[key]
        return {"fence": lease.fence, "until": lease.valid_until}


def name_of(pawlock: Any, key: str) -> Any:
    """What pawlock is given for a key, as it is stored by those that share it."""
    wire = os.environ.get("PAWLOCK_WIRE", "")
    if wire == "own":
        # The name of which it is the key, in pawlock's own protocol.
        return key.removeprefix("pawlock:")
    if wire:
        return pawlock.Key.redisson(key, fenced="fenced" in wire)
    prefix, _, name = key.partition(":")
    if name and prefix == "locks":
        return pawlock.Key.spring(prefix, name)
    return pawlock.Key.python_redis_lock(name) if name and prefix == "lock" else pawlock.Key(key)


def options_of(ttl_ms: int) -> dict[str, float]:
    """What pawlock is told beside it."""
    return {"ttl": ttl_ms / 1000} if ttl_ms else {}


class PawlockKey(Pawlock):
    """One generation of a migration: a client with a namespace, and the key of the library that it is to replace."""

    def __init__(self, url: str) -> None:
        Client.__init__(self, url)
        self.pawlock = import_module("pawlock")
        self.client = self.pawlock.connect(url)

    def key(self, key: str) -> Any:
        return self.pawlock.Key(key)

    def lock(self, name: str, **options: Any) -> Any:
        return self.client.lock(self.key(name), **options)


class PawlockBoth(PawlockKey):
    """The next one: that key and a name of pawlock's own, together."""

    def lock(self, name: str, **options: Any) -> Any:
        key = self.key(name)
        keys = key if isinstance(key, tuple) else (key,)
        return self.client.multi_lock([*keys, new_name(name)], **options)

    def about(self, key: str) -> dict[str, Any]:
        lease = self.held[key]
        return {"fence": lease.fences[new_name(key)], "until": lease.valid_until}


class PawlockName(PawlockKey):
    """The last one: the name alone."""

    def lock(self, name: str, **options: Any) -> Any:
        return self.client.lock(new_name(name), **options)


class PawlockAllKeys(PawlockKey):
    """Several keys that are one lock of another library."""

    def lock(self, name: str, **options: Any) -> Any:
        return self.client.multi_lock(list(self.key(name)), **options)

    def about(self, key: str) -> dict[str, Any]:
        return {"until": self.held[key].valid_until}


def new_name(key: str) -> str:
    """What the lock of a key is to be called, without what another library put before it."""
    return key.rpartition(":")[2]


class OfRedisson(PawlockKey):
    def key(self, key: str) -> Any:
        return self.pawlock.Key.redisson(key)


class OfPythonRedisLock(PawlockKey):
    def key(self, key: str) -> Any:
        return self.pawlock.Key.python_redis_lock(key.removeprefix("lock:"))


class OfSpring(PawlockKey):
    def key(self, key: str) -> Any:
        return self.pawlock.Key.spring("locks", key.removeprefix("locks:"))


class OfRueidislock(PawlockKey):
    def key(self, key: str) -> Any:
        return self.pawlock.Key.rueidislock(key.removeprefix("rueidislock:0:"))


class RedissonBoth(PawlockBoth, OfRedisson):
    pass


class PythonRedisLockBoth(PawlockBoth, OfPythonRedisLock):
    pass


class SpringBoth(PawlockBoth, OfSpring):
    pass


class RueidislockAll(PawlockAllKeys, OfRueidislock):
    pass


class RueidislockBoth(PawlockBoth, OfRueidislock):
    pass


class PawlockAsyncio(Client):
    """Its loop has a thread of its own, so that leases are renewed while the driver waits for a command."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.pawlock = import_module("pawlock")
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.client = self.run(self.connect(url))

    async def connect(self, url: str) -> Any:
        return self.pawlock.connect_async(url)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def get(self, name: str, ttl_ms: int, wait_ms: int) -> Any:
        return self.run(self._get(name, ttl_ms, wait_ms))

    async def _get(self, name: str, ttl_ms: int, wait_ms: int) -> Any:
        lock = self.client.lock(name_of(self.pawlock, name), **options_of(ttl_ms))
        if wait_ms == 0:
            return await lock.try_acquire()
        try:
            return await lock.acquire(timeout=None if wait_ms < 0 else wait_ms / 1000)
        except self.pawlock.AcquireTimeout:
            return None

    def release(self, key: str) -> None:
        self.run(self.held.pop(key).release())

    def extend(self, key: str, ttl_ms: int) -> None:
        self.run(self.held[key].extend(ttl_ms / 1000))

    def state(self, key: str) -> str:
        return "held" if self.held[key].state.name == "HELD" else "lost"

    def about(self, key: str) -> dict[str, Any]:
        lease = self.held[key]
        return {"fence": lease.fence, "until": lease.valid_until}


class RedisPy(Client):
    def get(self, name: str, ttl_ms: int, wait_ms: int) -> Any:
        lock = self.plain.lock(name, timeout=(ttl_ms or 30_000) / 1000)
        if wait_ms == 0:
            return lock if lock.acquire(blocking=False) else None
        return lock if lock.acquire(blocking_timeout=None if wait_ms < 0 else wait_ms / 1000) else None

    def extend(self, key: str, ttl_ms: int) -> None:
        self.held[key].extend(ttl_ms / 1000, replace_ttl=True)

    def owns(self, lock: Any) -> bool:
        return bool(lock.owned())


class PythonRedisLock(Client):
    """A TTL of 0 is its default: no expiry, and a sleep that only a message ends."""

    prefix = "lock:"

    def get(self, name: str, ttl_ms: int, wait_ms: int) -> Any:
        lock = import_module("redis_lock").Lock(
            self.plain, name, expire=max(1, ttl_ms // 1000) if ttl_ms else None
        )
        if wait_ms == 0:
            return lock if lock.acquire(blocking=False) else None
        if wait_ms < 0:
            return lock if lock.acquire() else None
        # It wants whole seconds, and none that exceed its expiry.
        wait = max(1, wait_ms // 1000)
        return lock if lock.acquire(timeout=min(wait, ttl_ms // 1000) if ttl_ms else wait) else None

    def extend(self, key: str, ttl_ms: int) -> None:
        self.held[key].extend(ttl_ms // 1000)

    def owns(self, lock: Any) -> bool:
        return bool(lock.get_owner_id() == lock.id)


class Pottery(Client):
    prefix = "redlock:"

    def get(self, name: str, ttl_ms: int, wait_ms: int) -> Any:
        seconds = (ttl_ms or 10_000) / 1000
        lock = import_module("pottery").Redlock(
            key=name, masters={redis.Redis.from_url(url) for url in self.urls}, auto_release_time=seconds
        )
        if wait_ms == 0:
            return lock if lock.acquire(blocking=False) else None
        return lock if lock.acquire(timeout=FOREVER if wait_ms < 0 else wait_ms / 1000) else None

    def extend(self, key: str, ttl_ms: int) -> None:
        self.held[key].extend()

    def owns(self, lock: Any) -> bool:
        return bool(lock.locked())


class Aioredlock(Client):
    """For asyncio; the driver runs each call to its end."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.loop = asyncio.new_event_loop()
        self.module = import_module("aioredlock")
        # One try for each call: how long is waited is up to the driver, at the delay that the library has.
        self.manager = self.module.Aioredlock(self.urls, retry_count=1)

    def get(self, name: str, ttl_ms: int, wait_ms: int) -> Any:
        return self.loop.run_until_complete(self._get(name, (ttl_ms or 10_000) / 1000, wait_ms))

    async def _get(self, name: str, ttl: float, wait_ms: int) -> Any:
        until = time.monotonic() + (FOREVER if wait_ms < 0 else wait_ms / 1000)
        while True:
            try:
                return await self.manager.lock(name, lock_timeout=ttl)
            except self.module.LockAcquiringError:
                # Somebody has it; what the server refused is another error.
                if time.monotonic() >= until:
                    return None
                await asyncio.sleep(0.1)

    def release(self, key: str) -> None:
        self.loop.run_until_complete(self.manager.unlock(self.held.pop(key)))

    def extend(self, key: str, ttl_ms: int) -> None:
        self.loop.run_until_complete(self.manager.extend(self.held[key], ttl_ms / 1000))

    def owns(self, lock: Any) -> bool:
        return bool(lock.valid)


KINDS: dict[str, Callable[[str], Client]] = {
    "pawlock": Pawlock,
    "pawlock-asyncio": PawlockAsyncio,
    "pawlock-key": PawlockKey,
    "pawlock-both": PawlockBoth,
    "pawlock-name": PawlockName,
    "pawlock-redisson": OfRedisson,
    "pawlock-redisson-both": RedissonBoth,
    "pawlock-pyredislock": OfPythonRedisLock,
    "pawlock-pyredislock-both": PythonRedisLockBoth,
    "pawlock-spring": OfSpring,
    "pawlock-spring-both": SpringBoth,
    "pawlock-rueidis": RueidislockAll,
    "pawlock-rueidis-both": RueidislockBoth,
    "redis-py": RedisPy,
    "pyredislock": PythonRedisLock,
    "pottery": Pottery,
    "aioredlock": Aioredlock,
}


def say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def count(
    client: Client, key: str, ttl_ms: int, seconds: float, counter: str, hold_ms: int
) -> dict[str, Any]:
    """Lock, read, wait, write one more, unlock, over and over."""
    me, inside, errors, last = str(os.getpid()), f"inside:{counter}", 0, ""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            asked = time.monotonic()
            if not client.acquire(key, ttl_ms, 5000):
                continue
            got = time.monotonic()
            found = client.plain.set(inside, me, get=True) or ""
            value = int(client.plain.get(counter) or 0)
            say(event="held", t0=asked, t=got, found=found, value=value, **client.about(key))
            time.sleep(hold_ms / 1000)
            client.plain.set(counter, value + 1)
            found = client.plain.getdel(inside) or ""
            until_then = client.about(key)
            left = time.monotonic()
            client.release(key)
            say(event="left", t0=left, t=time.monotonic(), found=found, me=me, **until_then)
        except Exception as error:  # noqa: BLE001 - whatever a library raises is what is told
            errors, last = errors + 1, f"{type(error).__name__}: {error}"
            say(event="error", t=time.monotonic(), error=last)
            time.sleep(0.05)
    return {"ok": True, "errors": errors, "error": last}


def answer(client: Client, command: str, key: str, *rest: str) -> dict[str, Any]:
    if command == "try":
        ok = client.acquire(key, int(rest[0]), 0)
    elif command == "lock":
        ok = client.acquire(key, int(rest[0]), int(rest[1]))
    elif command == "unlock":
        client.release(key)
        return {"ok": True}
    elif command == "extend":
        client.extend(key, int(rest[0]))
        return {"ok": True}
    elif command == "state":
        return {"ok": True, "state": client.state(key) if key in client.held else "free"}
    elif command == "count":
        return count(client, key, int(rest[0]), float(rest[1]), rest[2], int(rest[3]))
    else:
        return {"ok": False, "error": "unsupported"}
    return {"ok": ok, **(client.about(key) if ok else {})}


def main() -> None:
    client = KINDS[sys.argv[1]](sys.argv[2])
    say(ready=True)
    for line in sys.stdin:
        begin = time.monotonic()
        try:
            found = answer(client, *line.split())
        except Exception as error:  # noqa: BLE001 - as above
            found = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        say(t0=begin, t=time.monotonic(), **found)


if __name__ == "__main__":
    main()
