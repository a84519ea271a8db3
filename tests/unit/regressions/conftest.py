"""Clients for the tests of mended defects; a test's name tells the defect."""

from collections.abc import Iterator

import pytest

import pawlock
from tests.support.servers import Server


@pytest.fixture
def client(valkey: Server) -> Iterator[pawlock.Client]:
    """A client of threads on a server without keys."""
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        yield client
