"""Masters that are far away, or become slow: a free name is granted, and never said to be held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import pawlock
from tests.contract.redlock.apis import APIS, connect, done, play
from tests.contract.redlock.conftest import FRESH, Cluster, cluster
from tests.support.pace import pace
from tests.support.proxy import Proxy

DELAYS = (0.0, 0.04, 0.07, 0.15, 0.4)
KINDS = ("lock", "rlock", "multi_lock")
_SPAN = 40.0
"""Seconds that one of the slow tests may spend on waiting for masters, at most."""


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Three servers for a module."""
    yield from cluster(3)


def made(client: Any, kind: str, name: str) -> Any:
    """A lock of a kind."""
    return client.multi_lock([name, f"{name}.2"]) if kind == "multi_lock" else getattr(client, kind)(name)


async def tried(three: Cluster, api: str, kind: str, delay: float, tries: int) -> None:
    """Try free names from masters that answer so late from one moment on."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(server)) for server in three.servers]
        client = connect(api, [proxy.url for proxy in proxies], redlock=FRESH)
        await done((await done(made(client, kind, "warm").acquire())).release())
        for proxy in proxies:
            proxy.delay(replies=delay)
        for number in range(tries):
            lock = made(client, kind, f"{kind}{delay}.{api}.{number}")
            lease = await done(lock.try_acquire())
            assert lease is not None, "nobody has it"
            await done(lease.release())
        await done(client.close())


@pytest.mark.parametrize(("kind", "delay"), [("lock", 0.07), ("multi_lock", 0.07), ("rlock", 0.15)])
@pytest.mark.parametrize("api", APIS)
def test_a_free_name_is_granted_however_late_the_masters_answer(
    three: Cluster, api: str, kind: str, delay: float
) -> None:
    """On virtual time, with every kind, in ``simulation/test_late_masters.py``."""
    play(api, lambda: tried(three, api, kind, delay, 1))


@pytest.mark.slow
@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("api", APIS)
def test_a_free_name_is_granted_each_time(three: Cluster, api: str, kind: str, delay: float) -> None:
    play(api, lambda: tried(three, api, kind, delay, min(200, int(_SPAN / (2.5 * delay + 0.01)))))


@pytest.mark.parametrize("api", APIS)
def test_votes_that_come_too_late_are_missing_and_not_held(three: Cluster, api: str) -> None:
    """What an attempt came to is decided before its late votes are in."""

    async def scenario() -> None:
        with ExitStack() as stack:
            proxies = [stack.enter_context(Proxy(server)) for server in three.servers]
            options = pawlock.RedlockOptions(fresh=True, node_timeout=0.05)
            client = connect(api, [proxy.url for proxy in proxies], redlock=options)
            await done((await done(client.lock("warm").acquire())).release())
            for proxy in proxies:
                proxy.delay(replies=0.09 * pace())
            for number in range(4):
                lock = client.lock(f"late.{api}.{number}", unavailable_after=0.5)
                with pytest.raises(pawlock.QuorumNotReached):
                    await done(lock.acquire(timeout=0.3) if number % 2 else lock.try_acquire())
            await done(client.close())

    play(api, scenario)
