"""The floors: what the machine, the socket and the server cost when the client does nothing at all.

A floor is no lock library. It sends bytes that were packed beforehand and lets hiredis read the reply:

* `floor-evalsha`: two tiny scripts called with as many bytes as pawlock sends, answered with as many as pawlock
  reads, over a plain blocking socket; a client written in C could be this fast;
* `floor-scripts`: pawlock's own scripts there, called with a fresh token each time. What pawlock takes longer than this
  is spent in its Python, and nowhere else;
* `floor-mux`: the same on one asyncio connection for all tasks. What is written in one turn of the loop leaves in one
  piece, and a reply goes to whoever asked first: the least that a client can do which shares a connection.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.peers.base import Handle, Options, Peer, Session

if TYPE_CHECKING:
    from pawlock.core.runtime import Call

RID = 1_000_000_000
_ACQUIRE = (
    "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then "
    "return {'H',ARGV[#ARGV],1700000000000000,30000,1700000000000} end return {'B'}"
)
_LEAVE = (
    "if redis.call('GET',KEYS[1])==ARGV[1] then redis.call('DEL',KEYS[1]) return {'R',ARGV[#ARGV]} end "
    "return {'A'}"
)


def _load(script: str | bytes) -> bytes:
    text = script if isinstance(script, bytes) else script.encode()
    return b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%d\r\n%b\r\n" % (len(text), text)


def _calls(name: str) -> tuple[bytes, Call, Call]:
    """A token of pawlock's shape and size, and what pawlock sends to take a name with it and to give it back."""
    from pawlock.primitives.mutex import Mutex

    token = f"{secrets.token_hex(12)}@benchmark:123456/MainThread"
    mutex = Mutex("lock", name, f"pawlock:{name}")
    channel = f"pawlock:wake:{token[:16]}"
    take = mutex.acquire(token, 30_000, 3000, wait=True, block=17, channel=channel, max_queue=10_000)
    return token.encode(), take, mutex.leave(token, 0, 0)


def _check(reply: Any, wanted: bytes) -> None:  # noqa: ANN401 - whatever a server may say
    if not isinstance(reply, list) or reply[0] != wanted:
        raise AssertionError(f"the floor was answered {reply!r}, not {wanted!r}")


def _connect(url: str) -> Callable[[bytes], Any]:
    """A blocking connection: bytes out, one reply in."""
    import hiredis

    parts = urlsplit(url)
    plain = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = hiredis.Reader()

    def call(packed: bytes) -> object:
        plain.sendall(packed)
        reply: object = reader.gets()
        while reply is False:
            reader.feed(plain.recv(65536))
            reply = reader.gets()
        return reply

    return call


def _evalsha(url: str, _: Options) -> Session:
    def handle(name: str) -> Handle:
        call, (_, take, leave) = _connect(url), _calls(name)
        acquire, release = (
            one.pack(RID).replace(one.script.sha.encode(), call(_load(text)))
            for one, text in ((take, _ACQUIRE), (leave, _LEAVE))
        )
        return Handle(lambda: _check(call(acquire), b"H"), lambda _grant: _check(call(release), b"R"))

    return handle


def _scripts(url: str, _: Options) -> Session:
    def handle(name: str) -> Handle:
        call, (token, take, leave) = _connect(url), _calls(name)
        for one in (take, leave):
            call(_load(one.script.source))
        acquire, release, count = take.pack(RID), leave.pack(RID), 0

        def taken() -> bytes:
            # pawlock's tokens are used once; the digits of a counter keep the size and cost next to nothing.
            nonlocal count
            count += 1
            fresh = b"%024d" % count + token[24:]
            _check(call(acquire.replace(token, fresh)), b"H")
            return fresh

        return Handle(taken, lambda fresh: _check(call(release.replace(token, fresh)), b"R"))

    return handle


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
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(reply)

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


async def _multiplexed(url: str, options: Options) -> Session:
    del options
    parts, loop = urlsplit(url), asyncio.get_running_loop()
    _, mux = await loop.create_connection(_Mux, parts.hostname or "127.0.0.1", parts.port or 6379)
    call = mux.call
    for one in _calls("any")[1:]:
        await call(_load(one.script.source))

    def handle(name: str) -> Handle:
        token, take, leave = _calls(name)
        acquire, release, count = take.pack(RID), leave.pack(RID), 0

        async def taken() -> bytes:
            nonlocal count
            count += 1
            fresh = b"%024d" % count + token[24:]
            _check(await call(acquire.replace(token, fresh)), b"H")
            return fresh

        async def given_back(fresh: bytes) -> None:
            _check(await call(release.replace(token, fresh)), b"R")

        return Handle(taken, given_back)

    return handle


_NEEDS = ("hiredis", "pawlock.primitives")
PEERS = (
    Peer("floor-evalsha", "floor: EVALSHA of pawlock's size", _NEEDS, ("hiredis",), open=_evalsha),
    Peer("floor-scripts", "floor: pawlock's scripts, raw socket", _NEEDS, ("hiredis",), open=_scripts),
    Peer(
        "floor-mux",
        "floor: pawlock's scripts, bare multiplexer",
        _NEEDS,
        ("hiredis",),
        open_async=_multiplexed,
    ),
)
