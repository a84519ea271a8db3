"""``on_unavailable="local"``: nobody waits for itself, for another server, or on with an answer that is out of date."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import pawlock
from pawlock import _fallback
from tests.contract.edges.helpers import eventually
from tests.contract.redlock.apis import connect, done, play
from tests.contract.unavailable.test_policies import each_api, nap
from tests.support.refusal import case
from tests.support.servers import Server

LOCAL: dict[str, Any] = {"on_unavailable": "local", "unavailable_after": 0.3, "ttl": 5}

Make = Callable[[Any], Any]

# What a thread or task takes, and what it takes inside of that; and whether it gets it.
PAIRS: dict[str, tuple[Make, Make, bool]] = {
    "lock": (lambda c: c.lock("n", **LOCAL), lambda c: c.lock("n", **LOCAL), False),
    "fair_lock": (lambda c: c.fair_lock("n", **LOCAL), lambda c: c.fair_lock("n", **LOCAL), False),
    "rlock": (lambda c: c.rlock("n", **LOCAL), lambda c: c.rlock("n", **LOCAL), True),
    "read in read": (lambda c: c.rwlock("n", **LOCAL).read, lambda c: c.rwlock("n", **LOCAL).read, True),
    "read in write": (lambda c: c.rwlock("n", **LOCAL).write, lambda c: c.rwlock("n", **LOCAL).read, True),
    "write in read": (lambda c: c.rwlock("n", **LOCAL).read, lambda c: c.rwlock("n", **LOCAL).write, False),
}


@pytest.fixture
def own() -> Iterator[Server]:
    """A server to be stopped."""
    with Server("valkey", persist=True) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    assert not kept()


def kept() -> list[Any]:
    """What anybody holds without a server."""
    return [lease for lease in list(_fallback._degraded) if lease.is_held()]


def in_thread(step: Callable[[], Any]) -> Future[Any]:
    """Run something in a thread that may hang."""
    ended: Future[Any] = Future()

    def run() -> None:
        try:
            ended.set_result(step())
        except BaseException as error:  # noqa: BLE001 - it belongs to the test
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


@each_api
def test_nobody_waits_for_itself(own: Server, api: str) -> None:
    async def scenario(outer: Make, inner: Make, beside: Make, *, granted: bool) -> None:
        client = connect(api, own.url)
        first = await done(outer(client).acquire())
        assert first.degraded == "local"
        if granted:
            second = await done(inner(client).acquire())
            assert second.degraded == "local"
            await done(second.release())
            assert first.state == "held"
        else:
            with pytest.raises(pawlock.AcquireTimeout):
                await done(inner(client).acquire(timeout=0.1))
        other = connect(api, own.url)
        assert await done(beside(other).try_acquire()) is None, "the outer one holds it all the while"
        await done(first.release())
        last = await done(beside(other).acquire())
        assert last.degraded == "local"
        await done(last.release())
        await done(client.close())
        await done(other.close())

    own.kill()
    for pair, (outer, inner, granted) in PAIRS.items():
        with case(pair):
            # Readers go together: a writer does not go beside them.
            beside = PAIRS["write in read"][1] if "read" in pair else outer
            ended = in_thread(lambda: play(api, lambda: scenario(outer, inner, beside, granted=granted)))
            ended.result(30)
            assert not kept()


@each_api
def test_permits_and_readers_are_counted_as_on_the_server(own: Server, api: str) -> None:
    async def scenario() -> None:
        own.kill()
        client, other = connect(api, own.url), connect(api, own.url)
        pool, theirs = (each.semaphore("n", permits=3, **LOCAL) for each in (client, other))
        first = await done(pool.acquire(2))
        second = await done(theirs.acquire(1))
        with pytest.raises(pawlock.AcquireTimeout):
            await done(pool.acquire(1, timeout=0.1))
        await done(first.release())
        await done((await done(theirs.acquire(2, timeout=1))).release())
        await done(second.release())
        book, copy = (each.rwlock("n", **LOCAL) for each in (client, other))
        reader = await done(book.read.acquire())
        assert reader.degraded == "local"
        assert await done(copy.write.try_acquire()) is None
        await done(reader.release())
        writer = await done(copy.write.acquire())
        await done(writer.downgrade())
        assert (writer.state, writer.writing) == ("held", False)
        await done(writer.release())
        await done(client.close())
        await done(other.close())

    play(api, scenario)


@each_api
def test_who_waited_behind_a_degraded_holder_asks_the_server(own: Server, api: str) -> None:
    async def scenario() -> None:
        own.kill()
        client = connect(api, own.url)
        lock = client.lock("job", **LOCAL)
        holder = await done(lock.acquire())
        assert holder.degraded == "local"
        # In a thread of its own, with its own loop: it asks while the server is down, and stands in the line.
        got: list[Any] = []

        async def behind() -> None:
            other = connect(api, own.url)
            lease = await done(other.lock("job", **LOCAL).acquire(timeout=20))
            got.append(lease.degraded)
            await done(lease.release())
            await done(other.close())

        waiting = in_thread(lambda: play(api, behind))
        await nap(api, 0.5)
        own.restart(keep_data=True)
        rival = connect(api, own.url)
        theirs = await done(rival.lock("job", ttl=10).acquire())
        await done(holder.release())
        await nap(api, 0.5)
        assert not got, "another process has it, and the server says so"
        await done(theirs.release())
        waiting.result(20)
        assert got == [None]
        await done(rival.close())
        await done(client.close())

    play(api, scenario)


@each_api
def test_a_degraded_holder_keeps_no_name_of_another_server(own: Server, api: str) -> None:
    async def scenario() -> None:
        with Server("valkey") as healthy:
            own.kill()
            there, here = connect(api, own.url), connect(api, healthy.url)
            held = await done(there.lock("job", **LOCAL).acquire())
            assert held.degraded == "local"
            lease = await done(here.lock("job", **LOCAL).acquire(timeout=5))
            assert lease.degraded is None
            await done(lease.release())
            await done(held.release())
            await done(here.close())
            await done(there.close())

    play(api, scenario)


@each_api
def test_a_fork_takes_no_degraded_lease_along(own: Server, api: str) -> None:
    async def scenario() -> None:
        own.kill()
        client = connect(api, own.url)
        lease = await done(client.lock("job", **LOCAL).acquire())
        # What the child does with it.
        _fallback._after_fork()
        assert lease.state == "lost"
        again = await done(client.lock("job", **LOCAL).try_acquire())
        assert again.degraded == "local"
        await done(again.release())
        await done(client.close())

    play(api, scenario)


class Stranger:
    """Something that is no Redis: it says hello in its own way, or asks for TLS."""

    def __init__(self, greeting: bytes) -> None:
        self._greeting = greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self._open.append(here)
                with suppress(OSError):
                    here.recv(1024)
                    here.sendall(self._greeting)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for sock in self._open:
            sock.close()


@each_api
@pytest.mark.parametrize("what", ["http", "plain port", "replica", "masters"])
def test_a_mistake_is_no_outage(own: Server, api: str, what: str) -> None:
    """Whoever names a wrong port, TLS where there is none, or a replica, is told so: a retry would never help."""
    with ExitStack() as stack:
        url: str | list[str]
        if what in {"http", "masters"}:
            hello = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
            strangers = [Stranger(hello) for _ in range(1 if what == "http" else 3)]
            for stranger in strangers:
                stack.callback(stranger.close)
            urls = [f"redis://127.0.0.1:{stranger.port}/0" for stranger in strangers]
            url = urls[0] if what == "http" else urls
        elif what == "plain port":
            url = own.url.replace("redis://", "rediss://")
        else:
            own.command("REPLICAOF", "127.0.0.1", "1")
            url = own.url

        async def scenario() -> None:
            client = connect(api, url)
            for policy in ("local", "open"):
                lock = client.lock("x", **{**LOCAL, "on_unavailable": policy})
                with case(policy), pytest.raises(pawlock.PawlockError) as caught:
                    await done(lock.acquire(timeout=5))
                assert not isinstance(caught.value, pawlock.AcquireTimeout), policy
            await done(client.close())

        play(api, scenario)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:lease of .* was never released:ResourceWarning")
def test_a_degraded_lease_that_a_signal_kept_from_its_caller_is_freed(own: Server) -> None:
    """Ctrl-C between the grant and the return of acquire: the lease is nobody's, and its name free again."""
    own.kill()
    with pawlock.connect(own.url) as client:
        lease = client.lock("x", **LOCAL).acquire()
        del lease
        # Since Python 3.13 the frames of redis-py that refer to their own errors keep those of all their callers.
        gc.collect()
        eventually(lambda: not kept(), "nobody has it")
        again = client.lock("x", **LOCAL).acquire(timeout=5)
        assert again.degraded == "local"
        again.release()


