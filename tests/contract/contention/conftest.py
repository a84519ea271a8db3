"""Two clients of either API on a clean server: for the server they are two processes."""

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import pawlock
from tests.support.servers import Server


@pytest.fixture
def clients(valkey: Server) -> Iterator[list[pawlock.Client]]:
    valkey.command("FLUSHALL")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(pawlock.connect(valkey.url)) for _ in range(2)]


@pytest_asyncio.fixture
async def aclients(valkey: Server) -> AsyncIterator[list[pawlock.AsyncClient]]:
    valkey.command("FLUSHALL")
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(pawlock.connect_async(valkey.url)) for _ in range(2)]
