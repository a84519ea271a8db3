"""The connections of the service's clients: each response in one write, limits on all input, no protocol upgrade."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

__all__ = ["Connection"]

_REQUEST_TIMEOUT = 10
_MOST_HEAD = 32 * 1024
"""Bytes of a request line, its headers, the frames of its chunks and its trailers, all together."""
_MOST_HEADERS = 100
_PIECE = 16 * 1024
"""Input is parsed in pieces of this size, so that no limit is exceeded by more than that."""
_MOST_PIPELINED = 64
_MOST_BEHIND = 256 * 1024
"""Total bytes of pipelined requests that may wait for the response to the first one."""
_LINGER = 1.0
_STALL_TIMEOUT = 30.0
"""Seconds within which a slow reader has to read some of what was written for it."""
_LEAST_READ = 16 * 1024
"""Bytes that it has to read in that time."""
_MOST_DISCARDED = 1024 * 1024
_ESTABLISHED = 1
_ACKNOWLEDGED = slice(120, 128)
"""Where Linux has ``tcpi_bytes_acked`` in its ``TCP_INFO``."""


def _refusal(status: int, code: str, text: str) -> bytes:
    """An answer to what never becomes a request; the connection ends with it."""
    title = HTTPStatus(status).phrase
    problem = {
        "type": f"urn:pawlock:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": text,
    }
    body = json.dumps(problem)
    head = (
        f"HTTP/1.1 {status} {title}\r\nConnection: close\r\nCache-Control: no-store\r\n"
        f"Content-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return f"{head}{body}".encode()


_SLOW = _refusal(408, "SLOW_REQUEST", f"the request took more than {_REQUEST_TIMEOUT} s to arrive")
_LARGE_HEAD = _refusal(
    431, "HEAD_TOO_LARGE",
    f"at most {_MOST_HEAD} bytes of request line and headers, and {_MOST_HEADERS} headers",
)  # fmt: skip
_NO_HTTP = _refusal(400, "BAD_REQUEST", "not an HTTP/1.1 request")


class _TooLargeError(Exception):
    """The head of a request is too large; raised through the parser."""


class _Joined:
    """A transport that writes at the end of an answer: head and body wake their reader once.

    Args:
        transport: The transport.
        loop: The loop.
        closing: Called instead of closing; closes it in time.
    """

    def __init__(
        self, transport: Any, loop: asyncio.AbstractEventLoop, closing: Callable[[], object]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._closing = closing
        self._parts: list[bytes] = []
        self.get_extra_info = transport.get_extra_info
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.set_protocol = transport.set_protocol

    def write(self, data: bytes) -> None:
        """Write soon: at the end of the answer, or of this turn of the loop."""
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        """Write now."""
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        """Close once all is written."""
        self.flush()
        if not self._transport.is_closing():
            self._closing()

    def shut(self) -> None:
        """Close the sending side: the client has the whole response."""
        self.flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def close_now(self) -> None:
        """Close, without waiting for what the client still sends."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._parts.clear()
        self._transport.abort()


