"""Clients of the edges' tests: closed at the end, whatever the test did."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import pawlock
from tests.support.servers import Server


@pytest.fixture
def client(valkey: Server) -> Iterator[pawlock.Client]:
    """A client of threads on a server without keys."""
    valkey.command("FLUSHALL")
    with pawlock.connect(valkey.url) as client:
        yield client


@pytest.fixture
def other(valkey: Server) -> Iterator[pawlock.Client]:
    """Another client of the same server: for the server it is another process."""
    with pawlock.connect(valkey.url) as client:
        yield client


@pytest_asyncio.fixture
async def aclient(valkey: Server) -> AsyncIterator[pawlock.AsyncClient]:
    """A client of asyncio on a server without keys."""
    valkey.command("FLUSHALL")
    async with pawlock.connect_async(valkey.url) as client:
        yield client


@pytest_asyncio.fixture
async def aother(valkey: Server) -> AsyncIterator[pawlock.AsyncClient]:
    """Another client of asyncio of the same server."""
    async with pawlock.connect_async(valkey.url) as client:
        yield client
