"""What a lock of several masters does while a majority of them is gone, where its user wants it to go on."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

import pawlock
from tests.contract.redlock.apis import APIS, connect, done, nap, play
from tests.contract.redlock.conftest import FRESH, Cluster
from tests.support.pace import pace

BACK_SOON = pawlock.RedlockOptions(fresh=True, max_ttl=2)
"""Masters that restart count again after two seconds."""


@pytest.mark.parametrize("policy", ["local", "open", "raise"])
@pytest.mark.parametrize("api", APIS)
def test_a_majority_that_is_gone_costs_later_callers_one_try(
    own_three: Cluster, api: str, policy: str
) -> None:
    async def tried(lock: Any) -> str | None:
        """How the lock was granted; that it was not is ``"raise"``."""
        try:
            lease = await done(lock.acquire())
        except pawlock.QuorumNotReached as error:
            return "raise" if set(error.outcomes) == set(own_three.urls) else "not each is named"
        await done(lease.release())
        return str(lease.degraded) if lease.degraded else None

    async def scenario() -> None:
        client = connect(api, own_three.urls, redlock=BACK_SOON, ttl=2)
        lock = client.lock("d", on_unavailable=policy, unavailable_after=0.4)
        assert await tried(lock) is None
        for server in own_three.servers[:2]:
            server.kill()
        assert await tried(lock) == policy
        began = time.monotonic()
        for _ in range(10):
            assert await tried(lock) == policy
        assert time.monotonic() - began < pace() * 1.5
        for server in own_three.servers[:2]:
            server.restart(keep_data=False)
        end = time.monotonic() + pace() * 10
        while (found := await tried(lock)) is not None and time.monotonic() < end:
            await nap(api, 0.1)
        assert found is None, "it never came back"
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
        lock = client.lock("job", unavailable_after=0.2)

        async def awaited() -> str:
            return "ran"

        decorate: Any = lock
        job: Any = decorate(on_contended=policy)((lambda: "ran") if api == "threads" else awaited)
        for call in (job, lock.try_acquire, lambda: lock.acquire(timeout=0.3)):
            with pytest.raises(pawlock.BackendError) as caught:
                await done(call())
            assert isinstance(caught.value, pawlock.QuorumNotReached)
            assert not isinstance(caught.value, pawlock.NotAcquired)
        await done(client.close())

    play(api, scenario)


class _HandlerError(BaseException):
    pass


def test_row_12_a_handler_that_raises_while_a_connection_is_begun(
    own_three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master is asked again: after two such ends there is a majority all the same."""
    start = threading.Thread.start
    raised: list[str] = []

    def interrupted(thread: threading.Thread) -> None:
        here = threading.current_thread() is threading.main_thread()
        if not here or thread.name != "pawlock-meet" or len(raised) == 2:
            return start(thread)
        raised.append(thread.name)
        raise _HandlerError

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with own_three.client() as client:
        lock = client.lock("d", unavailable_after=0.5)
        while len(raised) < 2:
            with contextlib.suppress(_HandlerError):
                lock.acquire().release()
        with lock:
            pass
