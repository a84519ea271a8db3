# pyright: basic
# Celery has no type marks, so what comes from it has no known type.
"""The client of a Celery application, made from its settings when it is first used."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

import pawlock

__all__ = ["client", "mapping", "target_of"]

_made: weakref.WeakKeyDictionary[Any, tuple[Any, pawlock.Client]] = weakref.WeakKeyDictionary()
_making = threading.Lock()
_OF_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
os.register_at_fork(after_in_child=lambda: globals().update(_making=threading.Lock()))


def client(app: Any) -> pawlock.Client:
    """The client of an application in this process; the same at each call.

    Its server is ``app.conf.pawlock["url"]``, else the environment's ``PAWLOCK_URL``, else the broker if that is a
    ``redis://`` or ``rediss://`` URL, without what only kombu's pool needs. Other keys of ``app.conf.pawlock`` are
    options of ``pawlock.connect``: ``app.conf.pawlock = {"url": ..., "namespace": "shop"}``.

    Some plain keys are kept beside the locks, on the same server. If that is not one of ``redis://``, ``rediss://``,
    ``unix://``, ``redis+cluster://`` or ``rediss+cluster://``, name a ``redis.Redis`` client or URL for them:
    ``app.conf.pawlock["store"]``.

    Args:
        app: The Celery application.

    Raises:
        ConfigurationError: No server is set, or a setting that can never work.
    """
    given = mapping(app, "pawlock")
    with _making:
        made = _made.get(app)
        if made is None or made[0] != given:
            options = {key: value for key, value in given.items() if key not in {"url", "store"}}
            made = given, pawlock.connect(target_of(app), **options)
            _made[app] = made
        return made[1]


def target_of(app: Any) -> Any:
    """What the client of an application connects to.

    Raises:
        ConfigurationError: No server is set.
    """
    given = mapping(app, "pawlock")
    if "url" in given:
        if not given["url"]:
            raise pawlock.ConfigurationError("app.conf.pawlock['url'] is empty: leave it out, or give a URL")
        return given["url"]
    if url := os.environ.get("PAWLOCK_URL"):
        return url
    broker = str(app.conf.broker_write_url or app.conf.broker_url or "").split(";")[0]
    if broker.startswith(("redis://", "rediss://")):
        return _without_pool(broker)
    # The server of one user and one machine, which `pawlock.connect()` would find, is hardly ever meant here.
    raise pawlock.ConfigurationError(
        "no server for locks: set app.conf.pawlock = {'url': 'redis://…'} or PAWLOCK_URL (the broker is not redis://)"
    )


def _without_pool(broker: str) -> str:
    """A URL that was written for kombu as one for redis-py: without options of the pool, with its word for a check."""
    url, _, query = broker.partition("?")
    kept = [
        (option, value.lower().removeprefix("cert_") if option == "ssl_cert_reqs" else value)
        for option, value in parse_qsl(query)
        if option in _OF_TLS and url.startswith("rediss://")
    ]
    return f"{url}?{urlencode(kept)}" if kept else url


def mapping(app: Any, name: str) -> dict[str, Any]:
    """A setting of the application that is a dictionary; empty where it is not set.

    Raises:
        ConfigurationError: It is something else.
    """
    given: Any = app.conf.get(name) or {}
    if not isinstance(given, Mapping):
        raise pawlock.ConfigurationError(f"app.conf.{name} must be a dictionary, got {type(given).__name__}")
    return dict(cast("Mapping[str, Any]", given))
