"""An error reply carries no id: after a lost reply nobody gets one that is another's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import pawlock
from tests.faults.rig import key
from tests.support.proxy import Proxy
from tests.support.servers import Server

pytestmark = pytest.mark.fault


async def outcomes(client: pawlock.AsyncClient, *names: str) -> list[Any]:
    """What looks that are sent in one go come to."""
    await client.inspect("warm")
    return await asyncio.gather(*[client.inspect(name) for name in names], return_exceptions=True)


def is_wrong(outcome: object, name: str) -> bool:
    return isinstance(outcome, pawlock.WrongKey) and outcome.name == name


def test_each_task_gets_its_own_error(proxy: Proxy, server: Server) -> None:
    server.command("LPUSH", key("bad"), "x")
    server.command("LPUSH", key("worse"), "x")

    async def scenario() -> None:
        async with pawlock.connect_async(proxy.url) as client:
            found = await outcomes(client, "bad", "good", "worse", "fine", "bad")
            assert is_wrong(found[0], "bad")
            assert is_wrong(found[2], "worse")
            assert is_wrong(found[4], "bad")
            assert [found[at].name for at in (1, 3)] == ["good", "fine"]

    asyncio.run(scenario())


@pytest.mark.parametrize("behind", [[], ["fine"]], ids=["last", "with one behind"])
def test_after_a_lost_reply_no_task_gets_the_error_of_another(
    proxy: Proxy, server: Server, behind: list[str]
) -> None:
    server.command("LPUSH", key("bad"), "x")

    async def scenario() -> None:
        async with pawlock.connect_async(proxy.url) as client:
            await client.inspect("warm")
            rule = proxy.swallow_reply(lambda request: request.contains("pawlock:good"))
            found = await outcomes(client, "good", "bad", *behind)
            assert rule.hits == 1
            assert [seen.name for seen in (found[0], *found[2:])] == ["good", *behind]
            assert is_wrong(found[1], "bad")

    asyncio.run(scenario())
