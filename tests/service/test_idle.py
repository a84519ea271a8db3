"""The connections of a client of the service: what it does not need any more is closed in time."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable

import pytest

from pawlock.core.protocol.runtime import run
from pawlock.runtimes.http import HttpThreads
from pawlock.service.runner import Listening
from pawlock.topology.endpoint import Service
from pawlock.transport import http
from pawlock.transport.http import AsyncWire, Question

pytestmark = pytest.mark.slow


class Toy:
    """Answers all that is asked, and counts the connections."""

    def __init__(self) -> None:
        self.made = 0
        self.open = 0
        self.heads: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        self.open += 1
        body = json.dumps({"locks": []}).encode()
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                # So long that those who ask at once do not share a connection.
                await asyncio.sleep(0.01)
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        self.open -= 1
        writer.close()

    def service(self) -> Service:
        return Service("127.0.0.1", self.port, "token", secure=False, shown="http+pawlock://toy")


@pytest.fixture
async def toy() -> AsyncIterator[Toy]:
    one = Toy()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    yield one
    server.close()


async def eventually(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.01)


async def test_connections_that_many_tasks_needed_once_are_closed(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_IDLE", 0.3)
    wire = AsyncWire(toy.service(), None)
    await asyncio.gather(*(wire.ask(Question("/"), 10.0) for _ in range(30)))
    assert toy.made == toy.open == 30
    while toy.open > 1:
        # The one that is used meanwhile stays.
        await wire.ask(Question("/"), 10.0)
        assert len(toy.heads) < 1000, f"{toy.open} connections stay open"
    assert toy.made == 30
    await eventually(lambda: toy.open == 0, "it stays open although nothing is asked any more")
    await wire.ask(Question("/"), 10.0)
    assert (toy.made, toy.open) == (31, 1)
    wire.close()
    await eventually(lambda: toy.open == 0, "it stays open after the end")


async def test_a_thread_uses_no_connection_that_was_idle_for_long(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = HttpThreads(toy.service(), "pawlock")

    def ask() -> None:
        for _ in range(2):
            run(runtime.look_up("locks", {}, 10.0))
        assert toy.made == 1
        monkeypatch.setattr(http, "_IDLE", 0.0)
        time.sleep(0.01)
        run(runtime.look_up("locks", {}, 10.0))

    await asyncio.to_thread(ask)
    assert toy.made == 2
    await eventually(lambda: toy.open <= 1, "the one before stays open")
    runtime.shut_down(1.0)


def test_a_client_gives_a_connection_up_before_the_service_drops_it() -> None:
    listening = Listening("127.0.0.1", 0)
    try:
        assert listening.config(lambda *_: None).timeout_keep_alive > http._IDLE  # type: ignore[arg-type]
    finally:
        for listener in listening.listeners:
            listener.close()


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("::1", b"[::1]:8750"),
        ("fe80::1%eth0", b"[fe80::1]:8750"),
        ("10.0.0.7", b"10.0.0.7:8750"),
        ("a", b"a:8750"),
    ],
)
def test_the_host_is_named_as_http_wants_it(host: str, named: bytes) -> None:
    service = Service(host, 8750, "token", secure=False, shown="")
    assert b"\r\nHost: " + named + b"\r\n" in http._request(service, Question("/"))
