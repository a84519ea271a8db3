"""One client connection through a `Proxy`, and its own connection to the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.support._rules import Action, Request, Rule, claim
from tests.support.resp import ProtocolError, Reply, parse, unit_end

_SUBSCRIBING = {"SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"}
_PUSH_KINDS = {word.lower().encode() for word in _SUBSCRIBING} | {b"message", b"pmessage", b"smessage"}


@dataclass
class Conditions:
    """The state of the network that all connections of a proxy share.

    Attributes:
        upstream: Path of the server's unix socket, or its host and port.
        flow: Set while bytes pass; cleared: connections live and nothing arrives.
        request_delay: Seconds that a request takes to the server.
        reply_delay: Seconds that a reply or message takes back.
        trickle: Seconds between two bytes of what comes back; 0: it comes whole.
        rules: Faults to inject.
        requests: Every request that came from clients.
        errors: What went wrong in the proxy itself.
    """

    upstream: Callable[[], str | tuple[str, int]]
    flow: asyncio.Event = field(default_factory=asyncio.Event)
    request_delay: float = 0.0
    reply_delay: float = 0.0
    trickle: float = 0.0
    rules: list[Rule] = field(default_factory=list[Rule])
    requests: list[Request] = field(default_factory=list[Request])
    errors: list[Exception] = field(default_factory=list[Exception])

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server."""
        address = self.upstream()
        if isinstance(address, str):
            return await asyncio.open_unix_connection(address)
        return await asyncio.open_connection(*address)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other side sees a reset, not an end."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Link:
    """Carries units both ways and applies the rules to them; they are those of RESP, unless a subclass knows others."""

    def __init__(
        self, conditions: Conditions, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._conditions = conditions
        self._number = number
        self._reader, self._writer = reader, writer
        # One entry for each reply that the server still owes, with the rule that is waiting for it.
        self._owed: deque[Rule | None] = deque()
        self._subscribed = False
        self._late: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until either side is gone, then close both."""
        try:
            await self._conditions.flow.wait()
            reader, writer = await self._conditions.connect()
        except OSError:
            # As a host does on which nothing listens.
            self.reset()
            return
        there = asyncio.create_task(self._requests(writer))
        back = asyncio.create_task(self._replies(reader))
        try:
            # The client's end does not recall what it has sent: that still reaches the server, however late.
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            if not back.done():
                await self._last_replies(writer, back)
            await self._settle(there, back)
        finally:
            for task in (there, back):
                task.cancel()
            writer.close()
            self._writer.close()
        await asyncio.gather(*self._late)

    def reset(self) -> None:
        """Cut the client's connection with a reset."""
        reset(self._writer)

    async def _last_replies(self, writer: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        with contextlib.suppress(OSError):
            writer.write_eof()
        await asyncio.wait({back}, timeout=5.0)

    async def _settle(self, *tasks: asyncio.Task[None]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled():
                error = task.exception()
                if error is not None and not isinstance(error, (OSError, _Cut)):
                    raise error

    async def _requests(self, writer: asyncio.StreamWriter) -> None:
        async for raw in self._units(self._reader, self._request_end, lambda: self._conditions.request_delay):
            request = self._read_request(raw)
            self._conditions.requests.append(request)
            rule = claim(self._conditions.rules, request)
            copies = 1
            if rule is not None and not rule.action.on_reply:
                copies = await self._before(rule, raw)
                rule = None
            self._expect(request, rule, copies)
            writer.write(raw * copies)
            await writer.drain()

    async def _before(self, rule: Rule, raw: bytes) -> int:
        """Act on a request; return how many copies of it go to the server."""
        if rule.action is Action.DUPLICATE_REQUEST_LATE:
            task = asyncio.create_task(self._send_late(rule, raw))
            self._late.add(task)
            return 1
        rule.hit()
        if rule.action is Action.DROP_REQUEST:
            return 0
        if rule.action is Action.RESET:
            self.reset()
            raise _Cut
        if rule.action is Action.HOLD_REQUEST:
            await rule.hold()
        return 2 if rule.action is Action.DUPLICATE_REQUEST else 1

    async def _send_late(self, rule: Rule, raw: bytes) -> None:
        await rule.hold()
        reader, writer = await self._conditions.connect()
        writer.write(raw)
        buffer = bytearray()
        while self._reply_end(buffer) is None:
            chunk = await reader.read(65536)
            if not chunk:
                raise ConnectionResetError("the server closed the connection of a late duplicate")
            buffer += chunk
        writer.close()
        rule.hit()

    async def _replies(self, reader: asyncio.StreamReader) -> None:
        async for raw in self._units(reader, self._reply_end, lambda: self._conditions.reply_delay):
            parts = self._push_parts(raw)
            if parts is not None:
                rule = claim(self._conditions.rules, Request(parts, self._number), push=True)
            else:
                rule = self._owed.popleft() if self._owed else None
            if rule is not None:
                rule.hit()
                if rule.action is Action.KILL_ON_REPLY:
                    self.reset()
                    raise _Cut
                if rule.action is not Action.HOLD_REPLY:
                    continue
                await rule.hold()
            # A client that has gone must not keep the requests that it had sent from the server.
            with contextlib.suppress(OSError):
                await self._write(raw)

    async def _write(self, raw: bytes) -> None:
        sent = 0
        while sent < len(raw) and not self._writer.is_closing():
            pause = self._conditions.trickle
            end = sent + 1 if pause else len(raw)
            self._writer.write(raw[sent:end])
            await self._writer.drain()
            sent = end
            if pause:
                await asyncio.sleep(pause)

    # The protocol --------------------------------------------------------------------------------------------------

    def _request_end(self, buffer: bytearray) -> int | None:
        """Where the first request ends; None: it is not complete."""
        if buffer and buffer[:1].isalpha():
            # An inline command, as typed by hand.
            newline = buffer.find(b"\n")
            return newline + 1 if newline >= 0 else None
        return unit_end(buffer)

    def _reply_end(self, buffer: bytearray) -> int | None:
        """Where the first reply or push message ends; None: it is not complete."""
        return unit_end(buffer)

    def _read_request(self, raw: bytes) -> Request:
        if raw[:1] != b"*":
            return Request(tuple(raw.split()), self._number)
        reply, _ = parse(raw)
        if not isinstance(reply, list):
            raise ProtocolError(f"not a request: {raw[:80]!r}")
        return Request(tuple(_flat(reply)), self._number)

    def _expect(self, request: Request, rule: Rule | None, copies: int) -> None:
        """Note what the server owes for so many copies of a request."""
        if request.command in _SUBSCRIBING:
            self._subscribed = True
        else:
            self._owed.extend([rule] * copies)

    def _push_parts(self, raw: bytes) -> tuple[bytes, ...] | None:
        """Read a push message; None for a reply."""
        if raw[:1] != b">" and not (self._subscribed and raw[:1] == b"*"):
            return None
        message, _ = parse(raw)
        parts = tuple(_flat(message))
        return parts if raw[:1] == b">" or (parts and parts[0] in _PUSH_KINDS) else None

    # The bytes -----------------------------------------------------------------------------------------------------

    async def _units(
        self,
        reader: asyncio.StreamReader,
        end_of: Callable[[bytearray], int | None],
        delay: Callable[[], float],
    ) -> AsyncIterator[bytes]:
        """Give one unit after the other, each when the network has carried it."""
        arrived: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def read() -> None:
            buffer = bytearray()
            try:
                while chunk := await reader.read(65536):
                    buffer += chunk
                    while (end := end_of(buffer)) is not None:
                        arrived.put_nowait((loop.time(), bytes(buffer[:end])))
                        del buffer[:end]
            finally:
                arrived.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            while (item := await arrived.get()) is not None:
                await asyncio.sleep(item[0] + delay() - loop.time())
                await self._conditions.flow.wait()
                yield item[1]
            with contextlib.suppress(OSError):
                await reading
        finally:
            reading.cancel()


class _Cut(Exception):
    """A rule has cut this connection."""


def _flat(reply: Reply) -> list[bytes]:
    if isinstance(reply, list):
        return [part for item in reply for part in _flat(item)]
    return [reply if isinstance(reply, bytes) else str(reply).encode()]