class _Connection(HttpToolsProtocol):
    """One connection of a client.

    A client cannot keep it open by sending a request slowly or by not reading the answer, nor lose a body by offering
    another protocol on the way: the parser takes all that follows ``Upgrade: h2c``, which Java's client sends by
    default, for that protocol. No other is spoken here, so what follows is given to a new parser.

    Nothing that comes before a token is known is kept without a bound: neither heads, nor bodies, nor requests in a
    row.
    """

    _slow: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    """Set while more is written than the client has read."""
    _framing: bytes = b""
    """How the body of the current request is delimited, if there is one."""
    _muted: bool = False
    _head: int = 0
    """Bytes of the request line and headers of the present request, and how many headers."""
    _headers: int = 0
    _framed: int = 0
    """Bytes of the present request that were no part of its body, at most a piece too many."""
    _body: int = 0
    """Bytes of bodies in the piece that is parsed now."""
    _unread: bool = False
    """Whether the body of the present request is still to come."""
    _ended: asyncio.TimerHandle | None = None
    """Set once it accepts no more input: the rest is discarded until the client has its response."""
    _discarded: int = 0
    _behind: int = 0
    """Bytes that arrived while a request waited for the response to the previous one."""

    def connection_made(self, transport: Any) -> None:
        """See ``asyncio.Protocol``."""
        joined = _Joined(transport, self.loop, self._close)
        super().connection_made(cast("asyncio.Transport", joined))
        # The base class would also refuse requests on connections that are already open: those continue.
        most, self.limit_concurrency = self.limit_concurrency, None
        if most is not None and len(self.connections) > most:
            joined.abort()
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._disarm()
        self._stop_stall_timer()
        if self._ended is not None:
            self._ended.cancel()
        self._notify_handlers()
        super().connection_lost(exc)

    def _notify_handlers(self) -> None:
        """Notify all handlers of this client that it disconnected; the base class notifies only the last one."""
        for cycle in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    def is_gone(self) -> bool:
        """Whether the client has closed its side, as the system knows it now, before any callback says so."""
        transport = self.transport
        if self._ended is not None or transport.is_closing():
            return True
        found = transport.get_extra_info("socket")
        if found is None or not hasattr(socket, "TCP_INFO"):
            return False
        try:
            state = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        except OSError:
            return True
        return bool(state[0] != _ESTABLISHED)

    def on_response_complete(self) -> None:
        """Send the answer, whose end this is."""
        cast("Any", self.transport).flush()
        if self._unread and self.cycle.response_complete and not self.transport.is_closing():
            # Answered before the whole request arrived: the rest is of no use, and may never end.
            self._end()
        super().on_response_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    _running: RequestResponseCycle | None = None

    # A request ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._unset_keepalive_if_required()
        for at in range(0, len(data), _PIECE):
            if self._ended is not None:
                self._discarded += len(data) - at
                if self._discarded > _MOST_DISCARDED:
                    cast("Any", self.transport).abort()
                return
            if self.transport.is_closing():
                return
            self._parse(data[at : at + _PIECE] if len(data) > _PIECE else data)

    def _parse(self, data: bytes) -> None:
        self._body = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            self._refuse(_LARGE_HEAD if isinstance(error.__context__, _TooLargeError) else _NO_HTTP)
        except httptools.HttpParserError:
            self._refuse(_NO_HTTP)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
            return
        self._framed += len(data) - self._body
        if self._framed > _MOST_HEAD + _PIECE:
            # One endless header, for which the parser makes no callback.
            self._refuse(_LARGE_HEAD)
        self._behind = self._behind + len(data) if self.pipeline else 0
        if len(self.pipeline) > _MOST_PIPELINED or self._behind > _MOST_BEHIND:
            cast("Any", self.transport).abort()

    def _decline(self, rest: bytes) -> None:
        self.parser = httptools.HttpRequestParser(self)
        if self._framing:
            # The new parser is set to be in the middle of the request.
            self._muted = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + self._framing + b"\r\n\r\n")
            self._muted = False
        if rest:
            self._parse(rest)

    def on_message_begin(self) -> None:
        """A request begins."""
        if not self._muted:
            self._arm()
            self._framing = b""
            self._head = self._headers = self._framed = 0
            super().on_message_begin()
            self.scope["pawlock.gone"] = self.is_gone  # type: ignore[typeddict-unknown-key]

    def on_url(self, url: bytes) -> None:
        """A part of its path came."""
        if not self._muted:
            self._count(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers came."""
        if not self._muted:
            self._headers += 1
            self._count(len(name) + len(value) + 4)
            super().on_header(name, value)
            if name.lower() in (b"content-length", b"transfer-encoding") and value != b"0":
                self._framing = name + b": " + value

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > _MOST_HEAD or self._headers > _MOST_HEADERS:
            raise _TooLargeError

    def on_headers_complete(self) -> None:
        """All of them came."""
        if not self._muted:
            self._unread = True
            super().on_headers_complete()
            # The base class stops reading while requests wait in a row, and would not see that their client went away.
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """A part of its body came."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it came."""
        if self._framing and self.parser.should_upgrade():
            return
        self._unread = False
        self._disarm()
        super().on_message_complete()

    # The end of a connection --------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._disarm()
        self._slow = self.loop.call_later(_REQUEST_TIMEOUT, self._too_slow)

    def _disarm(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _too_slow(self) -> None:
        self._refuse(_SLOW)

    def _refuse(self, answer: bytes) -> None:
        if self._ended is not None or self.transport.is_closing():
            return
        running = self._running
        if running is None or running.response_complete or not (running.response_started or self.pipeline):
            self.transport.write(answer)
        self._notify_handlers()
        self._end()

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._stop_stall_timer()
        super().resume_writing()

    def _start_stall_timer(self) -> None:
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(
                _STALL_TIMEOUT, self._check_progress, self._acknowledged()
            )

    def _check_progress(self, before: int) -> None:
        self._stall_timer = None
        if self._acknowledged() - before < _LEAST_READ:
            cast("Any", self.transport).abort()
        else:
            self._start_stall_timer()

    def _acknowledged(self) -> int:
        """Bytes that the client's system has taken, in all; 0 where this system does not count them."""
        found = self.transport.get_extra_info("socket")
        if found is None or sys.platform != "linux":
            return 0
        try:
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.stop)
        except OSError:
            return 0
        return int.from_bytes(info[_ACKNOWLEDGED], sys.byteorder)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _close(self) -> None:
        """Close; first let a client that is still sending read its response, which a reset would discard."""
        if self._unread:
            self._end()
        else:
            cast("Any", self.transport).close_now()
            # The transport closes once the client has read everything.
            self._start_stall_timer()

    def _end(self) -> None:
        if self._ended is None:
            self._disarm()
            transport = cast("Any", self.transport)
            transport.shut()
            self._ended = self.loop.call_later(_LINGER, transport.abort)


Connection: type[asyncio.Protocol] = _Connection
"""What uvicorn makes for each connection. Its base class has no type hints: it is shown as what it is to asyncio."""
