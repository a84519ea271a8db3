"""Many namespaces on one instance."""

import asyncio

import pytest

import pawlock
from pawlock.service import spaces
from pawlock.service.problems import Problem
from pawlock.service.spaces import Spaces
from tests.support.servers import Server


@pytest.fixture
def known(server: Server, monkeypatch: pytest.MonkeyPatch) -> Spaces:
    """Room for two namespaces."""
    monkeypatch.setattr(spaces, "_MOST_SPACES", 2)
    return Spaces(server.url)


async def test_a_namespace_that_nobody_asks_for_makes_room(
    known: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = known.of("a"), known.of("b")
    lease = await first.client.lock("x").acquire()
    with pytest.raises(Problem) as told:
        known.of("c")
    assert (told.value.status, told.value.retry_after) == (503, 60)
    monkeypatch.setattr(spaces, "_IDLE", 0.0)
    assert known.of("a") is first
    third = known.of("c")
    await asyncio.gather(*known._leaving)
    with pytest.raises(pawlock.ClientClosed):
        await second.client.inspect("x")
    # Who waits there is not sent away.
    first.waiting = 1
    assert known.of("b") is not second
    assert known.of("a") is first
    await asyncio.gather(*known._leaving)
    with pytest.raises(pawlock.ClientClosed):
        await third.client.inspect("x")
    lease.check()
    await lease.release()
    await known.close()


async def test_a_watched_namespace_keeps_no_other_from_making_room(known: Spaces) -> None:
    watched, idle = known.of("a"), known.of("b")
    # The watch of the other one counts as a request each second.
    idle.used_at -= 61
    known.of("c")
    assert known.of("a") is watched
    await known.close()
