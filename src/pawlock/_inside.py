"""Access to the internals behind public objects: no other module reads their private attributes."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any

__all__ = [
    "add_observer",
    "after_fork",
    "client_of",
    "engine_here",
    "engine_of",
    "engines_of",
    "is_closed",
    "origin_of",
    "plan_behind",
    "settings_of",
    "source_of",
]


engine_of: Callable[[Any], Any] = attrgetter("_engine")
"""The engine of a client of threads."""

engine_here: Callable[[Any], Any] = methodcaller("_engine")
"""The engine that a client of asyncio has for the running event loop."""


def settings_of(client: Any) -> Any:
    """The ``Settings`` of a client."""
    return client._settings


def origin_of(client: Any) -> Any:
    """What a client was made with: its target, and the rest as keyword arguments."""
    return client._origin


def is_closed(client: Any) -> bool:
    """Whether a client was closed."""
    return bool(client._closed)


def plan_behind(described: Any) -> Any:
    """The plan of a lock, a latch or anything else that a client makes."""
    return described._plan


def source_of(described: Any) -> tuple[Any, ...]:
    """How the same object is made again: the kind, the name, the options."""
    source: tuple[Any, ...] = described._source
    return source


def client_of(described: Any) -> Any:
    """The client that made it."""
    return described._client


def engines_of(client: Any) -> list[Any]:
    """The engines that a client has: one, or one for each event loop."""
    engines: list[Any] = client._known_engines()
    return engines


def add_observer(client: Any, observer: object) -> None:
    """Notify an observer of what a client does from now on."""
    client._observe(observer)


def after_fork(client: Any) -> None:
    """In the child of a fork: what the parent's threads and connections did is theirs."""
    client._after_fork()
