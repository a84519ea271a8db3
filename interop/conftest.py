"""Clients of other libraries, for the tests that share a key with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import pawlock
from interop.kinds import KINDS, REQUIRED, missing
from interop.line import Driver
from tests.conftest import own_server, pytest_plugins, server, shared_server, valkey
from tests.support.servers import Server

__all__ = ["own_server", "pytest_plugins", "server", "shared_server", "valkey"]

Start = Callable[..., Driver]


def wanted(*names: str) -> None:
    """Skip the test where one of these kinds cannot run; fail it where none may be skipped."""
    for name in names:
        if reason := missing(KINDS[name]):
            if REQUIRED:
                pytest.fail(f"{name}: {reason}, and PAWLOCK_INTEROP=require")
            pytest.skip(reason)


def pttl(server: Server, key: str) -> int:
    """Milliseconds that a key has left."""
    found = server.command("PTTL", key)
    assert isinstance(found, int)
    return found


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    """Start the driver of a kind on the server of the test; it ends with the test."""
    with ExitStack() as stack:

        def begin(name: str, **environ: str) -> Driver:
            wanted(name)
            return stack.enter_context(Driver(KINDS[name], server.url, **environ)).ready()

        yield begin


@pytest.fixture
def client(server: Server) -> Iterator[pawlock.Client]:
    """A client whose lock names are the keys."""
    with pawlock.connect(server.url, namespace="") as client:
        yield client
