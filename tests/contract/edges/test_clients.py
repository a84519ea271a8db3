"""A client of redis-py or valkey-py handed over: its address and login are taken, its pool is left alone."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
import redis.sentinel
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

import pawlock
from tests.contract.edges.helpers import holder_of
from tests.support.servers import Server

HAS_VALKEY = importlib.util.find_spec("valkey") is not None
LIBRARIES = ["redis", "redis.asyncio", *(["valkey", "valkey.asyncio"] if HAS_VALKEY else [])]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"decode_responses": True},
    {"protocol": 2},
    {"protocol": 3},
    {"encoding": "utf-16", "encoding_errors": "ignore"},
    {"socket_timeout": 0.001, "socket_connect_timeout": 5, "health_check_interval": 1},
    {"max_connections": 1, "single_connection_client": False, "client_name": "theirs"},
]


def make(library: str, **settings: Any) -> Any:
    module = importlib.import_module(library)
    return (getattr(module, "Valkey", None) or module.Redis)(**settings)


async def dispose(client: Any) -> None:
    done = client.aclose() if hasattr(client, "aclose") else client.close()
    if asyncio.iscoroutine(done):
        await done


def pool_use(client: Any) -> int:
    """How many connections its pool has made or handed out."""
    pool = client.connection_pool
    used = getattr(pool, "_in_use_connections", None)
    free = getattr(pool, "_available_connections", None)
    return len(used or ()) + len([c for c in free or () if c is not None])


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_api_takes_each_client(valkey: Server, library: str) -> None:
    for settings in SETTINGS:
        valkey.command("FLUSHALL")
        theirs = make(library, host="127.0.0.1", port=valkey.port, db=3, **settings)
        before = dict(theirs.connection_pool.connection_kwargs)
        with pawlock.connect(theirs) as client, client.lock("handed") as lease:
            keys = valkey.command("INFO", "keyspace")
            assert isinstance(keys, bytes)
            assert b"db3" in keys
            assert b"db0" not in keys
            lease.extend(9)

        async def main(theirs: Any = theirs) -> None:
            async with pawlock.connect_async(theirs) as client, client.lock("handed") as lease:
                await lease.extend(9)
            await dispose(theirs)

        asyncio.run(main())
        assert pool_use(theirs) == 0, f"{settings}: a connection of the pool was used"
        assert theirs.connection_pool.connection_kwargs == before, settings


def test_retries_of_the_client_stay_with_it(valkey: Server) -> None:
    theirs = redis.Redis(
        port=valkey.port, retry=Retry(ExponentialBackoff(), 50), retry_on_error=[ConnectionError]
    )
    with pawlock.connect(theirs) as client, client.lock("retries"):
        assert "retry" not in client._runtime._route.find().settings
    assert theirs.get_retry() is not None
    theirs.close()


def test_a_pool_in_use_stays_in_use(valkey: Server) -> None:
    """The only connection of the pool is taken by its owner all the while."""
    theirs = redis.Redis(port=valkey.port, max_connections=1)
    pubsub = theirs.pubsub()
    pubsub.subscribe("mine")
    with pawlock.connect(theirs) as client, client.lock("busy"):
        pass
    assert pubsub.get_message(timeout=5) is not None
    pubsub.close()
    theirs.close()


@pytest.mark.parametrize("library", LIBRARIES)
def test_unix_sockets(valkey: Server, library: str) -> None:
    theirs = make(library, unix_socket_path=valkey.socket_path, db=2)
    with pawlock.connect(theirs) as client, client.lock("unix"):
        assert str(valkey.socket_path) in client._runtime._route.find().shown

    async def main() -> None:
        async with pawlock.connect_async(theirs) as client, client.lock("unix"):
            pass
        await dispose(theirs)

    asyncio.run(main())
    url = redis.Redis.from_url(valkey.unix_url)
    with pawlock.connect(url) as client, client.lock("unix url"):
        assert holder_of(valkey, "unix url") is not None
    url.close()


def test_user_and_password(valkey: Server) -> None:
    valkey.command("ACL", "SETUSER", "keeper", "on", ">open sesame", "~*", "&*", "+@all")
    try:
        for library in LIBRARIES:
            for settings in (
                {"username": "keeper", "password": "open sesame"},
                {"credential_provider": _provider(library)},
            ):
                theirs = make(library, port=valkey.port, **settings)
                with pawlock.connect(theirs) as client, client.lock("user"):
                    who = valkey.command("CLIENT", "LIST")
                    assert isinstance(who, bytes)
                    assert b"user=keeper" in who
                asyncio.run(dispose(theirs))
        wrong = redis.Redis(port=valkey.port, username="keeper", password="wrong")
        with pytest.raises(pawlock.BackendDenied) as caught:
            pawlock.connect(wrong).lock("user").acquire()
        assert "wrong" not in str(caught.value).replace("WRONGPASS", "")
        wrong.close()
    finally:
        valkey.command("ACL", "DELUSER", "keeper")


def _provider(library: str) -> object:
    module = importlib.import_module(library.split(".", maxsplit=1)[0])
    return module.UsernamePasswordCredentialProvider("keeper", "open sesame")


# TLS


def _openssl(*args: str) -> None:
    subprocess.run(["openssl", *args], check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH")
    folder = tmp_path_factory.mktemp("tls")
    _openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost", "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def tls(certificates: Path) -> Iterator[int]:
    from tests.support.servers import free_port

    port = free_port()
    files = {"cert": "cert.pem", "key": "key.pem", "ca-cert": "cert.pem"}
    args = [a for name, file in files.items() for a in (f"--tls-{name}-file", str(certificates / file))]
    server = Server("redis", args=["--tls-port", str(port), "--tls-auth-clients", "no", *args])
    try:
        server.start()
    except (RuntimeError, FileNotFoundError):
        pytest.skip("no server with TLS")
    with server:
        yield port


class OwnConnection(redis.SSLConnection):
    """A user's own class of connections: what it is matters, not what it is called."""


