"""A key that other programs lock too, as text: what the command line and the HTTP service take."""

from __future__ import annotations

from collections.abc import Callable

from pawlock.core.key import Key
from pawlock.errors import ConfigurationError

__all__ = ["read_key"]


def _spring(text: str) -> Key:
    registry, _, key = text.partition(":")
    if not key:
        raise ConfigurationError("spring: needs a registry key and a lock key, as in spring:locks:order:42")
    return Key.spring(registry, key)


_FORMS: dict[str, Callable[[str], Key]] = {
    "plain": Key,
    "redisson": Key.redisson,
    "redisson-fenced": lambda text: Key.redisson(text, fenced=True),
    "spring": _spring,
    "python-redis-lock": Key.python_redis_lock,
    "rueidislock": lambda text: Key.rueidislock(text, majority=1),
    "shedlock": Key.shedlock,
    "redlock-net": Key.redlock_net,
    "redis-semaphore": Key.redis_semaphore,
}


def read_key(text: str) -> Key:
    """The key that a text stands for: ``redisson:order:42``, ``spring:locks:order:42``, …, else the key as it is.

    Args:
        text: The name of a library, ``:``, and what that library calls the lock; or the key. ``plain:`` before a key
            that begins like one of these.

    Raises:
        ConfigurationError: It can never be a key.
    """
    form, colon, rest = text.partition(":")
    make = _FORMS.get(form) if colon else None
    return Key(text) if make is None else make(rest)
