"""pawl at its defaults: renewal on, fences on; `handover` is the only option a scenario sets."""

from __future__ import annotations

from operator import attrgetter, methodcaller
from typing import Any

from benchmarks.peers.base import Handle, Options, Peer

_fence = attrgetter("fence")
_release = methodcaller("release")


def _lock_options(options: Options) -> dict[str, Any]:
    return {"handover": int(options["handover"])} if "handover" in options else {}


class _Session:
    def __init__(self, url: str, options: Options) -> None:
        import pawl

        self._client = pawl.connect(url)
        self._options = _lock_options(options)

    def handle(self, name: str) -> Handle:
        lock = self._client.lock(name, **self._options)
        return Handle(acquire=lock.acquire, release=_release, fence=_fence)

    def close(self) -> None:
        self._client.close()


class _AsyncSession:
    def __init__(self, url: str, options: Options) -> None:
        import pawl

        self._client = pawl.connect_async(url)
        self._options = _lock_options(options)

    async def handle(self, name: str) -> Handle:
        lock = self._client.lock(name, **self._options)
        return Handle(acquire=lock.acquire, release=_release, fence=_fence)

    async def close(self) -> None:
        await self._client.close()


def _open(url: str, options: Options) -> _Session:
    return _Session(url, options)


async def _open_async(url: str, options: Options) -> _AsyncSession:
    return _AsyncSession(url, options)


PEER = Peer(
    key="pawl",
    label="pawl",
    modules=("pawl.sync",),
    distributions=("pawl", "redis", "hiredis"),
    commands=frozenset(
        {
            "evalsha",
            "eval",
            "subscribe",
            "ssubscribe",
            "unsubscribe",
            "sunsubscribe",
            "ping",
            "blpop",
            "script|load",
        }
    ),
    open=_open,
    open_async=_open_async,
)
