"""All masters restart without their data, one after the other, under a lease: its renewals win the votes back."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from typing import Any, Self

import pytest

import pawlock
from tests.contract.redlock.apis import APIS, connect, done, nap, play
from tests.contract.redlock.conftest import Cluster

TTL = 2.0
PATIENCE = 30.0
"""Seconds for a master to count again and for a renewal to reach it: far more than the two take."""

OPTIONS = pawlock.RedlockOptions(fresh=True, max_ttl=TTL)


class Contender:
    """Another client that tries all the time, in a thread of its own.

    Args:
        urls: The masters.
        name: What it tries to get.
    """

    def __init__(self, urls: list[str], name: str) -> None:
        self.tries = 0
        self.got: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(urls, name))

    def _run(self, urls: list[str], name: str) -> None:
        with pawlock.connect(urls, redlock=OPTIONS, ttl=TTL) as client:
            while not self._over.wait(0.005):
                self.tries += 1
                try:
                    lease = client.lock(name).try_acquire()
                except pawlock.QuorumNotReached:
                    # While one master restarts and another is not asked yet, this client may reach too few.
                    continue
                if lease is not None:
                    self.got.append(lease.fence)
                    lease.release()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


async def elsewhere(api: str, act: Any) -> None:
    """Do what blocks, beside the event loop if there is one."""
    if api == "asyncio":
        await asyncio.to_thread(act)
    else:
        act()


async def roll(three: Cluster, api: str, turns: int) -> None:
    """Restart each master in turn, as soon as the one before has the holder's token again."""
    with ExitStack() as stack:
        client = connect(api, three.urls, redlock=OPTIONS, ttl=TTL)
        lease = await done(client.lock("rolled").acquire())
        contender = stack.enter_context(Contender(three.urls, "rolled"))
        for turn in range(turns):
            for number, server in enumerate(three.servers):
                tried = contender.tries
                await elsewhere(api, lambda server=server: server.restart(keep_data=False))
                until = time.monotonic() + PATIENCE
                while three.holders("rolled") != [lease.token.encode()] * 3 and time.monotonic() < until:
                    lease.check()
                    await nap(api, 0.02)
                assert three.holders("rolled") == [lease.token.encode()] * 3, (turn, number)
                while contender.tries < tried + 2 and time.monotonic() < until:
                    await nap(api, 0.02)
                assert contender.tries >= tried + 2, "the other client tries"
                assert not contender.got, "nobody else has it meanwhile"
        lease.check()
        fence = lease.fence
        await done(lease.release())
        until = time.monotonic() + PATIENCE
        while not contender.got and time.monotonic() < until:
            await nap(api, 0.02)
        assert contender.got, "a name that was given back is granted"
        assert contender.got[0] > fence
        await done(client.close())


@pytest.mark.fault
@pytest.mark.parametrize("api", APIS)
def test_a_lease_outlives_a_restart_of_all_masters(own_three: Cluster, api: str) -> None:
    play(api, lambda: roll(own_three, api, 1))


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("api", APIS)
def test_a_lease_outlives_two_restarts_of_all_masters(own_three: Cluster, api: str) -> None:
    play(api, lambda: roll(own_three, api, 2))
