"""Clients that were made before the server of a test was there: led to it for as long as the test runs, or refused.

A module of the code under test makes its client when it is imported, which is before any fixture, with the address of
the developer's environment.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NoReturn

from pawlock._factory import live_clients
from pawlock._target import find_target
from pawlock.core.observe.timed_runtime import observe
from pawlock.errors import ConfigurationError
from pawlock.sync import Client
from pawlock.testing import servers

__all__ = ["lead_to"]

_BY_DEFAULT = (None, "embedded://")
"""What leads to the developer's own server, whichever that is."""


def lead_to(url: str) -> ExitStack:
    """Lead every client that there is to a test's server.

    A client that was made without an address, or for ``embedded://``, goes to it. One that names another server is
    refused at its use, with the line that made it; one that leads to a server of ``pawlock.testing`` is left alone.

    Args:
        url: The address of the test's server.

    Returns:
        What undoes it, at its ``close``.
    """
    undo = ExitStack()
    for client in list(live_clients):
        target = client._origin[0]
        if client._closed or _is_of_a_test(target):
            continue
        settings = client._settings
        if target not in _BY_DEFAULT or settings.redlock or settings.remote:
            _swap(undo, client, **_refusal(client, url))
        elif isinstance(client, Client):
            _lead_threads(undo, client, url)
        else:
            # Of the loops that end with the test nobody closes these.
            undo.callback(_forget, client)
            _swap(undo, client, _target=find_target(url), _engines={}, _last=None, _closed=False)
    return undo


def _is_of_a_test(target: object) -> bool:
    if isinstance(target, (list, tuple)):
        return all(map(_is_of_a_test, target))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(target, str) and target.startswith("memory:"):
        return True
    if not isinstance(target, str):
        pool: Any = getattr(target, "connection_pool", None)
        known: dict[str, Any] = getattr(pool, "connection_kwargs", {})
        target = f"redis://{known.get('host')}:{known.get('port')}/{known.get('path')}"
    return any(place in target for place in servers.places())


def _lead_threads(undo: ExitStack, client: Any, url: str) -> None:
    made_with = {**client._origin[1], "credentials": None}
    double = Client(url, **made_with)
    live_clients.discard(double)
    for observer in client._engine.reports.observer.members if client._engine.reports.observer else ():
        observe(double._engine, observer)
    undo.callback(double.close)
    _swap(undo, client, _engine=double._engine, _runtime=double._runtime)


def _swap(undo: ExitStack, client: Any, **parts: object) -> None:
    for name, part in parts.items():
        if name in vars(client):
            undo.callback(setattr, client, name, vars(client)[name])
        else:
            undo.callback(delattr, client, name)
        setattr(client, name, part)


def _forget(client: Any) -> None:
    for engine in client._known_engines():
        engine.activity.closed = True


class _Refused:
    """Stands in for what a client of threads works with."""

    closed = False

    def __init__(self, refuse: Callable[[], NoReturn]) -> None:
        self._refuse = refuse

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()


def _refusal(client: Any, url: str) -> dict[str, object]:
    file, line = client._made_at
    text = (
        f"the client that {file}:{line} made is not used in this test: it names a server, and was made before the one "
        f"of the test ({url}) was there. Made by pawlock.connect() without an address, it leads to that one; or make "
        "it in the test"
    )

    def refuse() -> NoReturn:
        raise ConfigurationError(text)

    return {"_engine": _Refused(refuse) if isinstance(client, Client) else refuse}
