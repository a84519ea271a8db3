"""Many namespaces on one instance."""

import asyncio

import pytest

import pawl
from pawl.service import spaces
from pawl.service.problems import Problem
from pawl.service.spaces import Spaces
from pawl.testing.servers import Server


async def test_a_namespace_that_nobody_asks_for_makes_room(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spaces, "_MOST_SPACES", 2)
    known = Spaces(server.url)
    first, second = known.of("a"), known.of("b")
    lease = await first.client.lock("x").acquire()
    with pytest.raises(Problem) as told:
        known.of("c")
    assert (told.value.status, told.value.retry_after) == (503, 60)
    monkeypatch.setattr(spaces, "_IDLE", 0.0)
    assert known.of("a") is first
    third = known.of("c")
    await asyncio.gather(*known._leaving)
    with pytest.raises(pawl.ClientClosed):
        await second.client.inspect("x")
    # Who waits there is not sent away.
    first.waiting["pawl:x"] = {}
    assert known.of("b") is not second
    assert known.of("a") is first
    await asyncio.gather(*known._leaving)
    with pytest.raises(pawl.ClientClosed):
        await third.client.inspect("x")
    lease.check()
    await lease.release()
    await known.close()
