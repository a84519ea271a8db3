"""Running the service: sockets, TLS, slow clients, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from pawlock.service.connections import Connection
from pawlock.service.health import open_probes
from pawlock.service.requests import State

__all__ = ["Listening", "serve"]


_BACKLOG = 4096
_OTHER_FILES = 600
"""How many files it opens besides the connections of its clients: those to the servers of the locks above all."""


_UNDERWAY = 4
"""How many times as many connections as one look at the port accepts (the backlog) are open before the first of them
can be refused: asyncio makes something of a connection three turns of the loop after it was accepted."""


def _room_for(connections: int) -> tuple[int, int]:
    """How many connections can be taken, and the backlog: as wanted, if the process may open so many files."""
    try:
        import resource
    except ImportError:
        return connections, _BACKLOG
    wanted = connections + _UNDERWAY * _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):
            # The usual 1,024 are for programs that wait with select().
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)
    files -= min(_OTHER_FILES, files // 4)
    backlog = max(1, min(_BACKLOG, files // (2 * _UNDERWAY)))
    return max(1, min(connections, files - _UNDERWAY * backlog)), backlog


class _Server(uvicorn.Server):
    """uvicorn's server, which first reports not ready, and wakes waiting requests when it ends."""

    def __init__(self, config: uvicorn.Config, state: State, delay: float) -> None:
        super().__init__(config)
        self._state = state
        self._delay = delay
        self.probes: asyncio.Server | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to shut down; a second signal skips the drain delay, and a third Ctrl-C aborts running requests."""
        del frame
        if self._state.draining:
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self._end()
            return
        self._state.draining = True
        if self._delay:
            # Balancers see /readyz first, so that nobody is sent here when the port closes.
            asyncio.get_running_loop().call_later(self._delay, self._end)
        else:
            self._end()

    async def shutdown(self, sockets: Any = None) -> None:
        """Close all; the probes last."""
        await super().shutdown(sockets)
        if self.probes is not None:
            self.probes.close()

    def _end(self) -> None:
        self._state.spaces.interrupt()
        for end in self._state.at_end:
            end()
        # Not by uvicorn's own way, which ends by the same signal in turn: a request to end is no failure.
        self.should_exit = True


class Listening:
    """Where and how it listens.

    Args:
        host: The address.
        port: The port; 0 takes a free one.
        certificate: A file with its certificate chain; None: plain HTTP.
        key: A file with its private key.
        client_ca: A file with the authorities whose clients are let in; None: any client.
        drain_delay: Seconds between "not ready" and closing the port.
        probe_port: A port for probes, in plain HTTP; 0 takes a free one, None: none.
        connections: How many at once; fewer where the system lets the process open fewer files.

    Raises:
        OSError: An address that cannot be listened on; its text says which.
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
        probe_port: int | None = None,
        connections: int = 20_000,
    ) -> None:
        # Bound at once: a port in use is reported before anything else is printed.
        self.listeners: list[socket.socket] = _bind(host, port)
        try:
            self.probes: list[socket.socket] = [] if probe_port is None else _bind(host, probe_port)[:1]
        except OSError:
            for listener in self.listeners:
                listener.close()
            raise
        self.certificate = certificate
        self.key = key
        self.client_ca = client_ca
        self.drain_delay = drain_delay
        self.connections = connections

    def config(self, app: ASGIApp) -> uvicorn.Config:
        """As uvicorn takes it."""
        connections, backlog = _room_for(self.connections)
        return uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=10,
            limit_concurrency=connections,
            backlog=backlog,
            ssl_certfile=self.certificate,
            ssl_keyfile=self.key,
            ssl_ca_certs=self.client_ca,
            ssl_cert_reqs=ssl.CERT_REQUIRED if self.client_ca else ssl.CERT_NONE,
        )


def serve(
    app: ASGIApp, state: State, listening: Listening, started: Callable[[int, int | None], object]
) -> bool:
    """Serve until a signal ends it.

    Args:
        app: The service.
        state: The same.
        listening: Where.
        started: Called with its port and that for probes once it listens.

    Returns:
        False if it could not begin.
    """
    server = _Server(listening.config(app), state, listening.drain_delay)
    begin = server.startup

    async def startup(sockets: Any = None) -> None:
        await begin(sockets)
        if not server.started:
            return
        for listener in listening.listeners:
            # So many may wait in the system, however few are accepted at a time.
            listener.listen(_BACKLOG)
        probe_port = None
        for listener in listening.probes:
            server.probes = await open_probes(state, listener)
            probe_port = _port_of(listener)
        started(_port_of(listening.listeners[0]), probe_port)

    server.startup = startup  # type: ignore[method-assign]
    server.run(sockets=listening.listeners)
    return server.started


def _bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of a host, all of one port."""
    found: list[socket.socket] = []
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(known):
            where = (address[0], port or (_port_of(found[0]) if found else 0))
            one = socket.create_server(where, family=family, backlog=_BACKLOG)
            one.setblocking(False)
            found.append(one)
    except OSError as error:
        for one in found:
            one.close()
        why = error.strerror or str(error)
        raise OSError(error.errno, f"cannot listen on {host} port {port}: {why}") from error
    return found


def _port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
