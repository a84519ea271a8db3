"""A TLS connection that fails says why, in both APIs; a file that is not there is refused at construction."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import pawlock
from tests.conformance import matrix
from tests.support.servers import Server, available, free_port


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, and one for another host."""
    if reason := available("redis") or matrix.why_not("TLS", "redis"):
        pytest.skip(reason)
    folder = matrix.certificate(tmp_path_factory.mktemp("tls"))
    program = shutil.which("openssl")
    assert program is not None
    words = "req -x509 -newkey rsa:2048 -nodes -subj /CN=example.org -addext subjectAltName=DNS:example.org -days 2"
    files = ["-keyout", f"{folder}/other-key.pem", "-out", f"{folder}/other-cert.pem"]
    subprocess.run([program, *words.split(), *files], check=True, capture_output=True)
    return folder


def _serve(folder: Path, name: str, clients: str) -> tuple[Server, int]:
    port = free_port()
    files = {"cert": f"{name}cert.pem", "key": f"{name}key.pem", "ca-cert": "cert.pem"}
    args = [word for option, file in files.items() for word in (f"--tls-{option}-file", str(folder / file))]
    return Server("redis", args=["--tls-port", str(port), "--tls-auth-clients", clients, *args]), port


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    server, port = _serve(folder, "", "no")
    with server:
        yield port


@pytest.fixture(scope="module")
def strict_port(folder: Path) -> Iterator[int]:
    """It wants a certificate of its clients."""
    server, port = _serve(folder, "", "yes")
    with server:
        yield port


def refusal(api: str, url: str) -> str:
    """What an acquire that cannot reach its server over TLS says."""

    async def ask() -> None:
        async with pawlock.connect_async(url) as client:
            await client.lock("n", unavailable_after=1).acquire(timeout=5)

    def ask_threads() -> None:
        with pawlock.connect(url) as client:
            client.lock("n", unavailable_after=1).acquire(timeout=5)

    with pytest.raises(pawlock.BackendUnavailable) as caught:
        asyncio.run(ask()) if api == "asyncio" else ask_threads()
    return str(caught.value)


each_api = pytest.mark.parametrize("api", ["threads", "asyncio"])


@each_api
def test_nobody_vouches_for_the_certificate(api: str, port: int) -> None:
    said = refusal(api, f"rediss://localhost:{port}/0")
    assert "the certificate of the server is not trusted" in said
    assert "Redis protocol" not in said


@each_api
def test_the_certificate_is_of_another_host(api: str, folder: Path) -> None:
    server, port = _serve(folder, "other-", "no")
    with server:
        said = refusal(api, f"rediss://localhost:{port}/0?ssl_ca_certs={folder / 'other-cert.pem'}")
    assert "the certificate of the server is not trusted" in said
    assert "mismatch" in said
    assert "Redis protocol" not in said


@each_api
def test_the_server_wants_a_certificate_of_the_client(api: str, strict_port: int, folder: Path) -> None:
    ca = folder / "cert.pem"
    said = refusal(api, f"rediss://localhost:{strict_port}/0?ssl_ca_certs={ca}")
    assert "client certificate" in said
    assert "Redis protocol" not in said
    own = f"&ssl_certfile={ca}&ssl_keyfile={folder / 'key.pem'}"
    with pawlock.connect(f"rediss://localhost:{strict_port}/0?ssl_ca_certs={ca}{own}") as client:
        client.lock("n").acquire(timeout=5).release()


SCHEMES = [
    "rediss://localhost:1/0?{}",
    "rediss+sentinel://localhost:1/m?{}",
    "rediss+cluster://localhost:1?{}",
]
OPTIONS = ["ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_file_that_is_not_there(scheme: str, option: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    for connect in (pawlock.connect, pawlock.connect_async):
        with pytest.raises(
            pawlock.ConfigurationError, match=f"{option} .*missing.pem' cannot be read: No such file"
        ):
            connect(scheme.format(f"{option}={missing}"))


def test_a_file_of_a_client_that_is_handed_over(tmp_path: Path) -> None:
    theirs = redis.Redis(port=1, ssl=True, ssl_ca_certs=str(tmp_path / "missing.pem"))
    with pytest.raises(pawlock.ConfigurationError, match=r"ssl_ca_certs .* cannot be read: No such file"):
        pawlock.connect(theirs)
    theirs.close()
