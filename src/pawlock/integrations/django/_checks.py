# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""What ``manage.py check`` finds: settings that can never work, a server that is away, keys that locks share."""

from __future__ import annotations

import os
from typing import Any

import pawlock
from pawlock.integrations.django._settings import location_of, made_from

__all__ = ["check_locks"]

_PATIENCE = 1.0
"""Seconds that the check waits for a server: it runs at each start of the development server."""


def check_locks(**_given: object) -> list[Any]:
    """The findings; called by Django.

    ``pawlock.E001``: settings that can never work. ``pawlock.W001``: the lock server cannot be asked. ``pawlock.W002``: keys
    of a cache may be those of locks. ``pawlock.W003``: ``cache.clear()`` of a cache deletes the locks.
    """
    from django.core.checks import Error
    from django.core.checks import Warning as Found

    try:
        target, options, _ = made_from()
        options["unavailable_after"] = _PATIENCE
        with pawlock.connect(target, **options) as client:
            client.lock("pawlock-check").locked()
    except (pawlock.ConfigurationError, pawlock.NotSupported, TypeError) as error:
        return [
            Error(f"the locks cannot be set up: {error}", hint="See the setting PAWLOCK.", id="pawlock.E001")
        ]
    except pawlock.PawlockError as error:
        return [
            Found(
                f"the lock server cannot be asked: {error}",
                hint="manage.py pawlock doctor",
                id="pawlock.W001",
            )
        ]
    where = target if target is not None else os.environ.get("PAWLOCK_URL", "")
    return _shared(
        where, str(options.get("namespace", os.environ.get("PAWLOCK_NAMESPACE", "pawlock"))), Found
    )


def _shared(where: object, namespace: str, found: Any) -> list[Any]:
    from django.conf import settings

    findings: list[Any] = []
    for alias, cache in getattr(settings, "CACHES", {}).items():
        location = location_of(cache)
        if not location or _database(location) != _database(str(where)):
            continue
        if str(cache.get("KEY_PREFIX", "")) == namespace:
            text = f"keys of the cache {alias!r} and of locks begin alike: {namespace!r}"
            findings.append(
                found(text, hint="Set another KEY_PREFIX or PAWLOCK['NAMESPACE'].", id="pawlock.W002")
            )
        text = f"the cache {alias!r} is in the database of the locks: its clear() deletes them"
        hint = "Give PAWLOCK['URL'] another database number, or silence this if nobody calls clear()."
        findings.append(found(text, hint=hint, id="pawlock.W003"))
    return findings


def _database(url: str) -> str:
    """The server and its database, without credentials."""
    scheme, _, rest = url.partition("://")
    server, _, query = rest.rpartition("@")[2].partition("?")
    if scheme == "unix":
        return server + next((one for one in query.split("&") if one.startswith("db=")), "db=0")
    host, _, number = server.partition("/")
    return f"{host if ':' in host else host + ':6379'}/{number or 0}"
