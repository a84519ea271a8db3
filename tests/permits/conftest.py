"""A client on a clean server."""

from collections.abc import Iterator

import pytest

import pawl
from pawl.testing.servers import Server


@pytest.fixture
def client(valkey: Server) -> Iterator[pawl.Client]:
    valkey.command("FLUSHALL")
    with pawl.connect(valkey.url) as client:
        yield client
