"""redis-py's own `Lock`, the drop-in in its place, and python-redis-lock, which wakes its waiters (BLPOP).

At their defaults but for a timeout: they never expire without. `best` asks again after a millisecond instead of 100, and
speaks RESP2, which parses a little faster.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.peers.base import Handle, Options, Peer, Session

TTL = 30


def _lock(client: Any, given: dict[str, Any], name: str) -> Handle:  # noqa: ANN401 - of either API
    lock = client.lock(name, timeout=TTL, **given)
    return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())


def _open(url: str, options: Options, **given: Any) -> Session:  # noqa: ANN401 - the drop-in's class
    import redis

    best = options.get("best")
    connect: Any = redis.Redis.from_url
    client = connect(url, **{"protocol": 2} if best else {})
    return partial(_lock, client, given | ({"sleep": 0.001} if best else {}))


async def _open_async(url: str, options: Options) -> Session:
    import redis.asyncio

    best = options.get("best")
    # The default pool raises beyond 100 connections; 100 tasks and the loop's own need a few more.
    connect: Any = redis.asyncio.Redis.from_url
    client = connect(url, max_connections=1000, **{"protocol": 2} if best else {})
    return partial(_lock, client, {"sleep": 0.001} if best else {})


def _drop_in(url: str, options: Options) -> Session:
    from pawlock.compat.redis import Lock

    return _open(url, options, lock_class=Lock)


def _open_redis_lock(url: str, _: Options) -> Session:
    import redis
    import redis_lock  # type: ignore[import-untyped]  # it has no type marks

    client: Any = redis.Redis.from_url(url)

    def handle(name: str) -> Handle:
        lock: Any = redis_lock.Lock(client, name, expire=TTL)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())

    return handle


PEERS = (
    Peer(
        "redis-py",
        "redis-py Lock",
        ("redis",),
        ("redis", "hiredis"),
        frozenset({"set", "evalsha", "eval"}),
        _open,
        _open_async,
    ),
    Peer("pawlock-drop-in", "pawlock.compat.redis Lock", ("pawlock",), ("redis", "hiredis"), open=_drop_in),
    Peer(
        "python-redis-lock",
        "python-redis-lock",
        ("redis_lock",),
        ("python-redis-lock", "redis", "hiredis"),
        frozenset({"set", "blpop", "evalsha", "eval"}),
        _open_redis_lock,
    ),
)
