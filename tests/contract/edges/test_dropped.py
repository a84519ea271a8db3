"""A client that is dropped after an error goes at once, with its threads, and nothing of it waits for a collection.

An error that something keeps which its own traceback refers to would keep all frames below it: the client, its engine,
its connections, and the thread that serves it, until Python next looks for cycles, and that may be never.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from weakref import ref

import pytest
import redis

import pawlock
from tests.contract.edges.helpers import eventually, started_threads
from tests.support.servers import Server, free_port

APIS = ("threads", "asyncio")

PATIENCE = 0.3
"""Seconds until a server that gives no answer is an error."""

AFTER = 0.1
"""Seconds until a waiter looks for a deadlock."""

# Where the server can be used its connection is left to the loop, of which asyncio itself complains, rightly.
left_open = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning"
)


class Wrong(redis.CredentialProvider):
    """Gives a password that is not the server's."""

    def get_credentials(self) -> tuple[str, str]:
        return "default", "wrong"


class Failing(redis.CredentialProvider):
    """Has none to give."""

    def get_credentials(self) -> tuple[str, str]:
        raise ValueError("no password today")


class Places:
    """Addresses at which something is wrong.

    Attributes:
        plain: A server that can be used.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.plain: Server = stack.enter_context(Server("valkey"))
        locked = stack.enter_context(Server("valkey", args=["--requirepass", "right"]))
        good, behind = f"127.0.0.1:{self.plain.port}", f"127.0.0.1:{locked.port}"
        nobody = f"127.0.0.1:{free_port()}"
        other, silent, closing = [
            self._listener(stack, answer) for answer in (b"HTTP/1.1 400\r\n", None, b"")
        ]
        self.targets: dict[str, Any] = {
            "refused login": f"redis://:wrong@{behind}",
            "no login": f"redis://{behind}",
            "unreachable": f"redis://{nobody}",
            "no socket": "unix:///nowhere/at/all.sock",
            "no server in a folder": "embedded:///proc/nowhere",
            "not Redis": f"redis://{other}",
            "silent": f"redis://{silent}",
            "closed": f"redis://{closing}",
            "no TLS": f"rediss://{good}",
            "TLS, unreachable": f"rediss://{nobody}",
            "TLS, closed": f"rediss://{closing}",
            "no such database": f"redis://{good}/99",
            "refused provider": redis.Redis(port=locked.port, credential_provider=Wrong()),
            "failed provider": redis.Redis(port=locked.port, credential_provider=Failing()),
            "cluster, refused login": f"redis+cluster://:wrong@{behind}",
            "cluster, unreachable": f"redis+cluster://{nobody}",
            "cluster, silent": f"redis+cluster://{silent}",
            "no cluster": f"redis+cluster://{good}",
            "Sentinel, refused login": f"redis+sentinel://{behind}/service",
            "Sentinel, unreachable": f"redis+sentinel://{nobody}/service",
            "Sentinel, silent": f"redis+sentinel://{silent}/service",
            "no Sentinel": f"redis+sentinel://{good}/service",
            "masters, refused login": [f"redis://:wrong@{behind}/{db}" for db in range(3)],
        }

    def _listener(self, stack: ExitStack, answer: bytes | None) -> str:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        if answer is not None:
            thread = threading.Thread(target=self._serve, args=(listener, answer), name="stub")
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
        return f"127.0.0.1:{listener.getsockname()[1]}"

    @staticmethod
    def _serve(listener: socket.socket, answer: bytes) -> None:
        """Answer once, and hang up."""
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                sock.recv(4096)
                sock.sendall(answer)


TARGETS = (
    "refused login", "no login", "unreachable", "no socket", "no server in a folder", "not Redis", "silent", "closed",
    "no TLS", "TLS, unreachable", "TLS, closed", "no such database", "refused provider", "failed provider",
    "cluster, refused login", "cluster, unreachable", "cluster, silent", "no cluster",
    "Sentinel, refused login", "Sentinel, unreachable", "Sentinel, silent", "no Sentinel",
    "masters, refused login",
)  # fmt: skip

Use = Callable[[Any], Any]
"""Uses a client of either API; what it returns is awaited if that is to be."""

USES: dict[str, Use] = {
    "try": lambda client: client.lock("n").try_acquire(),
    "no time": lambda client: client.lock("n").acquire(timeout=0.05),
    "semaphore": lambda client: client.semaphore("s", permits=2).acquire(),
    "rwlock": lambda client: client.rwlock("rw").read.acquire(),
    "multi": lambda client: client.multi_lock(["a", "b"]).acquire(),
    "latch": lambda client: client.latch("l", 2).wait(timeout=0.3),
    "barrier": lambda client: client.barrier("b", 2).wait(timeout=0.3),
    "once": lambda client: client.once("o").begin(),
    "election": lambda client: client.election("e").leader(),
    "inspect": lambda client: client.inspect("n"),
    "locks": lambda client: client.locks(),
    "ping": lambda client: client.ping(),
    "force": lambda client: client.force_release("n", reason="a test"),
}

HELD: dict[str, Use] = {
    "held": lambda client: client.lock("held").acquire(timeout=0.05),
    "another kind": lambda client: client.lock("list").acquire(),
    "another limit": lambda client: client.semaphore("three", permits=2).acquire(),
    "not held": lambda client: client.release("n", "x@h:1/t"),
}


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    """All of them."""
    with ExitStack() as stack:
        yield Places(stack)


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """Only the last reference ends anything."""
    gc.disable()
    yield
    gc.enable()


class Left:
    """What is left of clients that were dropped."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._before = set(threading.enumerate())
        self._clients: list[ref[object]] = []
        self._engines: list[ref[object]] = []

    def watch(self, client: pawlock.Client | pawlock.AsyncClient) -> None:
        """Watch it from now on."""
        self._clients.append(ref(client))
        self._engines += map(ref, client._known_engines())

    def nothing(self) -> bool:
        """Whether all is gone: an engine ends with its thread, which has the client in use now and then."""
        assert self._engines
        threads = [one for one in threading.enumerate() if one not in self._before and "pawlock" in one.name]
        return not threads and not [one for one in self._clients + self._engines if one() is not None]


