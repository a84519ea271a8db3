"""python-redis-lock: the peer that wakes its waiters (BLPOP) instead of letting them poll."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.base import Handle, Options, Peer

TTL = 30


class _Session:
    def __init__(self, url: str, *, renewing: bool) -> None:
        self._renewing = renewing
        import redis

        self._client: Any = redis.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]

    def handle(self, name: str) -> Handle:
        import redis_lock  # type: ignore[import-untyped]  # it has no type marks

        lock: Any = redis_lock.Lock(self._client, name, expire=TTL, auto_renewal=self._renewing)
        return Handle(acquire=lock.acquire, release=lambda _grant: lock.release())

    def close(self) -> None:
        self._client.close()


def _open(url: str, options: Options) -> _Session:
    return _Session(url, renewing=bool(options.get("renewing")))


PEER = Peer(
    key="python-redis-lock",
    label="python-redis-lock",
    modules=("redis", "redis_lock"),
    distributions=("python-redis-lock", "redis", "hiredis"),
    commands=frozenset({"set", "blpop", "evalsha", "eval"}),
    open=_open,
)
