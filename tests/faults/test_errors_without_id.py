"""An error reply carries no id: after a lost reply nobody gets one that is another's."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

import pawlock
from pawlock.core.protocol.outcomes import Granted
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.runtimes.threads import run
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


@pytest.mark.parametrize("behind", [0, 1])
def test_after_a_lost_reply_no_call_of_a_batch_gets_the_error_of_another(
    proxy: Proxy, server: Server, behind: int
) -> None:
    server.command("LPUSH", key("bad"), "x")
    with pawlock.connect(proxy.url) as client:
        leases = [client.lock(name).acquire() for name in ("good", "bystander")[: 1 + behind]]
        bad = cast("Any", client.lock("bad"))._plan.primitive
        calls = [
            lease._record.server_lease.primitive.renew(lease.token, 30_000, 3000, "") for lease in leases
        ]
        calls.insert(1, bad.renew("x" * 22, 30_000, 3000, ""))
        proxy.swallow_reply(lambda request: request.contains("pawlock:good"))
        first, second, *rest = run(client._engine.runtime.call_many(calls, 0.5))
        for outcome in (first, second):
            assert isinstance(outcome, Fault)
            assert outcome.kind is FaultKind.UNANSWERED
        assert [type(outcome) for outcome in rest] == [Granted] * behind
