"""redis-py's own `Lock` in both APIs, at its defaults but for a timeout (it never expires without).

`best` asks again after a millisecond instead of 100, and speaks RESP2, which parses a little faster. The drop-in is
`pawlock.compat.redis.Lock` as `lock_class` of the same calls.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.base import Handle, Options, Peer

TTL = 30.0
_CLIENT: dict[str, Any] = {"protocol": 2}
_LOCK: dict[str, Any] = {"sleep": 0.001}


class _Session:
    def __init__(self, url: str, options: Options) -> None:
        import redis

        self._client: Any = redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, **_CLIENT if options.get("best") else {}
        )
        self._lock = dict(_LOCK) if options.get("best") else {}
        if options.get("drop_in"):
            from pawlock.compat.redis import Lock

            self._lock["lock_class"] = Lock

    def handle(self, name: str) -> Handle:
        lock = self._client.lock(name, timeout=TTL, **self._lock)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())

    def close(self) -> None:
        self._client.close()


class _AsyncSession:
    def __init__(self, url: str, options: Options) -> None:
        import redis.asyncio

        # The default pool raises beyond 100 connections; 100 tasks and the loop's own need a few more.
        self._client: Any = redis.asyncio.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, max_connections=1000, **_CLIENT if options.get("best") else {}
        )
        self._lock = dict(_LOCK) if options.get("best") else {}
        if options.get("drop_in"):
            from pawlock.compat.redis import AsyncLock

            self._lock["lock_class"] = AsyncLock

    async def handle(self, name: str) -> Handle:
        lock = self._client.lock(name, timeout=TTL, **self._lock)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())

    async def close(self) -> None:
        await self._client.aclose()


def _open(url: str, options: Options) -> _Session:
    return _Session(url, options)


async def _open_async(url: str, options: Options) -> _AsyncSession:
    return _AsyncSession(url, options)


PEER = Peer(
    key="redis-py",
    label="redis-py Lock",
    modules=("redis",),
    distributions=("redis", "hiredis"),
    commands=frozenset({"set", "evalsha", "eval"}),
    open=_open,
    open_async=_open_async,
)


async def _drop_in_async(url: str, options: Options) -> _AsyncSession:
    return _AsyncSession(url, {**options, "drop_in": 1})


DROP_IN = Peer(
    key="pawlock-drop-in",
    label="pawlock.compat.redis Lock",
    modules=("redis", "pawlock"),
    distributions=("redis", "hiredis"),
    commands=frozenset({"evalsha", "eval"}),
    open=lambda url, options: _Session(url, {**options, "drop_in": 1}),
    open_async=_drop_in_async,
)
