"""Connections made by redis-py: its address and TLS handling, with no login and no retries of its own."""

from __future__ import annotations

import asyncio
import codecs
import inspect
import socket
import ssl
from importlib.util import find_spec
from math import inf
from time import monotonic
from typing import Any

import hiredis
import redis
import redis.asyncio

from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.topology.endpoint import Endpoint
from pawlock.transport.wire import refusal_in_greeting

__all__ = ["asks_again", "connected", "fault_of", "is_own", "login_of", "login_of_task", "opened"]

_CLASSES = {"redis": "Connection", "rediss": "SSLConnection", "unix": "UnixDomainSocketConnection"}
_REACHED_BY = ("host", "port", "socket_keepalive", "socket_keepalive_options", "socket_type")

# Python imports the codec when it first resolves a name; what a signal handler raises in an import gets lost.
codecs.lookup("idna")


# Left alone redis-py (since 7.2) reads a file, to report of itself, for each connection.
_QUIET: dict[str, Any] = {"driver_info": None} if find_spec("redis.driver_info") else {}


def _make(module: Any, endpoint: Endpoint, timeout: float) -> Any:
    """A connection of redis-py that is not connected. Raises ``Fault``."""
    cls = getattr(module, _CLASSES[endpoint.scheme])
    if endpoint.scheme == "unix":
        return cls(path=endpoint.settings["path"], socket_timeout=timeout, **_QUIET)
    settings = {key: value for key, value in endpoint.settings.items() if key in _REACHED_BY}
    if endpoint.scheme == "rediss":
        given = {key: value for key, value in endpoint.settings.items() if key.startswith("ssl_")}
        # Host names are verified unless the user says otherwise; older redis-py did not by default.
        given.setdefault("ssl_check_hostname", given.get("ssl_cert_reqs", "required") != "none")
        known = inspect.signature(cls.__init__).parameters
        for key, value in given.items():
            # A client of the other API may have some that this class does not know.
            if key in known:
                settings[key] = value
            elif value:
                # Dropping a check that the user asked for would weaken the connection.
                text = f"{endpoint.shown}: {key} is not supported by this kind of client"
                raise Fault(FaultKind.UNSUPPORTED, text, final=True)
    return cls(socket_timeout=timeout, socket_connect_timeout=timeout, **settings, **_QUIET)


def connected(endpoint: Endpoint, timeout: float) -> socket.socket:
    """A socket to a node, encrypted and not logged in; it blocks without end. Raises ``Fault``."""
    made = _make(redis, endpoint, timeout)
    end = monotonic() + timeout
    try:
        sock: socket.socket = made._connect()  # noqa: SLF001 - redis-py has no other
    except Exception as error:
        if not is_own(error, end):
            raise
        raise (_plain(endpoint) or fault_of(error, endpoint.shown)) from error
    sock.settimeout(None)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


async def opened(endpoint: Endpoint, timeout: float, protocol: asyncio.Protocol) -> None:
    """The same for an event loop: the protocol object gets the connection. Raises ``Fault``."""
    made = _make(redis.asyncio, endpoint, timeout)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            if endpoint.scheme == "unix":
                await loop.create_unix_connection(lambda: protocol, made.path)
                return
            where = made._connection_arguments()  # noqa: SLF001 - as above
            transport, _ = await loop.create_connection(lambda: protocol, **where)
        sock = transport.get_extra_info("socket")
        if made.socket_keepalive and sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in made.socket_keepalive_options.items():
                sock.setsockopt(socket.SOL_TCP, option, value)
    except Exception as error:
        plain = await asyncio.to_thread(_plain, endpoint) if endpoint.scheme == "rediss" else None
        raise (plain or fault_of(error, endpoint.shown)) from error


# The login -----------------------------------------------------------------------------------------------------------


def login_of(endpoint: Endpoint) -> tuple[str, ...]:
    """Username and password, or a password; nothing: there is no login. Raises ``Fault``."""
    settings = endpoint.settings
    if "credential_provider" not in settings:
        login = settings.get("username"), settings.get("password")
        return (login[0] or "default", login[1] or "") if any(login) else ()
    try:
        return tuple(settings["credential_provider"].get_credentials())
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        raise _provider_failed(endpoint, error) from None


