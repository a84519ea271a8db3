"""Many namespaces on one instance."""

import asyncio

import pytest

import pawlock
from pawlock.service import spaces
from pawlock.service.access import Principal
from pawlock.service.config import Limits
from pawlock.service.problems import Problem
from pawlock.service.spaces import Spaces
from tests.support.servers import Server


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
    with pytest.raises(pawlock.ClientClosed):
        await second.client.inspect("x")
    # Who waits there is not sent away.
    first.waiting["pawlock:x"] = {}
    assert known.of("b") is not second
    assert known.of("a") is first
    await asyncio.gather(*known._leaving)
    with pytest.raises(pawlock.ClientClosed):
        await third.client.inspect("x")
    lease.check()
    await lease.release()
    await known.close()


async def test_one_client_cannot_use_up_the_namespaces(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spaces, "_MOST_SPACES", 6)
    known = Spaces(server.url)
    greedy, other = (
        Principal(name, ("*",), frozenset(["acquire"]), Limits(namespaces=4)) for name in ("greedy", "other")
    )
    mine = [known.of(f"g{number}", greedy) for number in range(4)]
    for number in range(20):
        with pytest.raises(Problem) as told:
            known.of(f"more{number}", greedy)
        assert (told.value.status, told.value.code) == (429, "NAMESPACE_SHARE")
    assert known.of("theirs", other).namespace == "theirs"
    # One that is in use already counts for who came first.
    assert known.of("theirs", greedy).opened_by == "other"
    monkeypatch.setattr(spaces, "_IDLE", 0.0)
    assert known.of("more", greedy) not in mine
    await known.close()
