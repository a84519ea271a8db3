"""Scripts, one small write, and ``WAIT``, in one go on one connection."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Hashable, Sequence
from time import monotonic
from typing import Any, Protocol

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.names import WIRE_VERSION, helper_key
from pawlock.core.protocol.runtime import FIRST_RID, Acknowledged, Call, Fault, FaultKind
from pawlock.topology.cluster import first_key
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.connect import fault_of, is_own
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

__all__ = ["ReplicaPool", "ask_on"]

_SHARE = 0.75
"""Of the time for an answer, what the replicas may take of it."""

_KEPT = 8
_INFO = pack(b"INFO", b"replication")
_ATTACHED = re.compile(rb"connected_slaves:(\d+)")


class _Pipe(Protocol):
    """A connection that serves one request at a time."""

    def next_rid(self) -> int: ...

    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> Any: ...


async def _ask(pipe: _Pipe, calls: Sequence[Call], replicas: int, timeout: float) -> list[Acknowledged]:
    """Run scripts of one server, and count the replicas that have what they wrote.

    ``WAIT`` covers what its own connection wrote. A grant that another's script made (a hand-off), and a resend that
    finds its token holding, write nothing; so a write goes before it: it stands behind all of them in the stream of
    replication, wherever they came from. A master that never had a replica numbers no writes, and counts one that comes
    while it waits, whatever that has by then: so only those count that were there before.
    """
    key = helper_key(first_key(calls[0].body).decode(), f"{WIRE_VERSION}:wait").encode()
    wait = pack(b"WAIT", b"%d" % replicas, b"%d" % max(1, int(timeout * 1000 * _SHARE)))
    tail = pack(b"SET", key, b"1", b"PX", b"1") + wait
    rids, parts, known = [pipe.next_rid() for _ in calls], list[bytes](), set[bytes]()
    for call, rid in zip(calls, rids, strict=True):
        # Each script once by its text: to send it again to a server that did not know it, one would have to wait first.
        parts.append(call.pack(rid) if call.script.evalsha in known else call.pack_eval(rid))
        known.add(call.script.evalsha)
    await pipe.send(b"".join([_INFO, *parts, tail]))
    info = await pipe.receive()
    replies = [await _skip_ok(pipe) for _ in calls]
    await pipe.receive()
    acknowledged = await pipe.receive()
    for reply in (info, acknowledged):
        if isinstance(reply, ReplyError):
            fault = classify(str(reply))
            raise Fault(fault.kind, fault.text, maybe_applied=True)
    there = _ATTACHED.search(info)
    count = min(acknowledged, int(there[1])) if there else 0
    return [
        (_outcome(call, reply, rid), count) for call, reply, rid in zip(calls, replies, rids, strict=True)
    ]


def _outcome(call: Call, reply: Any, rid: int) -> Any:
    if isinstance(reply, ReplyError):
        return refusal_of(str(reply))
    if rid_of(reply) != rid:
        return Fault(FaultKind.UNANSWERED, "the reply was lost", maybe_applied=True)
    return call.answer(reply)


async def _skip_ok(pipe: _Pipe) -> Any:
    reply = await pipe.receive()
    return await pipe.receive() if reply == b"OK" else reply


# Threads -------------------------------------------------------------------------------------------------------------


class _LinkPipe:
    def __init__(self, link: Link, end: float) -> None:
        self._link = link
        self._end = end

    def next_rid(self) -> int:
        self._link.rid += 1
        return self._link.rid

    async def send(self, data: bytes) -> None:
        self._link.put(data, self._end)

    async def receive(self) -> Any:
        return self._link.next_reply(self._end)


async def ask_on(link: Link, calls: Sequence[Call], replicas: int, timeout: float) -> list[Acknowledged]:
    """See ``Carrier.call_replicated``: on the link that a thread holds."""
    link.busy = True
    try:
        return await _ask(_LinkPipe(link, monotonic() + timeout), calls, replicas, timeout)
    except BaseException as error:
        link.close()
        if isinstance(error, Fault) or not is_own(error):
            raise
        raise Fault(FaultKind.UNANSWERED, f"the connection broke: {error}", maybe_applied=True) from error
    finally:
        link.busy = False


# asyncio -------------------------------------------------------------------------------------------------------------


class _StreamPipe:
    """A connection of redis.asyncio that is used as it is, by one task at a time."""

    def __init__(self, maker: Any) -> None:
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


class ReplicaPool:
    """The connections of one loop beside the shared one, for requests that block their connection."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[_StreamPipe]] = {}
        self._closed = False

    async def call(
        self, place: Hashable, locate: Locate, calls: Sequence[Call], replicas: int, timeout: float
    ) -> list[Acknowledged]:
        """See ``Carrier.call_replicated``.

        Args:
            place: Which server, for a connection that is kept.
            locate: Where it is, for one that is to be made.
            calls: The scripts.
            replicas: How many replicas to wait for.
            timeout: Seconds for all of it but the connecting.
        """
        idle = self._idle.setdefault(place, [])
        pipe = idle.pop() if idle else await self._open(locate, timeout)
        try:
            async with asyncio.timeout(timeout):
                answers = await _ask(pipe, calls, replicas, timeout)
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
        return answers

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
