"""How a connection is opened: address and TLS by redis-py, the login, what the server must be, and the channel."""

from __future__ import annotations

import asyncio
import codecs
import inspect
import re
import socket
import ssl
from collections.abc import Sequence
from importlib.util import find_spec
from math import inf
from typing import Any

import hiredis
import redis
import redis.asyncio

from pawlock._system import monotonic
from pawlock.core.faults import classify
from pawlock.core.runtime import NO_CHANNEL, Fault, FaultKind
from pawlock.topology.endpoint import Endpoint
from pawlock.topology.sentinel import fields_of
from pawlock.transport.conn import ReplyError

__all__ = ["Greeting", "asks_again", "connected", "fault_of", "is_own", "login_of", "login_of_task", "opened"]

_CLASSES = {"redis": "Connection", "rediss": "SSLConnection", "unix": "UnixDomainSocketConnection"}
_REACHED_BY = ("host", "port", "socket_keepalive", "socket_keepalive_options", "socket_type")

_OLDEST = (6, 2)

_SPARED = (b"SUBSCRIBE", b"PUBLISH", b"INFO")
_NOT_HERE = (FaultKind.DENIED, FaultKind.UNSUPPORTED, FaultKind.SCRIPT)
"""What may be refused, and with what kinds of words; without it waiters poll, and less is known of the server."""

_ADVICE = {
    "standalone": "the server is not part of a cluster: use redis://",
    "cluster": "a node of a cluster: use redis+cluster://",
    "sentinel": "a Sentinel: use redis+sentinel://host,host,host/service",
}

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
        # Without frames: that of redis-py has the error as well, and all its callers would stay with the two.
        raise _plain_or(endpoint, error) from error.with_traceback(None)
    sock.settimeout(None)
    if endpoint.scheme != "unix":
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
        error.with_traceback(None)
        if endpoint.scheme == "rediss":
            raise await asyncio.to_thread(_plain_or, endpoint, error) from error
        raise fault_of(error, endpoint.shown) from error


# The login -----------------------------------------------------------------------------------------------------------


def login_of(endpoint: Endpoint) -> tuple[str, ...]:
    """Username and password, or a password; nothing: there is no login. Raises ``Fault``."""
    settings = endpoint.settings
    if "credential_provider" not in settings:
        login = settings.get("username"), settings.get("password")
        return (*filter(None, login[:1]), login[1] or "") if any(login) else ()
    try:
        return tuple(settings["credential_provider"].get_credentials())
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        raise _provider_failed(endpoint.shown, error) from None


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
        raise _provider_failed(endpoint.shown, error) from None


def _provider_failed(shown: str, error: Exception) -> Fault:
    """Without its text: that may hold what nobody should see."""
    return Fault(FaultKind.UNREACHABLE, f"{shown}: the credential provider failed: {type(error).__name__}")


def asks_again(endpoint: Endpoint, fault: Fault) -> bool:
    """Whether a refusal is worth one more try: a provider was a moment behind the server, or that speaks RESP2 only."""
    if fault.kind is FaultKind.UNSUPPORTED:
        return not fault.final
    return fault.kind is FaultKind.DENIED and "credential_provider" in endpoint.settings


