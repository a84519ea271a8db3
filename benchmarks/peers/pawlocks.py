"""pawlock's primitives at their defaults: renewal on, fences on; a scenario sets `handover` and `ticket_ttl` at most.

With `anew`, each section makes its lock, as most programs do: `with client.lock(name, ttl=30)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

from benchmarks.peers.base import Handle, Options, Peer, Session

_fence = attrgetter("fence")
_release = methodcaller("release")
_PATIENCE = {"wait": 60}
"""For the service, whose callers give up soon by default."""

Make = Callable[[Any, Options, str], Handle]
"""A worker's handle, from a client of either API."""


def _leased(lock: Any) -> Handle:  # noqa: ANN401 - of any kind, in either API
    return Handle(acquire=lock.acquire, release=_release, fence=_fence)


def _lock(client: Any, options: Options, name: str) -> Handle:  # noqa: ANN401 - of either API
    if "anew" in options:
        make = client.lock
        return Handle(acquire=lambda: make(name, ttl=30).acquire(), release=_release, fence=_fence)
    given: dict[str, Any] = {"handover": int(options["handover"])} if "handover" in options else {}
    given |= {"ticket_ttl": options["ticket_ttl"]} if "ticket_ttl" in options else {}
    return _leased(client.lock(name, **given))


def _multi(client: Any, _: Options, name: str) -> Handle:  # noqa: ANN401 - of either API
    return Handle(acquire=client.multi_lock([name, f"{name}/b"]).acquire, release=_release)


def _service(client: Any, _: Options, name: str) -> Handle:  # noqa: ANN401 - of either API
    service = client.service()
    return Handle(
        acquire=lambda: service.acquire(name, _PATIENCE),
        release=lambda identifier: service.release(name, identifier),
    )


_KINDS: dict[str, Make] = {
    "pawlock": _lock,
    "pawlock-rlock": lambda client, _, name: _leased(client.rlock(name)),
    "pawlock-fair": lambda client, _, name: _leased(client.fair_lock(name)),
    "pawlock-semaphore": lambda client, options, name: _leased(
        client.semaphore(name, permits=int(options.get("permits", 8)))
    ),
    "pawlock-read": lambda client, _, name: _leased(client.rwlock(name).read),
    "pawlock-write": lambda client, _, name: _leased(client.rwlock(name).write),
    "pawlock-multi": _multi,
    "pawlock-election": lambda client, _, name: Handle(client.election(name).campaign, _release, _fence),
    "pawlock-service": _service,
}


def _client(url: str, *, tasks: bool) -> Any:  # noqa: ANN401 - of either API
    import pawlock

    # The masters of a benchmark are younger than a lease.
    given: Any = {"redlock": pawlock.RedlockOptions(fresh=True)} if url.startswith("redlock:") else {}
    return (pawlock.connect_async if tasks else pawlock.connect)(url, **given)


def _open(make: Make, url: str, options: Options) -> Session:
    return partial(make, _client(url, tasks=False), options)


async def _open_async(make: Make, url: str, options: Options) -> Session:
    return partial(make, _client(url, tasks=True), options)


PEERS = tuple(
    Peer(
        key=key,
        label=key,
        modules=("pawlock",),
        distributions=("pawlock", "redis", "hiredis"),
        commands=frozenset(
            [
                "evalsha",
                "eval",
                "subscribe",
                "ssubscribe",
                "unsubscribe",
                "sunsubscribe",
                "ping",
                "blpop",
                "script|load",
            ]
        ),
        open=partial(_open, make),
        open_async=partial(_open_async, make),
    )
    for key, make in _KINDS.items()
)
