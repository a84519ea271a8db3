# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""The clients of a Django process, made from its settings when they are first used."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from typing import Any, cast

import pawlock

__all__ = ["async_client", "client"]

_made: dict[str, Any] = {}
_making = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: globals().update(_making=threading.Lock()))


def client() -> pawlock.Client:
    """The client of this process for threads: for views, commands, signals. The same at each call.

    Its server is ``PAWLOCK["URL"]`` of the settings, else the environment's ``PAWLOCK_URL``, else that of the first cache on
    Redis, with the login and all else in its ``OPTIONS``, else what ``pawlock.connect()`` finds. Other keys of ``PAWLOCK``
    are options of ``pawlock.connect``, in capitals: ``PAWLOCK = {"URL": ..., "NAMESPACE": "shop", "TTL": 20}``.

    Raises:
        ConfigurationError: A setting that can never work.
    """
    return cast("pawlock.Client", _once("threads", pawlock.connect))


def async_client() -> pawlock.AsyncClient:
    """The client of this process for asyncio: for async views under ASGI. The same at each call.

    Under WSGI each request of an async view has an event loop of its own, and so a connection of its own: use
    ``client()`` in sync views there.

    Raises:
        ConfigurationError: As for ``client``.
    """
    return cast("pawlock.AsyncClient", _once("asyncio", pawlock.connect_async))


def _once(kind: str, connect: Any) -> Any:
    from django.core.signals import setting_changed

    with _making:
        if kind not in _made:
            target, options = _made_from()
            try:
                _made[kind] = connect(target, **options)
            except pawlock.ConfigurationError as error:
                # A capital would be an option that does not exist, and an option no key of the setting.
                raise pawlock.ConfigurationError(
                    f"the setting PAWLOCK, whose keys are options of pawlock.connect in capitals: {error.text}"
                ) from None
            setting_changed.connect(_forget, dispatch_uid="pawlock")
        return _made[kind]


def _made_from() -> tuple[Any, dict[str, Any]]:
    """What a client is made from: its target and its options. The target is None for ``PAWLOCK_URL`` and what follows.

    Raises:
        ConfigurationError: ``PAWLOCK`` is no dictionary, or its URL is empty.
    """
    from django.conf import settings

    given: Any = getattr(settings, "PAWLOCK", {})
    if not isinstance(given, Mapping):
        raise pawlock.ConfigurationError(
            f"the setting PAWLOCK must be a dictionary, got {type(given).__name__}"
        )
    options = {str(key).lower(): value for key, value in cast("Mapping[object, Any]", given).items()}
    if "url" in options:
        target = options.pop("url")
        if not target:
            raise pawlock.ConfigurationError(
                "the setting PAWLOCK['URL'] is empty: leave it out, or give a URL"
            )
        return target, options
    if "PAWLOCK_URL" in os.environ:
        return None, options
    given = getattr(settings, "CACHES", {})
    return next(
        (_server_of(alias, given[alias]) for alias in given if _is_redis(given[alias])), None
    ), options


def _is_redis(cache: Mapping[str, Any]) -> bool:
    backend = str(cache.get("BACKEND", "")).lower()
    return bool(cache.get("LOCATION")) and ("redis" in backend or "valkey" in backend)


def _server_of(alias: str, cache: Mapping[str, Any]) -> Any:
    """What a cache itself connects with, which knows its ``OPTIONS``; of one without, as a sharded one, its first URL."""
    from django.core.cache import caches

    made: Any = caches[alias]
    # That of django-redis and django-valkey, else that of Django.
    clients: Any = getattr(made, "client", None) or getattr(made, "_cache", None)
    with contextlib.suppress(AttributeError, RuntimeError):
        return clients.get_client(write=True)
    location: Any = cache["LOCATION"]
    first = location if isinstance(location, str) else next(iter(location))
    url = str(first).split(",")[0].split(";")[0]
    return "redis" + url.removeprefix("valkey") if url.startswith(("valkey://", "valkeys://")) else url


def _forget(*, setting: str, **_more: object) -> None:
    """Make new clients after ``override_settings``; what the earlier ones hold they keep."""
    if setting in ("PAWLOCK", "CACHES"):
        with _making:
            _made.clear()
