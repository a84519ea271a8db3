"""Clients that were made without an address: for as long as a test runs, they use the server of the test.

A module of the code under test makes its client when it is imported, which is before any fixture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pawlock._factory import live_clients
from pawlock.sync.client import Client

__all__ = ["redirected"]


@contextmanager
def redirected() -> Generator[None, None, None]:
    """Have each client that was made without an address begin anew, with what the environment names now.

    At the end those that were used are closed, and look again at their next use; what was used before is back then.
    """
    before = {client: _put_aside(client) for client in _without_address()}
    try:
        yield
    finally:
        for client in _without_address():
            _close(client)
            _put_aside(client)
            _state(client).update(before.get(client, {}))


def _without_address() -> list[Any]:
    return [client for client in list(live_clients) if client._origin[0] is None]


def _put_aside(client: Any) -> dict[str, object]:
    """Take from a client what it has used so far, and give that back."""
    unused: dict[str, object] = {"_engines": {}, "_closed": False}
    state = _state(client)
    used = {name: state.pop(name) for name in ("_engine", *unused) if name in state}
    state.update(unused)
    return used


def _state(client: object) -> dict[str, object]:
    return vars(client)


def _close(client: Any) -> None:
    if isinstance(client, Client):
        client.close()
        return
    for loop in list(client._engines):
        if not (loop.is_closed() or loop.is_running() or asyncio._get_running_loop()):
            loop.run_until_complete(client.close())
    for engine in client._known_engines():
        engine.closed = True
        engine.background.abandon()
