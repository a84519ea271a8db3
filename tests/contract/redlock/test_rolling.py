"""Masters that restart without their data under a lease: it lives as long as a majority of those that granted it keep it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import pawlock
from tests.contract.redlock.apis import APIS, connect, done, nap, play
from tests.contract.redlock.conftest import Cluster

pytestmark = pytest.mark.slow

TTL = 2.0
OPTIONS = pawlock.RedlockOptions(fresh=True, max_ttl=TTL)


async def restart(three: Cluster, api: str, number: int) -> None:
    """Restart a master without its data, beside the event loop if there is one; wait until it may vote again."""
    if api == "asyncio":
        await asyncio.to_thread(three.servers[number].restart, keep_data=False)
    else:
        three.servers[number].restart(keep_data=False)
    await nap(api, TTL * 1.5)


@pytest.mark.fault
@pytest.mark.parametrize("api", APIS)
def test_a_master_that_lost_its_vote_is_not_asked_for_another(own_three: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, own_three.urls, redlock=OPTIONS, ttl=TTL)
        other: Any = connect(api, own_three.urls, redlock=OPTIONS, ttl=TTL)
        lease = await done(client.lock("rolled").acquire())
        until = time.monotonic() + TTL
        while own_three.holders("rolled") != [lease.token.encode()] * 3 and time.monotonic() < until:
            await nap(api, 0.01)
        await restart(own_three, api, 0)
        assert own_three.holders("rolled") == [None, *[lease.token.encode()] * 2]
        lease.check()
        assert await done(other.lock("rolled").try_acquire()) is None
        await restart(own_three, api, 1)
        assert lease.state == "lost", "one master that granted it is no majority"
        found = await done(other.lock("rolled").acquire(timeout=10))
        assert found.fence > lease.fence
        await done(found.release())
        for one in (client, other):
            await done(one.close())

    play(api, scenario)
