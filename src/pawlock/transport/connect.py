"""Connections made by redis-py: its address, TLS and login handling, with no retries of its own."""

from __future__ import annotations

import asyncio
import codecs
import inspect
import socket
import ssl
from collections.abc import Iterator, Mapping
from math import inf
from time import monotonic
from typing import Any, cast

import hiredis
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    TryAgainError,
)
from redis.retry import Retry

from pawlock.core.protocol.faults import classify
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.errors import ConfigurationError, NotSupported
from pawlock.topology.endpoint import Endpoint, check_files

__all__ = [
    "asks_again",
    "connected",
    "endpoint_of",
    "fault_of",
    "is_own",
    "is_plain",
    "is_plain_async",
    "kept_settings",
    "login_of",
    "make_async",
    "make_sync",
    "plain_port",
]

_TAKEN = frozenset(
    {
        "client_name",
        "credential_provider",
        "db",
        "host",
        "password",
        "path",
        "port",
        "socket_keepalive",
        "socket_keepalive_options",
        "socket_type",
        "username",
    },
)


def endpoint_of(client: object) -> Endpoint:
    """The endpoint of a client of redis-py or valkey-py, sync or asyncio. Its pool and its settings stay untouched.

    Raises:
        ConfigurationError: It is not such a client (a pipeline, a connection, …).
        NotSupported: A cluster or Sentinel client, which is more than one server.
    """
    names = {cls.__name__ for cls in type(client).__mro__}
    if names & {"RedisCluster", "ValkeyCluster", "ClusterPipeline"}:
        raise NotSupported("a cluster client is not one server")
    if names & {"Pipeline", "PubSub", "Monitor"}:
        raise ConfigurationError(
            f"a {type(client).__name__} is not a client: pass the Redis object that created it"
        )
    pool = getattr(client, "connection_pool", None)
    found = getattr(pool, "connection_kwargs", None)
    if pool is None or not isinstance(found, dict):
        raise ConfigurationError(
            f"cannot connect with a {type(client).__name__}: "
            "pass a URL, or a Redis or Valkey client (redis-py, valkey-py; sync or asyncio)",
        )
    if "Sentinel" in type(pool).__name__:
        raise NotSupported("a client of Sentinel is not one server")
    tls = any("SSL" in cls.__name__ for cls in getattr(pool, "connection_class", object).__mro__)
    kept = kept_settings(cast("dict[str, Any]", found), secure=tls)
    check_files(kept)
    if "path" in kept:
        return Endpoint("unix", f"unix://{kept['path']}?db={kept.get('db', 0)}", kept)
    scheme = "rediss" if tls else "redis"
    shown = f"{scheme}://{kept.get('host', 'localhost')}:{kept.get('port', 6379)}/{kept.get('db', 0)}"
    return Endpoint(scheme, shown, kept)


def kept_settings(found: Mapping[str, Any], *, secure: bool) -> dict[str, Any]:
    """What pawlock takes of a client's settings: address, login and, where it speaks TLS, its options."""
    kept = {
        key: value
        for key, value in found.items()
        if value is not None and (key in _TAKEN or (secure and key.startswith("ssl_")))
    }
    if not isinstance(kept.get("socket_keepalive_options", {}), Mapping):
        # redis-py's own sentinel for "the defaults".
        del kept["socket_keepalive_options"]
    return kept


def _library() -> dict[str, Any]:
    """What redis-py reports of itself to the server; left alone it reads a file, and imports, for each connection."""
    try:
        # Since redis-py 7.2.
        from redis.driver_info import DriverInfo
    except ImportError:
        return {"lib_version": redis.__version__}
    return {"driver_info": DriverInfo(lib_version=redis.__version__)}


_LIBRARY: dict[str, Any] = _library()

# Python imports the codec when it first resolves a name; what a signal handler raises in an import gets lost.
codecs.lookup("idna")


def _settings(endpoint: Endpoint, timeout: float) -> dict[str, Any]:
    settings = {
        **_LIBRARY,
        **endpoint.settings,
        "protocol": 3,
        "decode_responses": False,
        "health_check_interval": 0,
        "socket_timeout": timeout,
    }
    if "credential_provider" in settings:
        settings["credential_provider"] = _Provider(settings["credential_provider"])
    if endpoint.scheme == "unix":
        settings.pop("socket_keepalive", None)
    else:
        settings["socket_connect_timeout"] = timeout
    if endpoint.scheme == "rediss":
        # Host names are verified unless the user says otherwise; older redis-py did not by default.
        settings.setdefault("ssl_check_hostname", settings.get("ssl_cert_reqs", "required") != "none")
    return settings


