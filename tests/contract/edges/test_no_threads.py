"""The system has no thread left for a while, as under a limit of processes: nothing is held that nobody would renew."""

import threading
import time
from collections.abc import Iterator
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


class Refusal:
    """Refuses to start threads of pawlock, by the beginning of their names."""

    def __init__(self, names: str) -> None:
        self.names = names

    def end(self) -> None:
        """Let all of them start."""
        self.names = "none"


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """No thread of pawlock can be started until this is ended."""
    start, refusal = threading.Thread.start, Refusal("pawlock")

    def refuse(thread: threading.Thread) -> Any:
        if thread.name.startswith(refusal.names):
            raise RuntimeError("can't start new thread")
        return start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return refusal


def is_kept(server: Server, name: str) -> bool:
    """Whether anything of a lock is on the server."""
    return server.command("EXISTS", f"pawlock:{name}", f"{{pawlock:{name}}}:1:queue") != 0


def test_where_no_thread_can_renew_it_nothing_is_acquired(server: Server, no_threads: Refusal) -> None:
    server.command("FLUSHALL")
    with pawlock.connect(server.url, ttl=1.2) as client:
        for door in (
            lambda: client.lock("n").acquire(),
            lambda: client.lock("n").try_acquire(),
            lambda: client.semaphore("s", permits=1).acquire(),
            lambda: client.multi_lock(["n", "m"]).acquire(),
        ):
            with pytest.raises(pawlock.BackendUnavailable, match="no thread can renew the lease"):
                door()
        assert not client.inspect("n").held
        assert not is_kept(server, "n")
        no_threads.end()
        lease = client.lock("n").acquire(timeout=5)
        time.sleep(1.8)
        lease.release()


@pytest.mark.parametrize("policy", ["open", "local"])
def test_a_lack_of_threads_is_no_outage(server: Server, no_threads: Refusal, policy: Any) -> None:
    """The server is well: to go on without it would let two in."""
    server.command("FLUSHALL")
    with pawlock.connect(server.url, on_unavailable=policy, unavailable_after=0.2) as client:
        with pytest.raises(pawlock.BackendUnavailable, match="no thread"):
            client.lock("n").acquire()
        no_threads.end()
        with client.lock("n") as lease:
            assert lease.degraded is None


@pytest.mark.parametrize("policy", ["open", "local"])
async def test_a_lack_of_threads_is_no_outage_to_tasks(
    server: Server, no_threads: Refusal, policy: Any
) -> None:
    server.command("FLUSHALL")
    async with pawlock.connect_async(server.url, on_unavailable=policy, unavailable_after=0.2) as client:
        with pytest.raises(pawlock.BackendUnavailable, match="no thread"):
            await client.lock("n").acquire()
        no_threads.end()
        async with client.lock("n") as lease:
            assert lease.degraded is None


async def test_where_no_thread_can_renew_it_no_task_acquires_anything(
    server: Server, no_threads: Refusal
) -> None:
    server.command("FLUSHALL")
    async with pawlock.connect_async(server.url, ttl=1.2) as client:
        for door in (
            client.lock("n").acquire,
            client.lock("n").try_acquire,
            client.semaphore("s", permits=1).acquire,
            client.multi_lock(["n", "m"]).acquire,
        ):
            with pytest.raises(pawlock.BackendUnavailable, match="no thread can renew the lease"):
                await door()
        assert not (await client.inspect("n")).held
        assert not is_kept(server, "n")
        no_threads.end()
        lease = await client.lock("n").acquire(timeout=5)
        time.sleep(1.8)  # noqa: ASYNC251 - the thread renews
        await lease.release()


def test_what_cannot_be_kept_is_not_adopted(server: Server, no_threads: Refusal) -> None:
    no_threads.end()
    with pawlock.connect(server.url) as client, pawlock.connect(server.url) as other:
        ticket = client.lock("n").acquire().detach()
        no_threads.names = "pawlock"
        with pytest.raises(pawlock.BackendUnavailable, match="adopt 'n': no thread can renew the lease"):
            other.adopt(ticket)
        no_threads.end()
        other.adopt(ticket).release()


def upkeep_threads() -> int:
    return sum(thread.name == "pawlock-maintenance" for thread in threading.enumerate())


def test_no_thread_is_started_before_the_first_acquisition(server: Server) -> None:
    before = upkeep_threads()
    with pawlock.connect(server.url) as client:
        client.inspect("n")
        client.lock("n").locked()
        assert upkeep_threads() == before
        with client.lock("n"):
            assert upkeep_threads() == before + 1
    assert upkeep_threads() == before


async def test_no_thread_is_started_before_the_first_task_acquires(server: Server) -> None:
    before = upkeep_threads()
    async with pawlock.connect_async(server.url) as client:
        await client.inspect("n")
        await client.lock("n").locked()
        assert upkeep_threads() == before
        async with client.lock("n"):
            assert upkeep_threads() == before + 1
    assert upkeep_threads() == before


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


def is_free(lock: pawlock.Lock) -> bool:
    try:
        lock.acquire().release()
    except pawlock.PawlockError:
        return False
    return True


def test_a_node_that_no_thread_could_look_at_is_looked_at_again(
    no_threads: Refusal, masters: list[str]
) -> None:
    no_threads.names = "pawlock-meet"
    with pawlock.connect(masters, redlock=pawlock.RedlockOptions(fresh=True)) as client:
        lock = client.lock("a", unavailable_after=0.2)
        assert not is_free(lock)
        no_threads.end()
        end = time.monotonic() + 10
        while not is_free(lock):
            assert time.monotonic() < end, "no node is asked any more"
            time.sleep(0.05)


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
