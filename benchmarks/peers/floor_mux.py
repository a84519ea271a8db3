"""The floor of asyncio: one connection for all tasks, pawlock's own scripts, and nothing that makes a lock of them.

What is written in one turn of the loop leaves in one piece, and a reply goes to whoever asked first: the least that
a client can do which shares a connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from urllib.parse import urlsplit

from benchmarks.peers.base import Handle, Options, Peer
from benchmarks.peers.floor import RID, calls_of, new_token, pack


class _Mux(asyncio.Protocol):
    def __init__(self) -> None:
        import hiredis

        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[object]] = deque()
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        while (reply := reader.gets()) is not False:
            waiting.popleft().set_result(reply)

    def call(self, packed: bytes) -> asyncio.Future[object]:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(packed)
        future: asyncio.Future[object] = self._loop.create_future()
        self._waiting.append(future)
        return future

    def _flush(self) -> None:
        self._transport.write(b"".join(self._out))
        self._out.clear()


class _Session:
    def __init__(self, mux: _Mux) -> None:
        self._mux = mux

    async def handle(self, name: str) -> Handle:
        token = new_token()
        take_call, leave_call = calls_of(name, token)
        for one in (take_call, leave_call):
            sha = await self._mux.call(pack("SCRIPT", "LOAD", one.script.source))
            assert isinstance(sha, bytes), sha
        acquire, leave = take_call.pack(RID), leave_call.pack(RID)
        call = self._mux.call
        count = 0

        async def take() -> bytes:
            nonlocal count
            count += 1
            fresh = b"%024d" % count + token[24:]
            reply = await call(acquire.replace(token, fresh))
            assert isinstance(reply, list), reply
            assert reply[0] == b"H", reply
            return fresh

        async def give_back(fresh: bytes) -> None:
            reply = await call(leave.replace(token, fresh))
            assert isinstance(reply, list), reply
            assert reply[0] == b"R", reply

        return Handle(acquire=take, release=give_back)

    async def close(self) -> None:
        """End with the process."""


async def _open(url: str, options: Options) -> _Session:
    del options
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, mux = await loop.create_connection(_Mux, parts.hostname or "127.0.0.1", parts.port or 6379)
    return _Session(mux)


PEER = Peer(
    key="floor-mux",
    label="floor: pawlock's scripts, bare multiplexer",
    modules=("hiredis", "pawlock.primitives"),
    distributions=("hiredis",),
    commands=frozenset({"evalsha"}),
    open_async=_open,
)