def _fit(cls: Any, settings: dict[str, Any], shown: str) -> dict[str, Any]:
    """The settings without TLS options that this class does not know: a client of the other API may have some."""
    known = inspect.signature(cls.__init__).parameters if "ssl_check_hostname" in settings else settings
    for key in [key for key in settings if key.startswith("ssl_") and key not in known]:
        if settings[key]:
            # Dropping a check that the user asked for would weaken the connection.
            raise Fault(
                FaultKind.UNSUPPORTED, f"{shown}: {key} is not supported by this kind of client", final=True
            )
        del settings[key]
    return settings


def make_sync(endpoint: Endpoint, timeout: float) -> Any:
    """A connection of redis-py that is not yet connected."""
    classes = {
        "redis": redis.Connection,
        "rediss": redis.SSLConnection,
        "unix": redis.UnixDomainSocketConnection,
    }
    return _make(classes[endpoint.scheme], endpoint, timeout, Retry(NoBackoff(), 0))


def connected(endpoint: Endpoint, timeout: float) -> socket.socket:
    """A socket to a node, encrypted and not logged in; it blocks without end. Raises ``Fault``."""
    end = monotonic() + timeout
    try:
        sock: socket.socket = make_sync(endpoint, timeout)._connect()  # noqa: SLF001 - redis-py has no other
    except Exception as error:
        if not is_own(error, end):
            raise
        fault = fault_of(error, endpoint.shown)
        if fault.kind is FaultKind.UNREACHABLE and is_plain(endpoint):
            fault = plain_port(endpoint.shown)
        raise fault from error
    sock.settimeout(None)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def login_of(endpoint: Endpoint) -> Iterator[tuple[tuple[bytes, ...], bool]]:
    """What logs in to a node: each command, and whether the node must agree to it."""
    settings = endpoint.settings
    login: tuple[Any, ...] = ()
    if "credential_provider" in settings:
        login = tuple(_Provider(settings["credential_provider"]).get_credentials())
    elif settings.get("username") or settings.get("password"):
        login = settings.get("username") or "default", settings.get("password") or ""
    if login:
        login = ("AUTH", *(("default",) if len(login) == 1 else ()), *login)
    yield _as_bytes("HELLO", 3, *login), True
    if settings.get("client_name"):
        yield _as_bytes("CLIENT", "SETNAME", settings["client_name"]), True
    yield _as_bytes("CLIENT", "SETINFO", "LIB-NAME", "redis-py"), False
    yield _as_bytes("CLIENT", "SETINFO", "LIB-VER", redis.__version__), False
    if settings.get("db"):
        yield _as_bytes("SELECT", settings["db"]), True


def _as_bytes(*words: object) -> tuple[bytes, ...]:
    return tuple([word if isinstance(word, bytes) else str(word).encode() for word in words])


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


def make_async(endpoint: Endpoint, timeout: float) -> Any:
    """The same of redis.asyncio."""
    module = redis.asyncio
    classes = {
        "redis": module.Connection,
        "rediss": module.SSLConnection,
        "unix": module.UnixDomainSocketConnection,
    }
    return _make(classes[endpoint.scheme], endpoint, timeout, AsyncRetry(NoBackoff(), 0))


def _make(cls: Any, endpoint: Endpoint, timeout: float, retry: object) -> Any:
    settings = _fit(cls, _settings(endpoint, timeout), endpoint.shown)
    return cls(retry=retry, **settings)


class _Provider(CredentialProvider):
    """The user's provider, whose failures are reported without their texts: these may hold what nobody should see."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def get_credentials(self) -> Any:
        try:
            return self._provider.get_credentials()
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            raise _provider_failed(error) from None

    async def get_credentials_async(self) -> Any:
        ask = getattr(self._provider, "get_credentials_async", None)
        try:
            # Without a way of its own for asyncio it may take its time, and must not stop the loop.
            return await (asyncio.to_thread(self._provider.get_credentials) if ask is None else ask())
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            raise _provider_failed(error) from None


def _provider_failed(error: Exception) -> redis.ConnectionError:
    return redis.ConnectionError(f"the credential provider failed: {type(error).__name__}")


def asks_again(endpoint: Endpoint, fault: Fault) -> bool:
    """Whether a refused login is worth one more try: a provider may have been a moment behind the server."""
    return fault.kind is FaultKind.DENIED and "credential_provider" in endpoint.settings


_NOT_READ = (AttributeError, TypeError, KeyError, IndexError)
"""What redis-py raises when it reads an answer that does not come from a Redis server."""

_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (MasterDownError, "MASTERDOWN"),
    (ClusterDownError, "CLUSTERDOWN"),
    (TryAgainError, "TRYAGAIN"),
    (MovedError, "MOVED"),
    (AskError, "ASK"),
    (OutOfMemoryError, "OOM"),
    (redis.ReadOnlyError, "READONLY"),
)
"""Errors of redis-py whose text lacks the first word of the server's."""


