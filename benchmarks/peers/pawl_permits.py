"""pawl's semaphore and both sides of its read-write lock, at their defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

from benchmarks.peers import pawl_lock
from benchmarks.peers.base import Handle, Options, Peer

if TYPE_CHECKING:
    from pawl import AsyncClient, Client

_fence = attrgetter("fence")
_release = methodcaller("release")
_PERMITS = 8


def _semaphore(client: Client | AsyncClient, name: str) -> Any:  # noqa: ANN401 - either colour
    return client.semaphore(name, permits=_PERMITS)


def _read(client: Client | AsyncClient, name: str) -> Any:  # noqa: ANN401 - either colour
    return client.rwlock(name).read


def _write(client: Client | AsyncClient, name: str) -> Any:  # noqa: ANN401 - either colour
    return client.rwlock(name).write


Make = Callable[["Client | AsyncClient", str], Any]


class _Session:
    def __init__(self, url: str, make: Make) -> None:
        import pawl

        self._client = pawl.connect(url)
        self._make = make

    def handle(self, name: str) -> Handle:
        return Handle(acquire=self._make(self._client, name).acquire, release=_release, fence=_fence)

    def close(self) -> None:
        self._client.close()


class _AsyncSession:
    def __init__(self, url: str, make: Make) -> None:
        import pawl

        self._client = pawl.connect_async(url)
        self._make = make

    async def handle(self, name: str) -> Handle:
        return Handle(acquire=self._make(self._client, name).acquire, release=_release, fence=_fence)

    async def close(self) -> None:
        await self._client.close()


def _peer(key: str, make: Make) -> Peer:
    def door(url: str, _: Options) -> _Session:
        return _Session(url, make)

    async def adoor(url: str, _: Options) -> _AsyncSession:
        return _AsyncSession(url, make)

    return replace(pawl_lock.PEER, key=key, label=key, open=door, open_async=adoor)


SEMAPHORE = _peer("pawl-semaphore", _semaphore)
READ = _peer("pawl-read", _read)
WRITE = _peer("pawl-write", _write)
