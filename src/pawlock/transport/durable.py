"""A script, a write that changes nothing, and ``WAIT``, in one go on one connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import Any, Protocol

from pawlock._outsider import let_out
from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.outcomes import Expiry, Outcome
from pawlock.core.protocol.runtime import FIRST_RID, Call, Fault, FaultKind
from pawlock.core.protocol.scripts import Readers, load, pack_words
from pawlock.core.protocol.terms import Durable
from pawlock.topology.cluster import first_key
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.connect import fault_of
from pawlock.transport.link import Link
from pawlock.transport.mux import open_connection
from pawlock.transport.wire import (
    NOTHING,
    Handshake,
    PushNotification,
    ReplyError,
    new_reader,
    pack,
    refusal_of,
    rid_of,
)

__all__ = ["DurablePool", "call_on", "touch"]

_TOUCH = load("pawlock.primitives", "touch", read=Readers({b"T": lambda fields: Expiry(fields[0])}))

_ROLE = pack(b"ROLE")
_UNKNOWN = 1 << 30
_SHARE = 0.75
"""Of the time for an answer, what the replicas may take of it."""

_DISK_PATIENCE = 2.5
_KEPT = 8


class _Pipe(Protocol):
    """A connection that serves one request at a time.

    Attributes:
        replicas: How many replicas the master had when it was last asked; -1: to be asked.
    """

    replicas: int

    def next_rid(self) -> int: ...

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> Any: ...


def touch(key: str) -> Call:
    """A write to a key that changes nothing; see ``touch.lua``."""
    return Call(_TOUCH, pack_words(key.encode()))


async def _ask(pipe: _Pipe, call: Call, durable: Durable, timeout: float) -> tuple[Outcome | None, int]:
    if pipe.replicas < durable.replicas:
        await pipe.send(_ROLE)
        pipe.replicas = _count(await pipe.receive())
        if pipe.replicas < durable.replicas:
            return None, pipe.replicas
    # A replica reports what it has on disk once a second.
    timeout = _allowed(durable, timeout)
    wait_ms = b"%d" % max(1, int(timeout * 1000 * _SHARE))
    number = b"%d" % durable.replicas
    wait = pack(b"WAITAOF", b"0", number, wait_ms) if durable.disk else pack(b"WAIT", number, wait_ms)
    tail = touch(first_key(call.body).decode()).pack_eval(FIRST_RID) + wait
    rid = pipe.next_rid()
    await pipe.send(call.pack(rid) + tail)
    reply, _, acknowledged = [await _skip_ok(pipe) for _ in range(3)]
    if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
        rid = pipe.next_rid()
        await pipe.send(call.pack_eval(rid) + tail)
        reply, _, acknowledged = [await _skip_ok(pipe) for _ in range(3)]
    if isinstance(reply, ReplyError):
        raise refusal_of(str(reply))
    if rid_of(reply) != rid:
        raise Fault(FaultKind.UNANSWERED, "the reply was lost", maybe_applied=True)
    if isinstance(acknowledged, ReplyError):
        fault = classify(str(acknowledged))
        raise Fault(fault.kind, fault.text, maybe_applied=True)
    count: int = acknowledged if isinstance(acknowledged, int) else acknowledged[1]
    if count < durable.replicas:
        # A replica may have gone: the next one is asked at once.
        pipe.replicas = -1
    return call.answer(reply), count


def _allowed(durable: Durable, timeout: float) -> float:
    return max(timeout, _DISK_PATIENCE) if durable.disk else timeout


async def _skip_ok(pipe: _Pipe) -> Any:
    reply = await pipe.receive()
    return await pipe.receive() if reply == b"OK" else reply


def _count(role: Any) -> int:
    if isinstance(role, ReplyError):
        # A user without the permission: WAIT will show it.
        return _UNKNOWN
    if role[0] != b"master":
        raise Fault(FaultKind.READ_ONLY, "the server has become a replica")
    return len(role[2])


# Threads -------------------------------------------------------------------------------------------------------------


class _LinkPipe:
    def __init__(self, link: Link, end: float) -> None:
        self._link = link
        self._end = end
        self.replicas: int = link.replicas

    def next_rid(self) -> int:
        self._link.rid += 1
        return self._link.rid

    async def send(self, data: bytes) -> None:
        self._link.put(data, self._end)

    async def receive(self) -> Any:
        return self._link.next_reply(self._end)


async def call_on(link: Link, call: Call, durable: Durable, timeout: float) -> tuple[Outcome | None, int]:
    """See ``DurableRuntime``: on the link that a thread holds, under its lock."""
    pipe = _LinkPipe(link, monotonic() + _allowed(durable, timeout))
    try:
        return await _ask(pipe, call, durable, timeout)
    except Fault:
        link.close()
        raise
    except OSError as error:
        link.close()
        let_out(error)
        raise Fault(FaultKind.UNANSWERED, f"the connection broke: {error}", maybe_applied=True) from error
    except BaseException:
        link.close()
        raise
    finally:
        link.replicas = pipe.replicas


# asyncio -------------------------------------------------------------------------------------------------------------


class _StreamPipe:
    """A connection of redis.asyncio that is used as it is, by one task at a time."""

    def __init__(self, maker: Any) -> None:
        self.replicas: int = -1
        self._maker = maker
        self.rid = FIRST_RID
        self._parser = new_reader()

    def next_rid(self) -> int:
        self.rid += 1
        return self.rid

    async def send(self, data: bytes) -> None:
        self._maker._writer.write(data)  # noqa: SLF001 - redis-py's, which made the connection
        await self._maker._writer.drain()  # noqa: SLF001 - redis-py's, which made the connection

    async def receive(self) -> Any:
        while True:
            reply = self._parser.gets()
            if reply is NOTHING:
                chunk = await self._maker._reader.read(65536)  # noqa: SLF001 - redis-py's, which made the connection
                if not chunk:
                    raise ConnectionResetError("the server closed the connection")
                self._parser.feed(chunk)
            elif type(reply) is not PushNotification:
                return reply

    async def do_handshake(self, handshake: Handshake) -> None:
        await self.send(handshake.request)
        handshake.check_hello(await self.receive())

    def close(self) -> None:
        writer, self._maker._reader, self._maker._writer = self._maker._writer, None, None  # noqa: SLF001 - redis-py's, which made the connection
        if writer is not None:
            with contextlib.suppress(RuntimeError):
                writer.close()


Locate = Callable[[float], Awaitable[Endpoint]]


class DurablePool:
    """The connections of one loop beside the shared one, for requests that block their connection."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[_StreamPipe]] = {}
        self._closed = False

    async def call(
        self, place: Hashable, locate: Locate, call: Call, durable: Durable, timeout: float
    ) -> tuple[Outcome | None, int]:
        """See ``DurableRuntime``.

        Args:
            place: Which server, for a connection that is kept.
            locate: Where it is, for one that is to be made.
            call: The script.
            durable: What to wait for.
            timeout: Seconds for all of it but the connecting.
        """
        idle = self._idle.setdefault(place, [])
        pipe = idle.pop() if idle else await self._open(locate, timeout)
        try:
            async with asyncio.timeout(_allowed(durable, timeout)):
                answer = await _ask(pipe, call, durable, timeout)
        except TimeoutError:
            pipe.close()
            text = f"no answer within {timeout:.3g} s"
            raise Fault(FaultKind.UNANSWERED, text, maybe_applied=True) from None
        except OSError as error:
            pipe.close()
            raise Fault(FaultKind.UNANSWERED, f"the connection broke: {error}", maybe_applied=True) from error
        except BaseException:
            pipe.close()
            raise
        if self._closed or len(idle) >= _KEPT:
            pipe.close()
        else:
            idle.append(pipe)
        return answer

    async def _open(self, locate: Locate, timeout: float) -> _StreamPipe:
        patience = max(timeout, 0.25)
        endpoint = await locate(patience)
        try:
            async with asyncio.timeout(patience * 2):
                pipe = _StreamPipe(await open_connection(endpoint, patience))
                try:
                    await pipe.do_handshake(Handshake("", endpoint, first=False))
                except BaseException:
                    pipe.close()
                    raise
        except (OSError, TimeoutError) as error:
            raise fault_of(error, endpoint.shown) from error
        return pipe

    def close(self) -> None:
        """Close those that are kept; one in use is closed after its use."""
        self._closed = True
        self.drop()

    def drop(self) -> None:
        """Close those that are kept: they lead to where the server no longer is."""
        idle, self._idle = self._idle, {}
        for pipe in (pipe for pipes in idle.values() for pipe in pipes):
            pipe.close()

    def abandon(self) -> None:
        """In a forked child: forget them."""
        self._idle = {}
