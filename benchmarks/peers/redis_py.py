"""redis-py's own `Lock` in both colours, at its defaults but for a timeout (it never expires without)."""

from __future__ import annotations

import redis
import redis.asyncio
from redis.asyncio.lock import Lock as AsyncRedisLock
from redis.lock import Lock as RedisLock

from benchmarks.peers.base import Handle, Options, Peer

TTL = 30.0


class _Session:
    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]

    def handle(self, name: str) -> Handle:
        lock: RedisLock = self._client.lock(name, timeout=TTL)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())

    def close(self) -> None:
        self._client.close()


class _AsyncSession:
    def __init__(self, url: str) -> None:
        # The default pool raises beyond 100 connections; 100 tasks and the loop's own need a few more.
        self._client = redis.asyncio.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, max_connections=1000
        )

    async def handle(self, name: str) -> Handle:
        lock: AsyncRedisLock = self._client.lock(name, timeout=TTL)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())

    async def close(self) -> None:
        await self._client.aclose()


def _open(url: str, options: Options) -> _Session:
    del options
    return _Session(url)


async def _open_async(url: str, options: Options) -> _AsyncSession:
    del options
    return _AsyncSession(url)


PEER = Peer(
    key="redis-py",
    label="redis-py Lock",
    modules=("redis",),
    distributions=("redis", "hiredis"),
    commands=frozenset({"set", "evalsha", "eval"}),
    open=_open,
    open_async=_open_async,
)