def _words_of(error: BaseException) -> str:
    """The server's own words, as far as redis-py leaves them."""
    if isinstance(error, _NOT_READ):
        return "it does not answer like a Redis server"
    word = next((f"{word} " for cls, word in _WORDS if isinstance(error, cls)), "")
    return word + (str(error) or type(error).__name__)


def fault_of(error: BaseException, shown: str) -> Fault:  # noqa: PLR0911 - one return for each cause
    """What an error of the connect or handshake means.

    Args:
        error: What redis-py, the system or TLS raised.
        shown: The address, without credentials.
    """
    text = _words_of(error)
    where = f"{shown}: {text}"
    if isinstance(error, (redis.AuthenticationError, NoPermissionError)):
        return Fault(FaultKind.DENIED, where, final=True)
    garbled = isinstance(error, (redis.InvalidResponse, hiredis.ProtocolError, *_NOT_READ))
    if garbled or "Protocol error" in text or "Protocol Error" in text:
        return Fault(FaultKind.NOT_REDIS, where, final=True)
    if _has_cause(error, ssl.SSLError) or "SSL" in text:
        return Fault(FaultKind.NO_TLS, f"{shown}: {_tls_hint(error, text)}: {text}", final=True)
    if isinstance(error, (redis.ResponseError, hiredis.ReplyError)) and not isinstance(
        error, redis.ConnectionError
    ):
        if "unknown command" in text.lower() and "hello" in text.lower():
            text = "a server without HELLO: pawlock needs Redis 6.2 or Valkey 8, or later"
            return Fault(FaultKind.UNSUPPORTED, f"{shown}: {text}", final=True)
        if "DB index" in text:
            return Fault(FaultKind.UNSUPPORTED, f"{where}: the server has no such database", final=True)
        fault = classify(text)
        final = fault.kind in (FaultKind.DENIED, FaultKind.UNSUPPORTED)
        return Fault(fault.kind, where, final=final)
    if "max number of clients" in text or isinstance(error, redis.BusyLoadingError):
        return Fault(FaultKind.NOT_READY, where)
    if _was_cut_off(text):
        where += _CUT_OFF.get(shown.partition(":")[0], "")
    return Fault(FaultKind.UNREACHABLE, where)


def _tls_hint(error: BaseException, text: str) -> str:
    """Why a TLS handshake failed."""
    if _has_cause(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in text:
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


def _was_cut_off(text: str) -> bool:
    """Whether the other side ended a handshake: so a TLS port answers what it does not understand."""
    return "reset by peer" in text or "closed by server" in text.lower() or "server closed" in text


# A plain port mostly says nothing to a TLS handshake: it waits for the end of a line. That looks like a server that
# hangs, which may pass; so after a silent handshake one plain PING, which any Redis answers, distinguishes them.

_PROBE = b"PING\r\n"
_PROBE_FOR = 0.5


def is_plain(endpoint: Endpoint) -> bool:
    """Whether something without TLS answers at an address that is to be reached with TLS."""
    if endpoint.scheme != "rediss":
        return False
    end = monotonic() + _PROBE_FOR
    try:
        with socket.create_connection(_address(endpoint), timeout=_PROBE_FOR) as probe:
            probe.sendall(_PROBE)
            return _is_reply(probe.recv(16))
    except OSError as error:
        if not is_own(error, end):
            raise
        return False


async def is_plain_async(endpoint: Endpoint) -> bool:
    """The same for asyncio."""
    if endpoint.scheme != "rediss":
        return False
    try:
        async with asyncio.timeout(_PROBE_FOR):
            reader, writer = await asyncio.open_connection(*_address(endpoint))
            try:
                writer.write(_PROBE)
                return _is_reply(await reader.read(16))
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def plain_port(shown: str) -> Fault:
    """What ``is_plain`` says of an address."""
    return Fault(FaultKind.NOT_REDIS, f"{shown}: the port is plain, without TLS: use redis://", final=True)


def _address(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.settings.get("host", "localhost"), endpoint.settings.get("port", 6379)


def _is_reply(answer: bytes) -> bool:
    return answer[:1] in (b"+", b"-")


def _has_cause(error: BaseException | None, cls: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, cls):
            return True
        error = error.__cause__ or error.__context__
    return False
