# pyright: basic
# Celery has no type marks, so what comes from it has no known type.
"""Plain keys beside the locks: when a task was last sent, which task holds a lock."""

from __future__ import annotations

import contextlib
from typing import Any

import pawlock
from pawlock.integrations.celery._settings import mapping, target_of

__all__ = ["FAILURES", "checked", "namespace_of", "redis_of", "text"]

_URLS = ("redis://", "rediss://", "unix://", "redis+cluster://", "rediss+cluster://")


def checked(app: Any) -> Any:
    """The server that keeps plain keys of an application: a URL, or a client of redis-py.

    Raises:
        ConfigurationError: It is neither, or has no one keyspace, as independent masters.
    """
    given = mapping(app, "pawlock").get("store")
    target = target_of(app) if given is None else given
    if hasattr(target, "hgetall") or str(target).startswith(_URLS):
        return target
    raise pawlock.ConfigurationError(
        "app.conf.pawlock needs a 'store', a redis.Redis client or a redis:// URL: it cannot be derived from its server"
    )


def redis_of(target: Any) -> Any:
    """A client of redis-py for what ``checked`` returned."""
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # A server that does not answer must not hold up beat for longer than it takes to be elected elsewhere.
    limits: dict[str, Any] = {"socket_timeout": 5, "socket_connect_timeout": 5}
    if not isinstance(target, str):
        return target
    scheme, _, rest = target.partition("+cluster://")
    if rest:
        return _cluster_of(scheme, rest, limits)
    # Newer versions of redis-py would try ten times.
    return Redis.from_url(target, retry=Retry(NoBackoff(), 1), **limits)


def _cluster_of(scheme: str, rest: str, limits: dict[str, Any]) -> Any:
    """A client for the first node that answers, of those that the URL names."""
    from redis.cluster import RedisCluster

    places, slash, more = rest.partition("/")
    login, at, hosts = places.rpartition("@")
    nodes = hosts.split(",")
    for node in nodes:
        with contextlib.suppress(*FAILURES if node != nodes[-1] else ()):
            return RedisCluster.from_url(f"{scheme}://{login}{at}{node}{slash}{more}", **limits)
    raise AssertionError  # the last one returned or raised


def namespace_of(app: Any) -> str:
    """What the keys of an application begin with."""
    return str(mapping(app, "pawlock").get("namespace", "pawlock"))


def _failures() -> tuple[type[Exception], ...]:
    from redis.exceptions import RedisClusterException, RedisError

    return pawlock.PawlockError, OSError, RedisError, RedisClusterException


FAILURES = _failures()
"""What goes wrong with locks and with plain keys."""


def text(word: bytes | str) -> str:
    """A reply of redis-py, with and without ``decode_responses``."""
    return word.decode() if isinstance(word, bytes) else word
