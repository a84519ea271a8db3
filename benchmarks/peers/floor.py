"""The floors: what the machine, the socket and the server cost when the client does nothing at all.

A floor is no lock library. It sends bytes that were packed beforehand over a plain blocking socket
(TCP_NODELAY) and lets hiredis read the reply. Three are measured:

* `floor-set`: `SET key token NX PX` and a compare-and-delete script, the fewest bytes that lock;
* `floor-evalsha`: two tiny scripts called with as many bytes as pawlock sends, answered with as many as pawlock
  reads; a client written in C could be this fast;
* `floor-scripts`: pawlock's own scripts, called with a fresh token each time. What pawlock takes longer than this
  is spent in its Python, and nowhere else.
"""

from __future__ import annotations

import secrets
import socket
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from benchmarks.peers.base import Handle, Options, Peer

if TYPE_CHECKING:
    from pawlock.core.protocol.runtime import Call

TTL_MS = 30_000
RID = 1_000_000_000
_ALPHABET = string.ascii_letters + string.digits
_COMPARE_AND_DELETE = (
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"
)
_ACQUIRE = (
    "if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then "
    "return {'H',ARGV[#ARGV],1700000000000000,30000,1700000000000} end return {'B'}"
)
_DAY_MS = 86_400_000
_LEAVE = (
    "if redis.call('GET',KEYS[1])==ARGV[1] then redis.call('DEL',KEYS[1]) return {'R',ARGV[#ARGV]} end "
    "return {'A'}"
)


def pack(*parts: str | bytes | int) -> bytes:
    """Return a command in the bytes of the wire."""
    import hiredis

    # Its stub says a tuple of one element; it takes any number.
    packer: Callable[[tuple[str | bytes | int, ...]], bytes] = cast(
        "Any",
        hiredis.pack_command,  # pyright: ignore[reportUnknownMemberType]
    )
    return packer(parts)


class Wire:
    """One blocking connection: bytes out, one reply in."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        import hiredis

        self._reader = hiredis.Reader()

    def call(self, packed: bytes) -> object:
        """Send one packed command and return its reply; error replies raise."""
        self._socket.sendall(packed)
        reader = self._reader
        reply: object = reader.gets()
        while reply is False:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            reader.feed(data)
            reply = reader.gets()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def load(self, script: str | bytes) -> str:
        """Load a script and return its SHA1."""
        reply = self.call(pack("SCRIPT", "LOAD", script))
        assert isinstance(reply, bytes)
        return reply.decode()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def new_token() -> bytes:
    """Return text with the shape and the size of pawlock's tokens."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(24)).encode() + b"@benchmark:123456/MainThread"


def calls_of(name: str, token: bytes) -> tuple[Call, Call]:
    """Return what pawlock sends to take a name and to give it back."""
    from pawlock.primitives.mutex import Mutex

    mutex = Mutex("lock", name, f"pawlock:{name}")
    text = token.decode()
    channel = f"pawlock:wake:{text[:16]}"
    take = mutex.acquire(text, TTL_MS, 3000, wait=True, block=17, channel=channel, max_waiters=10_000)
    return take, mutex.leave(text, 0, 0)


def _same_size(sha: str, call: Call) -> bytes:
    """Return the bytes of a call, but of another script."""
    return call.pack(RID).replace(call.script.sha.encode(), sha.encode())


def evalsha(sha: str, keys: Sequence[bytes], arguments: Sequence[bytes | int]) -> bytes:
    """Return a packed EVALSHA."""
    return pack("EVALSHA", sha, len(keys), *keys, *arguments)


class _Session:
    def __init__(self, url: str, make: Callable[[Wire, str], Handle]) -> None:
        self._url = url
        self._make = make
        self._wires: list[Wire] = []

    def handle(self, name: str) -> Handle:
        wire = Wire(self._url)
        self._wires.append(wire)
        return self._make(wire, name)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()


def _expect(wire: Wire, packed: bytes, wanted: object) -> Callable[..., None]:
    call = wire.call

    def send(_grant: object = None) -> None:
        reply = call(packed)
        if (reply[0] if isinstance(reply, list) else reply) != wanted:
            raise AssertionError(f"the floor was answered {reply!r}, not {wanted!r}")

    return send


def _set_handle(wire: Wire, name: str) -> Handle:
    token = new_token()
    key = b"pawlock:" + name.encode()
    acquire = pack("SET", key, token, "NX", "PX", TTL_MS)
    release = evalsha(wire.load(_COMPARE_AND_DELETE), [key], [token])
    return Handle(acquire=_expect(wire, acquire, b"OK"), release=_expect(wire, release, 1))


def _evalsha_handle(wire: Wire, name: str) -> Handle:
    take, leave = calls_of(name, new_token())
    acquire = _same_size(wire.load(_ACQUIRE), take)
    release = _same_size(wire.load(_LEAVE), leave)
    return Handle(acquire=_expect(wire, acquire, b"H"), release=_expect(wire, release, b"R"))


def _scripts_handle(wire: Wire, name: str) -> Handle:
    token = new_token()
    take_call, leave_call = calls_of(name, token)
    for one in (take_call, leave_call):
        wire.load(one.script.source)
    acquire, leave = take_call.pack(RID), leave_call.pack(RID)
    call = wire.call
    count = 0

    def take() -> bytes:
        # pawlock's tokens are used once; nine digits of a counter keep the size and cost next to nothing.
        nonlocal count
        count += 1
        fresh = b"%024d" % count + token[24:]
        reply = call(acquire.replace(token, fresh))
        assert isinstance(reply, list), reply
        assert reply[0] == b"H", reply
        return fresh

    def give_back(fresh: bytes) -> None:
        reply = call(leave.replace(token, fresh))
        assert isinstance(reply, list), reply
        assert reply[0] == b"R", reply

    return Handle(acquire=take, release=give_back)


def _floor(key: str, label: str, make: Callable[[Wire, str], Handle], modules: tuple[str, ...] = ()) -> Peer:
    def open_session(url: str, options: Options) -> _Session:
        del options
        return _Session(url, make)

    return Peer(
        key=key,
        label=label,
        modules=("hiredis", *modules),
        distributions=("hiredis",),
        commands=frozenset({"evalsha", "set"} if make is _set_handle else {"evalsha"}),
        open=open_session,
    )


SET = _floor("floor-set", "floor: SET NX PX + compare-delete", _set_handle)
EVALSHA = _floor(
    "floor-evalsha", "floor: EVALSHA of pawlock's size", _evalsha_handle, ("pawlock.primitives",)
)
PAWLOCK_SCRIPTS = _floor(
    "floor-scripts", "floor: pawlock's scripts, raw socket", _scripts_handle, ("pawlock.primitives",)
)
