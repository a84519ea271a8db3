"""pawlock at its defaults: renewal on, fences on; a scenario sets `handover`, `ttl` and `ticket_ttl` at most.

With `anew`, each section makes its lock, as most programs do: `with client.lock(name, ttl=30)`.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter, methodcaller
from typing import Any

from benchmarks.peers.base import Handle, Options, Peer

_fence = attrgetter("fence")
_release = methodcaller("release")


def _lock_options(options: Options) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if "handover" in options:
        given["handover"] = int(options["handover"])
    given |= {key: options[key] for key in ("ttl", "ticket_ttl") if key in options}
    return given


class _Session:
    def __init__(self, url: str, options: Options) -> None:
        import pawlock

        self._client = pawlock.connect(url)
        self._options = _lock_options(options)
        self._anew = "anew" in options

    def handle(self, name: str) -> Handle:
        if self._anew:
            make = self._client.lock
            return Handle(acquire=lambda: make(name, ttl=30).acquire(), release=_release, fence=_fence)
        lock = self._client.lock(name, **self._options)
        return Handle(acquire=lock.acquire, release=_release, fence=_fence)

    def close(self) -> None:
        self._client.close()


class _AsyncSession:
    def __init__(self, url: str, options: Options) -> None:
        import pawlock

        self._client = pawlock.connect_async(url)
        self._options = _lock_options(options)
        self._anew = "anew" in options

    async def handle(self, name: str) -> Handle:
        if self._anew:
            make = self._client.lock
            return Handle(acquire=lambda: make(name, ttl=30).acquire(), release=_release, fence=_fence)
        lock = self._client.lock(name, **self._options)
        return Handle(acquire=lock.acquire, release=_release, fence=_fence)

    async def close(self) -> None:
        await self._client.close()


class _Again:
    """A thread that holds an rlock takes it once more, and gives that back: no server is asked."""

    def __init__(self, url: str) -> None:
        import pawlock

        self._client = pawlock.connect(url)

    def handle(self, name: str) -> Handle:
        lock = self._client.rlock(name)
        # Held for a turn only: a lease that is old is renewed, and told of, while others have their turns.
        return Handle(acquire=lock.acquire, release=_release, around=lock.acquire)

    def close(self) -> None:
        self._client.close()


def _open_again(url: str, options: Options) -> _Again:
    del options
    return _Again(url)


def _open(url: str, options: Options) -> _Session:
    return _Session(url, options)


async def _open_async(url: str, options: Options) -> _AsyncSession:
    return _AsyncSession(url, options)


PEER = Peer(
    key="pawlock",
    label="pawlock",
    modules=("pawlock.sync",),
    distributions=("pawlock", "redis", "hiredis"),
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

AGAIN = replace(PEER, key="pawlock-again", label="pawlock, taken again", open=_open_again, open_async=None)
