"""The connections of the service's clients: answers in one write, no slow requests, no other protocol."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Connection"]

_REQUEST_TIMEOUT = 10


def _refusal(status: int, code: str, text: str) -> bytes:
    """An answer to what never becomes a request; the connection ends with it."""
    title = HTTPStatus(status).phrase
    problem = {
        "type": f"urn:pawl:problem:{code}",
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


_SLOW = _refusal(
    408, "SLOW_REQUEST", f"the request took more than {_REQUEST_TIMEOUT} s to arrive; send it in one go"
)
_NO_HTTP = _refusal(400, "BAD_REQUEST", "this is no request of HTTP/1.1")


class _Joined:
    """A transport that writes at the end of an answer: head and body wake their reader once."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
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
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._parts.clear()
        self._transport.abort()


class _Connection(HttpToolsProtocol):
    """One connection of a client.

    A client cannot keep it open by sending a request slowly, nor lose a body by offering another protocol on the way:
    the parser takes all that follows ``Upgrade: h2c``, which Java's client sends by default, for that protocol. No
    other is spoken here, so what follows is given to a new parser.
    """

    _slow: asyncio.TimerHandle | None = None
    _framing: bytes = b""
    """How the body of the present request is told from the next one, if there is a body."""
    _muted: bool = False

    def connection_made(self, transport: Any) -> None:
        """See ``asyncio.Protocol``."""
        super().connection_made(cast("asyncio.Transport", _Joined(transport, self.loop)))
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._disarm()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Send the answer, whose end this is."""
        cast("Any", self.transport).flush()
        super().on_response_complete()

    # A request ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(_NO_HTTP)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])

    def _decline(self, rest: bytes) -> None:
        self.parser = httptools.HttpRequestParser(self)
        if self._framing:
            # The new parser is told that it is in the middle of the request.
            self._muted = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + self._framing + b"\r\n\r\n")
            self._muted = False
        if rest:
            self.data_received(rest)

    def on_message_begin(self) -> None:
        """A request begins."""
        if not self._muted:
            self._arm()
            self._framing = b""
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of its path came."""
        if not self._muted:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers came."""
        if not self._muted:
            super().on_header(name, value)
            if name.lower() in (b"content-length", b"transfer-encoding") and value != b"0":
                self._framing = name + b": " + value

    def on_headers_complete(self) -> None:
        """All of them came."""
        if not self._muted:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of it came."""
        if self._framing and self.parser.should_upgrade():
            return
        self._disarm()
        super().on_message_complete()

    # A slow one ---------------------------------------------------------------------------------------------------

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
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


Connection: type[asyncio.Protocol] = _Connection
"""What uvicorn makes for each connection. Its base class bears no types: it is shown as what it is to asyncio."""