async def login_of_task(endpoint: Endpoint) -> tuple[str, ...]:
    """The same, without blocking the loop."""
    provider = endpoint.settings.get("credential_provider")
    ask = getattr(provider, "get_credentials_async", None)
    if ask is None:
        # Without a way of its own for asyncio it may take its time.
        return login_of(endpoint) if provider is None else await asyncio.to_thread(login_of, endpoint)
    try:
        return tuple(await ask())
    except Exception as error:  # noqa: BLE001 - as above
        raise _provider_failed(endpoint, error) from None


def _provider_failed(endpoint: Endpoint, error: Exception) -> Fault:
    """Without its text: that may hold what nobody should see."""
    text = f"{endpoint.shown}: the credential provider failed: {type(error).__name__}"
    return Fault(FaultKind.UNREACHABLE, text)


def asks_again(endpoint: Endpoint, fault: Fault) -> bool:
    """Whether a refused login is worth one more try: a provider may have been a moment behind the server."""
    return fault.kind is FaultKind.DENIED and "credential_provider" in endpoint.settings


# Failures ------------------------------------------------------------------------------------------------------------


def is_own(error: BaseException, end: float = inf) -> bool:
    """Whether an error is the failure of a connection, and not what a signal handler raised on top of its use.

    The limits of Celery, RQ and ``signal.alarm`` raise in the middle of whatever their thread does, and mostly a
    ``TimeoutError``: taken for a failure of the connection it would end no wait, and count as an outage.

    Args:
        error: What was caught right around the I/O.
        end: When a time-out that Python counts is over, which is the only error of a socket without a number.
    """
    if isinstance(error, (Fault, redis.RedisError, ssl.SSLError, hiredis.ProtocolError, UnicodeError)):
        return True
    if not isinstance(error, OSError):
        return False
    return error.errno is not None or (isinstance(error, TimeoutError) and monotonic() >= end)


def fault_of(error: BaseException, shown: str) -> Fault:
    """What an error of the connect or of the greeting means.

    Args:
        error: What redis-py, the system or TLS raised.
        shown: The address, without credentials.
    """
    text = str(error) or type(error).__name__
    where = f"{shown}: {text}"
    if isinstance(error, hiredis.ReplyError):
        return refusal_in_greeting(text, shown)
    if isinstance(error, hiredis.ProtocolError):
        return Fault(FaultKind.NOT_REDIS, where, final=True)
    if isinstance(error, ssl.SSLError):
        return Fault(FaultKind.NO_TLS, f"{shown}: {_tls_hint(error, text)}: {text}", final=True)
    if isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
        # So a TLS port answers what it does not understand.
        where += _CUT_OFF.get(shown.partition(":")[0], "")
    return Fault(FaultKind.UNREACHABLE, where)


def _tls_hint(error: ssl.SSLError, text: str) -> str:
    """Why a TLS handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "TLS failed: the certificate of the server is not trusted"
    if "certificate required" in text.lower().replace("_", " "):
        return "TLS failed: the server requires a client certificate (ssl_certfile, ssl_keyfile)"
    # A server that wants one may close before its alert is read.
    return "TLS failed (the port may be plain, or may require a client certificate)"


_CUT_OFF = {
    "redis": " (if this port speaks TLS: use rediss://)",
    "rediss": " (if the server requires a client certificate: ssl_certfile, ssl_keyfile)",
}
"""What it may mean that the other side ends a handshake, by the scheme of the address."""

_PROBE_FOR = 0.5


def _plain(endpoint: Endpoint) -> Fault | None:
    """What to tell if something without TLS answers at an address that is to be reached with TLS.

    A plain port mostly says nothing to a TLS handshake: it waits for the end of a line. That looks like a server that
    hangs, which may pass; so after a failed handshake one plain PING, which any Redis answers, distinguishes them.
    """
    if endpoint.scheme != "rediss":
        return None
    end = monotonic() + _PROBE_FOR
    address = endpoint.settings.get("host", "localhost"), endpoint.settings.get("port", 6379)
    try:
        with socket.create_connection(address, timeout=_PROBE_FOR) as probe:
            probe.sendall(b"PING\r\n")
            if probe.recv(16)[:1] not in (b"+", b"-"):
                return None
    except OSError as error:
        if not is_own(error, end):
            raise
        return None
    text = f"{endpoint.shown}: the port is plain, without TLS: use redis://"
    return Fault(FaultKind.NOT_REDIS, text, final=True)
