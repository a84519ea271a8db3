"""A client on a clean server."""

from collections.abc import Iterator

import pytest

import pawlock
from tests.support.servers import Server


@pytest.fixture
def client(valkey: Server) -> Iterator[pawlock.Client]:
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        yield client
