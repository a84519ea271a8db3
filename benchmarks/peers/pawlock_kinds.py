"""pawlock's other primitives, at their defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

from benchmarks.peers import pawlock_lock
from benchmarks.peers.base import Handle, Options, Peer

if TYPE_CHECKING:
    from pawlock import AsyncClient, Barrier, Client, Latch

_fence = attrgetter("fence")
_release = methodcaller("release")
_PERMITS = 8
_PATIENCE = {"wait": 60}
"""For the service, whose callers give up soon by default."""

Make = Callable[[Any, str, Options], Handle]
"""A worker's handle, from a client of either API."""


def _leased(lock: Any) -> Handle:  # noqa: ANN401 - of any kind, in either API
    return Handle(acquire=lock.acquire, release=_release, fence=_fence)


def _rlock(client: Client | AsyncClient, name: str, _: Options) -> Handle:
    return _leased(client.rlock(name))


def _fair(client: Client | AsyncClient, name: str, _: Options) -> Handle:
    return _leased(client.fair_lock(name))


def _semaphore(client: Client | AsyncClient, name: str, options: Options) -> Handle:
    return _leased(client.semaphore(name, permits=int(options.get("permits", _PERMITS))))


def _read(client: Client | AsyncClient, name: str, _: Options) -> Handle:
    return _leased(client.rwlock(name).read)


def _write(client: Client | AsyncClient, name: str, _: Options) -> Handle:
    return _leased(client.rwlock(name).write)


def _multi(client: Client | AsyncClient, name: str, _: Options) -> Handle:
    return Handle(acquire=client.multi_lock([name, f"{name}/b"]).acquire, release=_release)


def _election(client: Client | AsyncClient, name: str, _: Options) -> Handle:
    return Handle(acquire=client.election(name).campaign, release=_release, fence=_fence)


def _service(client: Client | AsyncClient, name: str, _: Options) -> Handle:
    service = client.service()
    return Handle(
        acquire=lambda: service.acquire(name, _PATIENCE),
        release=lambda identifier: service.release(name, identifier),
    )


def _latch(client: Client, name: str, _: Options) -> Handle:
    latch = client.latch(name, 1)

    def close_and_open() -> Latch:
        latch.reset()
        latch.count_down()
        return latch

    return Handle(acquire=close_and_open, release=methodcaller("wait"))


def _barrier(client: Client, name: str, _: Options) -> Handle:
    barrier = client.barrier(name, 1)

    def pass_alone() -> Barrier:
        barrier.wait()
        return barrier

    return Handle(acquire=pass_alone, release=lambda _: None)


class _Session:
    def __init__(self, url: str, make: Make, options: Options) -> None:
        import pawlock

        self._client = pawlock.connect(url)
        self._make, self._options = make, options

    def handle(self, name: str) -> Handle:
        return self._make(self._client, name, self._options)

    def close(self) -> None:
        self._client.close()


class _AsyncSession:
    def __init__(self, url: str, make: Make, options: Options) -> None:
        import pawlock

        self._client = pawlock.connect_async(url)
        self._make, self._options = make, options

    async def handle(self, name: str) -> Handle:
        return self._make(self._client, name, self._options)

    async def close(self) -> None:
        await self._client.close()


def _peer(key: str, make: Make, *, threads_only: bool = False) -> Peer:
    def door(url: str, options: Options) -> _Session:
        return _Session(url, make, options)

    async def adoor(url: str, options: Options) -> _AsyncSession:
        return _AsyncSession(url, make, options)

    return replace(
        pawlock_lock.PEER, key=key, label=key, open=door, open_async=None if threads_only else adoor
    )


KINDS = (
    _peer("pawlock-rlock", _rlock),
    _peer("pawlock-fair", _fair),
    _peer("pawlock-semaphore", _semaphore),
    _peer("pawlock-read", _read),
    _peer("pawlock-write", _write),
    _peer("pawlock-multi", _multi),
    _peer("pawlock-election", _election),
    _peer("pawlock-service", _service),
    _peer("pawlock-latch", _latch, threads_only=True),
    _peer("pawlock-barrier", _barrier, threads_only=True),
)
