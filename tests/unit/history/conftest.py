"""A server without keys for each test."""

import pytest

from tests.support.servers import Server


@pytest.fixture
def clean(valkey: Server) -> Server:
    valkey.command("FLUSHALL")
    return valkey
