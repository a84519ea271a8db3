"""The system has no thread left for a while, as under a limit of processes: what is due is done once it has one."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pawlock
from tests.support.servers import Server


@pytest.fixture
def masters() -> Iterator[list[str]]:
    """The addresses of three independent servers."""
    servers = [Server("valkey", unix=False).start() for _ in range(3)]
    yield [one.url for one in servers]
    for one in servers:
        one.stop()


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """No thread of pawlock can be started until this is called."""
    start, full = threading.Thread.start, True

    def refuse(thread: threading.Thread) -> Any:
        if full and thread.name.startswith("pawlock"):
            raise RuntimeError("can't start new thread")
        return start(thread)

    def enough() -> None:
        nonlocal full
        full = False

    monkeypatch.setattr(threading.Thread, "start", refuse)
    yield enough
    enough()


@pytest.mark.filterwarnings("ignore:lease of 'dropped' was never released")
@pytest.mark.parametrize("first", ["another", "the same"])
def test_leases_are_looked_after_once_a_thread_can_be_started(
    server: Server, no_threads: Callable[[], None], first: str
) -> None:
    with pawlock.connect(server.url, ttl=0.6) as client, ThreadPoolExecutor(1) as other:
        lease = client.lock("kept").acquire()
        client.lock("dropped").acquire()
        no_threads()
        if first == "another":
            client.lock("another").acquire(timeout=5).release()
        # Held by nobody any more: it waits in the client itself.
        other.submit(lambda: client.lock("dropped").acquire(timeout=5).release()).result()
        if first == "another":
            time.sleep(0.7)
            lease.check()
            lease.release()


def test_a_loss_is_reported_where_no_thread_is_left_for_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, told = threading.Thread.start, threading.Event()

    def refuse(thread: threading.Thread) -> Any:
        if thread.name == "pawlock-on-lost":
            raise RuntimeError("can't start new thread")
        return start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pawlock.connect(server.url) as client:
        lock = client.lock("short", ttl=0.1, renew=False, on_lost=lambda _: told.set())
        lease = lock.acquire()
        assert told.wait(10)
        assert lease.lost


async def is_free(lock: pawlock.AsyncLock) -> bool:
    try:
        await (await lock.acquire()).release()
    except pawlock.PawlockError:
        return False
    return True


async def test_a_node_that_no_thread_could_look_at_is_looked_at_again(
    no_threads: Callable[[], None], masters: list[str]
) -> None:
    async with pawlock.connect_async(masters, redlock=pawlock.RedlockOptions(fresh=True)) as client:
        lock = client.lock("a", unavailable_after=0.2)
        with pytest.raises(pawlock.PawlockError, match="can't start new thread"):
            await lock.acquire()
        no_threads()
        end = time.monotonic() + 10
        while not await is_free(lock):
            assert time.monotonic() < end, "no node is asked any more"
            await asyncio.sleep(0.05)


def test_what_a_handler_raises_while_a_thread_starts_is_raised(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It falls into the wait for the new thread, whose lock Python then gives back twice."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "pawlock-maintenance":
            try:
                raise KeyboardInterrupt
            finally:
                threading.Lock().release()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pawlock.connect(server.url) as client, pytest.raises(KeyboardInterrupt):
        client.lock("n").acquire()
