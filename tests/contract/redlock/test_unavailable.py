"""What a lock of several masters does while a majority of them is gone, where its user wants it to go on."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from typing import Any

import pytest

import pawlock
from tests.contract.redlock.apis import APIS, connect, done, nap, play
from tests.contract.redlock.conftest import FRESH, Cluster
from tests.support.pace import pace


@pytest.mark.parametrize("policy", ["local", "open"])
@pytest.mark.parametrize("api", APIS)
def test_it_goes_on_without_a_majority_at_no_cost_and_comes_back(
    own_three: Cluster, api: str, policy: str
) -> None:
    async def scenario() -> None:
        client = connect(api, own_three.urls, redlock=FRESH, ttl=2)
        lock = client.lock("d", on_unavailable=policy, unavailable_after=0.4)
        await done((await done(lock.acquire())).release())
        with own_three.servers[0].paused(), own_three.servers[1].paused():
            first = await done(lock.acquire())
            assert first.degraded == policy
            await done(first.release())
            # Masters that hang are known by then: nobody waits for them.
            began = time.monotonic()
            for _ in range(20):
                lease = await done(lock.acquire())
                assert lease.degraded == policy
                await done(lease.release())
            assert time.monotonic() - began < pace() * 0.4
            with pytest.raises(pawlock.PawlockError):
                await done(client.lock("other").acquire(timeout=0.3))
        for _ in range(100):
            lease = await done(lock.acquire())
            degraded = lease.degraded
            await done(lease.release())
            if degraded is None:
                break
            await nap(api, 0.1)
        else:
            raise AssertionError("it never came back")
        await done(client.close())

    play(api, scenario)


@pytest.mark.parametrize("api", APIS)
def test_a_majority_that_is_gone_is_not_waited_for_again(own_three: Cluster, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, own_three.urls, redlock=FRESH, ttl=2)
        lock = client.lock("d", unavailable_after=0.4)
        await done((await done(lock.acquire())).release())
        with own_three.servers[0].paused(), own_three.servers[1].paused():
            for number in range(20):
                began = time.monotonic()
                with pytest.raises(pawlock.QuorumNotReached) as caught:
                    await done(lock.acquire())
                if number > 1:
                    # Masters that hang are known by then.
                    assert time.monotonic() - began < pace() * 0.2
                assert set(caught.value.outcomes) == set(own_three.urls)
        for _ in range(100):
            try:
                lease = await done(lock.acquire(timeout=5))
            except pawlock.QuorumNotReached:
                await nap(api, 0.1)
                continue
            await done(lease.release())
            break
        else:
            raise AssertionError("it never came back")
        await done(client.close())

    play(api, scenario)


@pytest.mark.parametrize("api", APIS)
def test_a_database_that_there_is_not_is_told(five: Cluster, api: str) -> None:
    async def scenario() -> None:
        urls = [url.removesuffix("/0") + "/99" for url in five.urls]
        client = connect(api, urls, redlock=FRESH)
        with pytest.raises(pawlock.NotSupported, match="no such database"):
            await done(client.lock("x").acquire(timeout=3))
        await done(client.close())

    play(api, scenario)


DEAD = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("policy", ["skip", "raise", "wait"])
def test_masters_that_are_gone_are_never_somebody_else(api: str, policy: str) -> None:
    """Neither a function that is skipped while the name is held, nor ``except NotAcquired``, confuses the two."""

    async def scenario() -> None:
        client = connect(api, DEAD, redlock=FRESH)
        lock = client.lock("job", on_contended=policy, unavailable_after=0.2)

        async def awaited() -> str:
            return "ran"

        job: Any = lock((lambda: "ran") if api == "threads" else awaited)
        for call in (job, lock.try_acquire, lambda: lock.acquire(timeout=0.3)):
            with pytest.raises(pawlock.BackendError) as caught:
                await done(call())
            assert isinstance(caught.value, pawlock.QuorumNotReached)
            assert not isinstance(caught.value, pawlock.NotAcquired)
        await done(client.close())

    play(api, scenario)


class _HandlerError(BaseException):
    pass


@pytest.mark.parametrize("api", APIS)
def test_row_12_a_handler_that_raises_while_a_connection_is_begun(
    own_three: Cluster, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master is asked again: after two such ends there is a majority all the same."""
    start = threading.Thread.start
    raised: list[str] = []

    def interrupted(thread: threading.Thread) -> None:
        if thread.name != "pawlock-meet" or len(raised) == 2:
            return start(thread)
        raised.append(thread.name)
        raise _HandlerError

    async def scenario() -> None:
        client = connect(api, own_three.urls, redlock=FRESH)
        lock = client.lock("d", unavailable_after=0.5)
        while len(raised) < 2:
            # In asyncio it may reach the task that looks at all masters at first, and not the caller.
            with contextlib.suppress(_HandlerError):
                await done((await done(lock.acquire())).release())
        lease = await done(lock.acquire())
        assert None not in own_three.holders("d")
        await done(lease.release())
        await done(client.close())

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    play(api, scenario)
    # asyncio reports of that task here, and not in the middle of something else.
    gc.collect()