def dropped(api: str, target: object, use: Use) -> str:
    """Use a client that fails, drop it, and see that nothing of it is left; what failed."""
    left = Left()

    def in_thread() -> None:
        client = pawlock.connect(target, unavailable_after=PATIENCE, deadlock_after=AFTER)
        try:
            use(client)
        except pawlock.PawlockError as error:
            left.errors.append(type(error).__name__)
        left.watch(client)

    async def in_task() -> None:
        client = pawlock.connect_async(target, unavailable_after=PATIENCE, deadlock_after=AFTER)
        try:
            begun = use(client)
            if inspect.isawaitable(begun):
                await begun
        except pawlock.PawlockError as error:
            left.errors.append(type(error).__name__)
        left.watch(client)

    async def main() -> None:
        await in_task()
        # What ended is told in the next turns of the loop.
        await asyncio.sleep(0.001)
        await asyncio.to_thread(eventually, left.nothing, "all of it goes", timeout=3.0)

    if api == "asyncio":
        asyncio.run(main())
    else:
        in_thread()
        eventually(left.nothing, "all of it goes", timeout=3.0)
    (error,) = left.errors
    return error


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("place", TARGETS)
def test_a_server_that_cannot_be_used(places: Places, place: str, api: str) -> None:
    error = dropped(api, places.targets[place], lambda client: client.lock("n").acquire())
    assert (error == "BackendDenied") == (place == "no login" or "refused" in place)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("place", ["refused login", "unreachable"])
@pytest.mark.parametrize("use", USES)
def test_whatever_is_asked(places: Places, place: str, use: str, api: str) -> None:
    error = dropped(api, places.targets[place], USES[use])
    assert error == ("BackendDenied" if place == "refused login" else "BackendUnavailable")


@left_open
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("use", HELD)
def test_what_the_server_refuses(places: Places, use: str, api: str) -> None:
    places.plain.command("FLUSHALL")
    places.plain.command("RPUSH", "pawlock:list", "x")
    with pawlock.connect(places.plain.url) as holder:
        lease = holder.lock("held").acquire()
        one_of_three = holder.semaphore("three", permits=3).acquire()
        assert dropped(api, places.plain.url, HELD[use])
        one_of_three.release()
        lease.release()
    gc.collect()


@left_open
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("names", [["mine"], ["mine", "too"]], ids=["one", "several"])
def test_a_lease_that_was_lost(places: Places, names: list[str], api: str) -> None:
    places.plain.command("FLUSHALL")

    def in_thread(client: pawlock.Client) -> None:
        with client.multi_lock(names, ttl=0.6) if names[1:] else client.lock(names[0], ttl=0.6) as lease:
            places.plain.command("FLUSHALL")
            assert lease.lost.wait(10)

    async def in_task(client: pawlock.AsyncClient) -> None:
        async with client.multi_lock(names, ttl=0.6) if names[1:] else client.lock(names[0], ttl=0.6):
            places.plain.command("FLUSHALL")
            await asyncio.sleep(10)

    assert dropped(api, places.plain.url, in_task if api == "asyncio" else in_thread) == "LeaseLost"
    gc.collect()


@left_open
@pytest.mark.parametrize("api", APIS)
def test_a_deadlock(places: Places, api: str) -> None:
    """It is told of by the maintenance, through what the waiter has."""
    server, go = places.plain, threading.Event()
    server.command("FLUSHALL")

    def take_the_other_way() -> None:
        go.wait(10)
        with (
            pawlock.connect(server.url, deadlock_after=AFTER) as other,
            other.lock("b"),
            other.lock("a", timeout=20),
        ):
            pass

    def it_waits() -> None:
        go.set()
        eventually(lambda: server.command("EXISTS", "{pawlock:a}:1:queue") == 1, "the other one waits")

    def in_thread(client: pawlock.Client) -> None:
        with client.lock("a"):
            it_waits()
            client.lock("b").acquire(timeout=20)

    async def in_task(client: pawlock.AsyncClient) -> None:
        async with client.lock("a"):
            await asyncio.to_thread(it_waits)
            await client.lock("b").acquire(timeout=20)

    with started_threads(take_the_other_way):
        assert dropped(api, server.url, in_task if api == "asyncio" else in_thread) == "DeadlockDetected"
    gc.collect()
