"""TLS, and clients that show a certificate."""

import http.client
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.rig import Instance

_EXTENSIONS = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def _run(folder: Path, *words: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no openssl on PATH")
    subprocess.run([program, *words], cwd=folder, check=True, capture_output=True)


def _authority(folder: Path, name: str) -> None:
    words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}"
    # Python 3.13 trusts no authority that does not say so of itself.
    words += " -addext keyUsage=critical,keyCertSign,digitalSignature"
    _run(folder, *words.split(), "-keyout", f"{name}.key", "-out", f"{name}.crt")


def _certificate(folder: Path, name: str, authority: str) -> None:
    words = f"req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name}"
    _run(folder, *words.split(), "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (folder / "ext").write_text(_EXTENSIONS)
    words = f"x509 -req -days 2 -CAcreateserial -extfile ext -in {name}.csr -out {name}.crt"
    _run(folder, *words.split(), "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for authority in ("ours", "theirs"):
        _authority(folder, authority)
    for name, authority in (("server", "ours"), ("client", "ours"), ("stranger", "theirs")):
        _certificate(folder, name, authority)
    return folder


def _ask(service: Instance, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("localhost", service.port, timeout=10, context=context)
    headers = {"Authorization": f"Bearer {service.tokens.secrets['admin']}"}
    try:
        connection.request("POST", "/v1/ns/pawlock/lock/a/acquire", b"{}", headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_tls_and_certificates_of_clients(serve: Callable[..., Instance], certificates: Path) -> None:
    def at(name: str) -> str:
        return str(certificates / name)

    service = serve(
        "--certificate", at("server.crt"), "--key", at("server.key"), "--client-ca", at("ours.crt")
    )
    assert service.address.startswith("https://")
    # Who trusts another authority does not talk to it.
    with pytest.raises(ssl.SSLCertVerificationError):
        _ask(service, ssl.create_default_context(cafile=at("theirs.crt")))
    # Nobody gets in without a certificate, or with one of another authority.
    for name in ("", "stranger"):
        context = ssl.create_default_context(cafile=at("ours.crt"))
        if name:
            context.load_cert_chain(at(f"{name}.crt"), at(f"{name}.key"))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            _ask(service, context)
    context = ssl.create_default_context(cafile=at("ours.crt"))
    context.load_cert_chain(at("client.crt"), at("client.key"))
    assert _ask(service, context) == 200
    # Plain HTTP gets no answer there.
    with pytest.raises((OSError, http.client.HTTPException)):
        service.ask("GET", "/healthz", timeout=3)
