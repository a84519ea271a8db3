"""An asyncio lease belongs to the event loop in which it was acquired."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import pawlock
from tests.support.servers import Server

Refused = Callable[[], Awaitable[object]]


async def _of_a_lock(client: pawlock.AsyncClient) -> tuple[pawlock.AsyncLease, list[Refused], Refused]:
    lease = await client.lock("x").acquire()
    return lease, [lease.release, lambda: lease.extend(60), lease.__aenter__], lease.release


async def _of_a_writer(client: pawlock.AsyncClient) -> tuple[pawlock.AsyncLease, list[Refused], Refused]:
    lease = await client.rwlock("x").write.acquire()
    return lease, [lease.release, lambda: lease.extend(60), lease.downgrade, lease.__aenter__], lease.release


async def _of_several(client: pawlock.AsyncClient) -> tuple[pawlock.AsyncMultiLease, list[Refused], Refused]:
    lease = await client.multi_lock(["x", "y"]).acquire()
    return lease, [lease.release, lambda: lease.extend(60), lease.__aenter__], lease.release


async def _of_once(client: pawlock.AsyncClient) -> tuple[pawlock.AsyncLease, list[Refused], Refused]:
    start = await client.once("x").begin()
    assert isinstance(start, pawlock.AsyncStarted)
    return start.lease, [start.finish, start.abandon], start.abandon


async def _of_an_election(client: pawlock.AsyncClient) -> tuple[pawlock.AsyncLease, list[Refused], Refused]:
    election = client.election("x")
    lease = await election.campaign()
    return lease, [election.resign, lease.__aenter__], election.resign


async def _of_the_service(client: pawlock.AsyncClient) -> tuple[Any, list[Refused], Refused]:
    service = client.service()
    holder = await service.acquire("x", identifier="me")
    (lease,) = service._book.holds("x", holder)

    def release() -> Awaitable[object]:
        return service.release("x", holder)

    return lease, [release], release


MADE = [_of_a_lock, _of_a_writer, _of_several, _of_once, _of_an_election, _of_the_service]


@pytest.mark.parametrize("made", MADE)
def test_another_loop_is_refused_and_changes_nothing(server: Server, made: Callable[..., Any]) -> None:
    server.command("FLUSHALL")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def there(step: object) -> Any:
        return asyncio.run_coroutine_threadsafe(step, loop).result(10)  # type: ignore[arg-type]  # a coroutine

    async def here(step: Refused) -> None:
        await step()

    try:
        client = pawlock.connect_async(server.url)
        lease, refused, end = there(made(client))
        for step in refused:
            with pytest.raises(pawlock.NotSupported, match="another event loop"):
                asyncio.run(here(step))
        assert lease.state == "held"
        assert getattr(lease, "writing", True)
        there(end())
        there(client.close())
        assert lease.state == "released"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