@each_api
def test_a_degraded_lease_that_max_hold_ended_is_left_when_the_server_is_back(own: Server, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, own.url)
        own.kill()
        lease = await done(client.lock("x", max_hold=0.2, **LOCAL).acquire())
        own.restart(keep_data=True)
        # A connection lives again, and nothing of the lease goes there.
        await done((await done(client.lock("y").acquire())).release())
        await nap(api, 0.3)
        with pytest.raises(pawlock.NotHeld):
            await done(lease.release())
        assert lease.lost
        await done(client.close())

    play(api, scenario)


BRIEF: dict[str, Any] = {**LOCAL, "ttl": 1.5}

GRANTED: dict[str, Make] = {
    "lock": lambda c: c.lock("n", **BRIEF),
    "not renewed": lambda c: c.lock("n", renew=False, **BRIEF),
    "permit": lambda c: c.semaphore("n", permits=1, **BRIEF),
    "write": lambda c: c.rwlock("n", **BRIEF).write,
}


@each_api
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in {"lock", "permit"})) for kind in GRANTED],
)
def test_what_the_server_granted_before_it_went_counts_until_its_end(
    own: Server, api: str, kind: str
) -> None:
    make = GRANTED[kind]

    async def scenario() -> None:
        client = connect(api, own.url)
        held = await done(make(client).acquire())
        own.kill()

        async def beside() -> None:
            # Another client, of another thread and loop.
            other = connect(api, own.url)
            with pytest.raises(pawlock.AcquireTimeout):
                await done(make(other).acquire(timeout=0.1))
            assert await done(make(other).try_acquire()) is None
            assert held.state in {"held", "suspect"}
            lease = await done(make(other).acquire())
            assert lease.degraded == "local"
            assert held.remaining() == 0.0
            await done(lease.release())
            await done(other.close())

        waiting = in_thread(lambda: play(api, beside))
        while not waiting.done():
            # The loop of the holder goes on: it learns of the loss.
            await nap(api, 0.02)
        waiting.result(0)
        await done(client.close(timeout=0.1))

    ended = in_thread(lambda: play(api, scenario))
    ended.result(30)


@each_api
def test_a_permit_of_the_same_client_counts_as_well(own: Server, api: str) -> None:
    async def scenario() -> None:
        client = connect(api, own.url)
        pool = client.semaphore("n", permits=1, **{**LOCAL, "ttl": 60})
        held = await done(pool.acquire())
        own.kill()
        got: list[Any] = []

        def beside() -> None:
            got.append(pool.try_acquire())

        if api == "threads":
            in_thread(beside).result(10)
        else:
            got.append(await asyncio.create_task(pool.try_acquire()))
        assert got == [None]
        held.check()
        own.restart(keep_data=True)
        await done(held.release())
        await done(client.close())

    play(api, scenario)