def test_tls_settings_are_kept(tls: int, certificates: Path) -> None:
    ca = str(certificates / "cert.pem")
    good = redis.Redis(host="localhost", port=tls, ssl=True, ssl_ca_certs=ca)
    with pawlock.connect(good) as client, client.lock("tls"):
        assert client._runtime._route.find().scheme == "rediss"

    async def main() -> None:
        async with pawlock.connect_async(good) as client, client.lock("tls"):
            pass

    asyncio.run(main())
    pool = redis.ConnectionPool(OwnConnection, host="localhost", port=tls, ssl_ca_certs=ca)
    by_url = redis.Redis.from_url(f"rediss://localhost:{tls}?ssl_ca_certs={ca}")
    for theirs in (redis.Redis(connection_pool=pool), by_url):
        with pawlock.connect(theirs) as client, client.lock("tls"):
            pass
        theirs.close()
    good.close()


def test_a_tls_check_that_one_api_lacks_is_not_dropped(tls: int, certificates: Path) -> None:
    ca = str(certificates / "cert.pem")
    theirs = redis.Redis(host="localhost", port=tls, ssl=True, ssl_ca_certs=ca, ssl_validate_ocsp=True)

    async def main() -> None:
        async with pawlock.connect_async(theirs) as client:
            with pytest.raises(pawlock.NotSupported, match="ssl_validate_ocsp"):
                await client.lock("tls").acquire()

    asyncio.run(main())
    theirs.close()


def test_tls_that_does_not_verify_is_refused(tls: int, certificates: Path) -> None:
    ca = str(certificates / "cert.pem")
    cases: list[dict[str, Any]] = [
        {"host": "localhost"},  # nobody vouches for the certificate
        {
            "host": "127.0.0.1",
            "ssl_ca_certs": ca,
            "ssl_check_hostname": True,
        },  # it is made out to another name
    ]
    for settings in cases:
        theirs = redis.Redis(port=tls, ssl=True, **settings)
        with pytest.raises(pawlock.BackendUnavailable, match="TLS"):
            pawlock.connect(theirs).lock("tls", unavailable_after=0.2).acquire()
        theirs.close()
    lax = redis.Redis(host="localhost", port=tls, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False)
    with pawlock.connect(lax) as client, client.lock("tls"):
        pass
    lax.close()


# What is not a client


def _bad() -> list[tuple[str, Callable[[], Any], type[pawlock.PawlockError], str]]:
    def cluster() -> Any:
        return redis.cluster.RedisCluster.__new__(redis.cluster.RedisCluster)

    def remapped() -> Any:
        return redis.asyncio.cluster.RedisCluster(host="h", address_remap=lambda address: address)

    return [
        ("pipeline", lambda: redis.Redis().pipeline(), pawlock.ConfigurationError, "Pipeline"),
        ("async pipeline", lambda: redis.asyncio.Redis().pipeline(), pawlock.ConfigurationError, "Pipeline"),
        ("pubsub", lambda: redis.Redis().pubsub(), pawlock.ConfigurationError, "PubSub"),
        ("async pubsub", lambda: redis.asyncio.Redis().pubsub(), pawlock.ConfigurationError, "PubSub"),
        (
            "monitor",
            lambda: redis.client.Monitor.__new__(redis.client.Monitor),
            pawlock.ConfigurationError,
            "Monitor",
        ),
        ("cluster", cluster, pawlock.ConfigurationError, "RedisCluster"),
        ("remapped cluster", remapped, pawlock.NotSupported, "address_remap"),
        ("sentinel", lambda: redis.sentinel.Sentinel([("h", 1)]), pawlock.ConfigurationError, "Sentinel"),
        (
            "replicas",
            lambda: redis.sentinel.Sentinel([("h", 1)]).slave_for("m"),
            pawlock.ConfigurationError,
            "replicas",
        ),
        ("pool", redis.ConnectionPool, pawlock.ConfigurationError, "ConnectionPool"),
        ("class", lambda: redis.Redis, pawlock.ConfigurationError, "Redis"),
        ("bytes", lambda: b"redis://localhost", pawlock.ConfigurationError, "bytes"),
        ("number", lambda: 6379, pawlock.ConfigurationError, "int"),
        ("dict", lambda: {"host": "h"}, pawlock.ConfigurationError, "dict"),
        ("set", lambda: {"redis://a", "redis://b"}, pawlock.ConfigurationError, "a list of them"),
    ]


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning"
)
def test_what_is_not_a_client() -> None:
    for connect, (what, make_it, error, word) in product((pawlock.connect, pawlock.connect_async), _bad()):
        with pytest.raises(error, match=word):
            pytest.fail(f"{what}: {connect(make_it())!r} was made")


def test_sockets_that_a_test_tool_replaced_are_no_greenlets(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pytest-socket does, and PySocks for a proxy, after pawlock was used."""

    class Guarded(socket.socket):
        pass

    with pawlock.connect(valkey.url) as client:
        client.lock("guarded").acquire().release()
        monkeypatch.setattr(socket, "socket", Guarded)
        client.lock("guarded").acquire().release()
        with pawlock.connect(valkey.url) as other:
            other.lock("guarded").acquire().release()
