"""Who takes nothing of what is written for it: its connection ends, and what waits for it is one picture at most."""

import asyncio
import contextlib
import http.client
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from pawlock.service import connections
from tests.service.rig import Instance, Tokens

pytestmark = pytest.mark.slow
NS = "/v1/ns/pawlock"
MIB = 1024 * 1024


def _app(size: int) -> Callable[..., Any]:
    async def app(scope: object, receive: object, send: Callable[..., Any]) -> None:
        del scope, receive
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"a" * size})

    return app


@contextlib.asynccontextmanager
async def _asked(size: int, ending: str) -> AsyncIterator[tuple[socket.socket, Callable[[], bool]]]:
    """A client that has asked for so much; and whether its connection has come to its end at the service."""
    state, made = ServerState(), []
    config = uvicorn.Config(_app(size), log_level="error")
    config.load()

    def connect() -> asyncio.Protocol:
        made.append(connections.Connection(config, state, {}))  # type: ignore[call-arg]
        return made[-1]

    listener = socket.create_server(("127.0.0.1", 0))
    # What the system itself would keep for the client must be less than any of the answers.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    server = await asyncio.get_running_loop().create_server(connect, sock=listener)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(listener.getsockname())
    client.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nConnection: {ending}\r\n\r\n".encode())
    client.setblocking(False)
    try:
        yield client, lambda: bool(made and state.total_requests and not state.connections)
    finally:
        client.close()
        server.close()


@pytest.mark.parametrize(
    ("size", "ending"),
    [(8 * MIB, "keep-alive"), (8 * MIB, "close"), (60_000, "close")],
    ids=["kept", "closed", "closed-with-little-left"],
)
async def test_who_does_not_read_its_answer_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, size: int, ending: str
) -> None:
    monkeypatch.setattr(connections, "_STALL_TIMEOUT", 0.2)
    async with _asked(size, ending) as (_, ended):
        end = time.monotonic() + 10
        while not ended():
            assert time.monotonic() < end, "a client that reads nothing keeps its connection"
            await asyncio.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="this system does not count what a client has read")
@pytest.mark.parametrize("ending", ["keep-alive", "close"])
async def test_who_reads_slowly_gets_all_of_its_answer(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setattr(connections, "_STALL_TIMEOUT", 0.15)
    monkeypatch.setattr(connections, "_LEAST_READ", 1, raising=False)
    loop, size, had = asyncio.get_running_loop(), MIB // 4, 0
    async with _asked(size, ending) as (client, _):
        began = time.monotonic()
        while had < size:
            data = await loop.sock_recv(client, 16 * 1024)
            assert data, f"it ended after {had} of {size} bytes"
            had += len(data)
            await asyncio.sleep(0.01)
        assert time.monotonic() - began > 2 * connections._STALL_TIMEOUT


def test_streams_and_waits_end_with_their_token(serve: Callable[..., Instance], tokens: Tokens) -> None:
    secrets = {how: tokens.add(how, roles=["read", "acquire"]) for how in ("taken", "demoted")}
    service = serve()
    held = service.acquire("busy", ttl=60).body["token"]
    streams: dict[str, http.client.HTTPResponse] = {}
    waiters: dict[str, http.client.HTTPConnection] = {}
    opened: list[http.client.HTTPConnection] = []
    for how, secret in secrets.items():
        headers = {"Authorization": f"Bearer {secret}"}
        opened += [http.client.HTTPConnection("127.0.0.1", service.port, timeout=30) for _ in range(2)]
        waiters[how] = opened[-1]
        opened[-2].request("GET", f"{NS}/events", headers=headers)
        streams[how] = opened[-2].getresponse()
        opened[-1].request("POST", f"{NS}/lock/busy/acquire", json.dumps({"wait": 20}).encode(), headers)
    end = time.monotonic() + 15
    while service.ask("GET", f"{NS}/lock/busy").body["queue_length"] < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    listed = {one["id"]: one for one in json.loads(tokens.path.read_text())["tokens"]}
    listed["demoted"]["roles"] = ["force"]
    del listed["taken"]
    tokens.path.write_text(json.dumps({"tokens": list(listed.values())}))
    for how, events in streams.items():
        assert events.status == 200
        while events.read1(65536):
            # It ends by itself; till then it has an event a second.
            assert time.monotonic() < end, f"{how}: a stream goes on without its token"
    assert service.ask("POST", f"{NS}/lock/busy/release", {"token": held}).status == 200
    told = {how: waiter.getresponse().status for how, waiter in waiters.items()}
    assert told == {"taken": 401, "demoted": 403}
    while service.ask("GET", f"{NS}/lock/busy").body["held"]:
        assert time.monotonic() < end, "it holds what it can neither renew nor release"
        time.sleep(0.05)
    for one in opened:
        one.close()