class Greeting:
    """The commands that open a connection, and what their answers say.

    The subscription is confirmed before the connection is used, so no message can be missed.

    Args:
        endpoint: Where it leads.
        login: Username and password, or a password; nothing: there is no login.
        channel: The channel on which hand-offs will be heard; "": none; None: whatever is there will do.
        first: Whether the client was never connected before.
        old: Whether it speaks RESP2, in which a connection that listens can ask nothing: it has no channel.

    Attributes:
        commands: What to send, in one write.
        heard: Once all of them are answered, the channel that is heard, or ``NO_CHANNEL``.
    """

    def __init__(
        self, endpoint: Endpoint, login: Sequence[str], channel: str | None, *, first: bool, old: bool
    ) -> None:
        self._endpoint = endpoint
        self._first = first and endpoint.fixed
        self._checks = channel is not None
        self.old: bool = old
        self.heard: str = NO_CHANNEL if old else channel or NO_CHANNEL
        settings = endpoint.settings
        # The password alone where that will do: a proxy may know no users.
        user = () if old or len(login) == 2 else ("default",)
        found: list[tuple[Any, ...]] = [("AUTH", *user, *login)] if login else []
        named = ("SETNAME", settings["client_name"]) if settings.get("client_name") else ()
        found.append(("INFO",) if old else ("HELLO", "3", *named))
        if settings.get("db"):
            found.append(("SELECT", str(settings["db"])))
        if self.heard != NO_CHANNEL:
            # Who may not publish would wait for messages that nobody sends.
            found += ("SUBSCRIBE", channel), ("PUBLISH", channel, "")
        self.commands: list[tuple[bytes, ...]] = [
            tuple([word if isinstance(word, bytes) else str(word).encode() for word in words])
            for words in found
        ]

    def take(self, command: tuple[bytes, ...], reply: Any) -> None:
        """The reply to one of the commands. Raises ``Fault`` if this server cannot be used."""
        shown = self._endpoint.shown
        if isinstance(reply, Fault):
            # Not itself: its request has it, and the frames of the caller have that.
            maybe, final = reply.maybe_applied, reply.final
            raise Fault(reply.kind, reply.text, maybe_applied=maybe, final=final) from reply.__cause__
        if isinstance(reply, ReplyError):
            refusal = _refusal(str(reply), shown)
            if command[0] == b"HELLO" and refusal.kind in (FaultKind.UNSUPPORTED, FaultKind.SCRIPT):
                raise Fault(FaultKind.UNSUPPORTED, refusal.text)
            if command[0] not in _SPARED or refusal.kind not in _NOT_HERE:
                raise refusal
            # This user may not, or nobody may.
            self.heard = NO_CHANNEL
        elif command[0] in (b"HELLO", b"INFO") and self._checks:
            self._check(reply)

    def _check(self, reply: Any) -> None:
        shown, wanted = self._endpoint.shown, self._endpoint.mode
        if self.old and isinstance(reply, bytes) and b":" in reply:
            lines = reply.decode(errors="replace").replace("redis_", "").splitlines()
            reply = dict([line.split(":", 1) for line in lines if ":" in line])
        if not isinstance(reply, (dict, list)):
            raise Fault(FaultKind.NOT_REDIS, f"{shown}: it answers HELLO with {reply!r:.40}", final=True)
        facts = fields_of(reply)
        version = facts.get("version", "")
        found = re.match(r"(\d+)\.(\d+)", version)
        if found and (int(found[1]), int(found[2])) < _OLDEST:
            text = f"{shown}: version {version}; pawlock needs Redis 6.2 or Valkey 8, or later"
            raise Fault(FaultKind.UNSUPPORTED, text, final=True)
        mode = facts.get("mode", wanted)
        if mode != wanted:
            raise Fault(FaultKind.UNSUPPORTED, f"{shown}: {_ADVICE.get(mode, mode)}", final=True)
        if facts.get("role", "master") not in ("master", "primary", "sentinel"):
            # At the first contact the address is wrong; later on it is a failover, which passes.
            raise Fault(
                FaultKind.READ_ONLY, f"{shown} is a replica: use the address of the master", final=self._first
            )


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
    # The kernel's word for a time that is up.
    text = "no answer in time" if isinstance(error, BlockingIOError) else str(error) or type(error).__name__
    where = f"{shown}: {text}"
    if isinstance(error, ReplyError):
        return _refusal(text, shown)
    if isinstance(error, hiredis.ProtocolError):
        return Fault(FaultKind.NOT_REDIS, where, final=True)
    if isinstance(error, ssl.SSLError):
        # A server that wants a certificate may close before its alert is read.
        hint = "TLS failed (the port may be plain, or may require a client certificate)"
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "TLS failed: the certificate of the server is not trusted"
        elif "certificate required" in text.lower().replace("_", " "):
            hint = "TLS failed: the server requires a client certificate (ssl_certfile, ssl_keyfile)"
        return Fault(FaultKind.NO_TLS, f"{shown}: {hint}: {text}", final=True)
    if isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
        # So a TLS port answers what it does not understand.
        where += _CUT_OFF.get(shown.partition(":")[0], "")
    return Fault(FaultKind.UNREACHABLE, where)


def _refusal(text: str, shown: str) -> Fault:
    """What an error reply means by which a server refuses a connection.

    Args:
        text: The error reply.
        shown: The address, without credentials.
    """
    if "DB index" in text:
        text = f"{shown}: {text}: the server has no such database"
        return Fault(FaultKind.UNSUPPORTED, text, final=True)
    kind = classify(text).kind
    return Fault(kind, f"{shown}: {text}", final=kind in (FaultKind.DENIED, FaultKind.UNSUPPORTED))


_CUT_OFF = {
    "redis": " (if this port speaks TLS: use rediss://; a proxy must answer HELLO and pass on scripts)",
    "rediss": " (if the server requires a client certificate: ssl_certfile, ssl_keyfile)",
}
"""What it may mean that the other side ends a handshake, by the scheme of the address."""

_PROBE_FOR = 0.5


def _plain_or(endpoint: Endpoint, error: Exception) -> Fault:
    return _plain(endpoint) or fault_of(error, endpoint.shown)


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
