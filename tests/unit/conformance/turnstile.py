"""A primitive of somebody else, in three places: its requests, its factory, its entry. No file of pawlock knows of it.

A turnstile lets one owner through at a time, like a lock, under keys of its own: a lock of the same name is another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pawlock
from pawlock._factory import exclusive_plan
from pawlock._inside import settings_of
from pawlock.aio.lock import AsyncLock
from pawlock.core.names import key_of
from pawlock.primitives.mutex import Mutex
from pawlock.primitives.registry import Entry, register, unregister
from pawlock.sync.lock import Lock

if TYPE_CHECKING:
    from pawlock.core.options import LockOptions

__all__ = ["ENTRY", "forget", "know"]


# 1. What is sent for it.


class Turnstile(Mutex):
    """The requests of a turnstile: those of a mutex, under keys of its own."""

    __slots__ = ()


def _requests(namespace: str, name: str, options: LockOptions) -> Turnstile:
    return Turnstile("turnstile", name, f"{key_of(namespace, name)}%turnstile", options.fence_ms)


# 2. Its factory, for clients of both APIs.


def turnstile(client: Any, name: str, **given: Any) -> Any:
    """A turnstile of this name."""
    settings = settings_of(client)
    options = settings.lock_options(given)
    plan = exclusive_plan(_requests(settings.namespace, name, options), options)
    shell: Any = Lock if isinstance(client, pawlock.Client) else AsyncLock
    return shell(client, plan, ("turnstile", (name,), given))


# 3. Its entry.

ENTRY = Entry(
    kind="turnstile",
    summary="One at a time gets through.",
    factory=turnstile,
    family="turnstile",
    record=_requests,
)


def know() -> None:
    """Register it."""
    register(ENTRY)


def forget() -> None:
    """And no more."""
    unregister(ENTRY.kind)
