# pyright: basic
# Django has no type marks, so what comes from it has no known type.
"""What ``manage.py check`` finds: settings that can never work, a server that is away, keys that locks share."""

from __future__ import annotations

import os
from typing import Any

import pawl
from pawl.integrations.django._settings import location_of, made_from

__all__ = ["check_locks"]

_PATIENCE = 1.0
"""Seconds that the check waits for a server: it runs at each start of the development server."""


def check_locks(**_given: object) -> list[Any]:
    """The findings; called by Django.

    ``pawl.E001``: settings that can never work. ``pawl.W001``: the lock server cannot be asked. ``pawl.W002``: keys of
    a cache may be those of locks. ``pawl.W003``: ``cache.clear()`` of a cache deletes the locks.
    """
    from django.core.checks import Error
    from django.core.checks import Warning as Found

    try:
        target, options, _ = made_from()
        options["unavailable_after"] = _PATIENCE
        with pawl.connect(target, **options) as client:
            client.lock("pawl-check").locked()
    except (pawl.ConfigurationError, pawl.NotSupported, TypeError) as error:
        return [Error(f"the locks cannot be set up: {error}", hint="See the setting PAWL.", id="pawl.E001")]
    except pawl.PawlError as error:
        return [
            Found(f"the lock server cannot be asked: {error}", hint="manage.py pawl doctor", id="pawl.W001")
        ]
    where = target if target is not None else os.environ.get("PAWL_URL", "")
    return _shared(where, str(options.get("namespace", os.environ.get("PAWL_NAMESPACE", "pawl"))), Found)


def _shared(where: object, namespace: str, found: Any) -> list[Any]:
    from django.conf import settings

    findings: list[Any] = []
    for alias, cache in getattr(settings, "CACHES", {}).items():
        location = location_of(cache)
        if not location or _database(location) != _database(str(where)):
            continue
        if str(cache.get("KEY_PREFIX", "")) == namespace:
            text = f"keys of the cache {alias!r} and of locks begin alike: {namespace!r}"
            findings.append(found(text, hint="Set another KEY_PREFIX or PAWL['NAMESPACE'].", id="pawl.W002"))
        text = f"the cache {alias!r} is in the database of the locks: its clear() deletes them"
        hint = "Give PAWL['URL'] another database number, or silence this if nobody calls clear()."
        findings.append(found(text, hint=hint, id="pawl.W003"))
    return findings


def _database(url: str) -> str:
    """The server and its database, without credentials."""
    scheme, _, rest = url.partition("://")
    server, _, query = rest.rpartition("@")[2].partition("?")
    if scheme == "unix":
        return server + next((one for one in query.split("&") if one.startswith("db=")), "db=0")
    host, _, number = server.partition("/")
    return f"{host if ':' in host else host + ':6379'}/{number or 0}"
