"""Running the service: sockets, TLS, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from pawlock.service.health import create_probes
from pawlock.service.requests import State

__all__ = ["Listening", "bind", "serve"]

_BACKLOG = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where and how it listens.

    Args:
        sockets: For its clients.
        probes: For probes, in plain HTTP; empty: none.
        certificate: A file with its certificate chain; None: plain HTTP.
        key: A file with its private key.
        client_ca: A file with the authorities whose clients are let in; None: any client.
        drain_delay: Seconds between "not ready" and closing the port.
        access_log: Whether a line is written for each request.
    """

    sockets: list[socket.socket]
    probes: list[socket.socket]
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    drain_delay: float = 0.0
    access_log: bool = False


def _server(app: ASGIApp, access_log: bool, **options: Any) -> uvicorn.Server:  # noqa: FBT001
    # The program says what is logged, and where. Not httptools: it loses the body of a request that offers to change
    # to HTTP/2, as each first one of Java's HttpClient does.
    config = uvicorn.Config(
        app, http="h11", ws="none", log_config=None, log_level="info" if access_log else "warning", access_log=access_log,
        server_header=False, proxy_headers=False, backlog=_BACKLOG, timeout_keep_alive=75,
        timeout_graceful_shutdown=10, **options,
    )  # fmt: skip
    return uvicorn.Server(config)


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
    _allow_many_files()
    loop_factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_serve(app, state, listening, started))


async def _serve(
    app: ASGIApp, state: State, listening: Listening, started: Callable[[int, int | None], object]
) -> bool:
    main = _server(
        app,
        listening.access_log,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
        ssl_ca_certs=listening.client_ca,
        ssl_cert_reqs=ssl.CERT_REQUIRED if listening.client_ca else ssl.CERT_NONE,
    )
    probes = _server(create_probes(state), listening.access_log, lifespan="off")
    loop = asyncio.get_running_loop()
    running = loop.create_task(main.serve(listening.sockets))
    probing = loop.create_task(probes.serve(listening.probes))
    while not (main.started and probes.started) and not running.done():  # noqa: ASYNC110 - uvicorn has no event
        await asyncio.sleep(0.01)

    def end() -> None:
        state.spaces.interrupt()
        main.should_exit = True

    def told(number: int) -> None:
        """Begin to shut down; a second signal skips the drain delay, and a third Ctrl-C aborts running requests."""
        if main.should_exit and number == signal.SIGINT:
            main.force_exit = True
        elif state.draining or not listening.drain_delay:
            state.draining = True
            end()
        else:
            # Balancers see /readyz first, so that nobody is sent here when the port closes.
            state.draining = True
            loop.call_later(listening.drain_delay, end)

    if not running.done():
        # After uvicorn's own, which would end by the same signal in turn: a request to end is no failure.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told, number)
        probed = _port_of(listening.probes[0]) if listening.probes else None
        started(_port_of(listening.sockets[0]), probed)
    await asyncio.wait([running])
    probes.should_exit = True
    await asyncio.gather(running, probing)
    return main.started


def _allow_many_files() -> None:
    """Raise the limit of open files as far as it may be: the usual 1,024 are for programs that wait with select()."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bind(host: str, *ports: int) -> list[list[socket.socket]]:
    """For each port, a socket for each address of a host; bound at once, so that a port in use is reported first.

    Raises:
        OSError: An address that cannot be listened on; its text says which.
    """
    bound: list[list[socket.socket]] = []
    with contextlib.ExitStack() as opened:
        for port in ports:
            found: list[socket.socket] = []
            try:
                known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
                for family, _, _, _, address in dict.fromkeys(known):
                    where = (address[0], port or (_port_of(found[0]) if found else 0))
                    one = socket.create_server(where, family=family, backlog=_BACKLOG)
                    found.append(opened.enter_context(one))
            except OSError as error:
                why = error.strerror or str(error)
                raise OSError(error.errno, f"cannot listen on {host} port {port}: {why}") from error
            bound.append(found)
        opened.pop_all()
    return bound


def _port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])
