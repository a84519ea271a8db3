"""Running the service: sockets, TLS, slow clients, and a graceful end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pawl.service.requests import State

__all__ = ["Listening", "serve"]

_REQUEST_TIMEOUT = 10


class _Joined:
    """A transport that writes at the end of a turn of the loop: head and body of an answer wake their reader once."""

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
        """Write soon."""
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


_SLOW = (
    b'{"type":"urn:pawl:problem:SLOW_REQUEST","title":"Request Timeout","status":408,"code":"SLOW_REQUEST",'
    + (b'"detail":"the request took more than %d s to arrive; send it in one go"}' % _REQUEST_TIMEOUT)
)


class _Patient(HttpToolsProtocol):
    """A connection that a client cannot keep open by sending a request slowly."""

    _slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(cast("asyncio.Transport", _Joined(transport, self.loop)))
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._arm()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._disarm()
        super().on_message_complete()

    def _arm(self) -> None:
        self._disarm()
        self._slow = self.loop.call_later(_REQUEST_TIMEOUT, self._too_slow)

    def _disarm(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nCache-Control: no-store\r\n"
                b"Content-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(_SLOW), _SLOW)
            )
            self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn's server, which first says that it is not ready, and wakes those who wait when it ends."""

    def __init__(self, config: uvicorn.Config, state: State, delay: float) -> None:
        super().__init__(config)
        self._state = state
        self._delay = delay

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        again, self._state.draining = self._state.draining, True
        if again or not self._delay:
            self._end(sig, frame)
        else:
            # Balancers see /readyz first, so that nobody is sent here when the port closes.
            asyncio.get_running_loop().call_later(self._delay, self._end, sig, frame)

    def _end(self, sig: int, frame: FrameType | None) -> None:
        self._state.spaces.interrupt()
        for end in self._state.at_end:
            end()
        super().handle_exit(sig, frame)


class Listening:
    """Where and how it listens.

    Args:
        host: The address.
        port: The port; 0 takes a free one.
        certificate: A file with its certificate chain; None: plain HTTP.
        key: A file with its private key.
        client_ca: A file with the authorities whose clients are let in; None: any client.
        drain_delay: Seconds between "not ready" and closing the port.
        connections: How many at once.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        certificate: str | None = None,
        key: str | None = None,
        client_ca: str | None = None,
        drain_delay: float = 0.0,
        connections: int = 20_000,
    ) -> None:
        self.host = host
        self.port = port
        self.certificate = certificate
        self.key = key
        self.client_ca = client_ca
        self.drain_delay = drain_delay
        self.connections = connections

    def config(self, app: ASGIApp) -> uvicorn.Config:
        """As uvicorn takes it."""
        return uvicorn.Config(
            app,
            host=self.host,
            port=self.port,
            http=_Patient,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=10,
            limit_concurrency=self.connections,
            backlog=4096,
            ssl_certfile=self.certificate,
            ssl_keyfile=self.key,
            ssl_ca_certs=self.client_ca,
            ssl_cert_reqs=ssl.CERT_REQUIRED if self.client_ca else ssl.CERT_NONE,
        )


def serve(
    app: ASGIApp, state: State, listening: Listening, started: Callable[[int], object] | None = None
) -> bool:
    """Serve until a signal ends it.

    Returns:
        False if it could not begin.
    """
    server = _Server(listening.config(app), state, listening.drain_delay)
    if started is not None:
        begin = server.startup

        async def startup(sockets: Any = None) -> None:
            await begin(sockets)
            if server.started:
                ports = [s.getsockname()[1] for one in server.servers for s in one.sockets]
                started(ports[0] if ports else listening.port)

        server.startup = startup  # type: ignore[method-assign]
    server.run()
    return server.started
