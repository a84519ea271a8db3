"""Running the service: sockets, TLS, slow clients, and a graceful end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pawl.service.requests import State

__all__ = ["Listening", "serve"]

_HEADER_TIMEOUT = 10.0


class _Patient(HttpToolsProtocol):
    """A connection that a client cannot keep open by sending its headers slowly."""

    _slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._arm()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._disarm()
        super().on_headers_complete()

    def _arm(self) -> None:
        self._disarm()
        self._slow = self.loop.call_later(_HEADER_TIMEOUT, self._too_slow)

    def _disarm(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
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

    def config(self, app: FastAPI) -> uvicorn.Config:
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
    app: FastAPI, state: State, listening: Listening, started: Callable[[int], object] | None = None
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
