"""The port for probes."""

import os
import socket
import time
from collections.abc import Callable

import pytest

from tests.service.rig import Instance
from tests.support.servers import Server


def probe(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as line:
        line.sendall(request)
        answer = b""
        while data := line.recv(65536):
            answer += data
        return answer


@pytest.mark.fault
def test_probes_have_a_port_of_their_own(serve: Callable[..., Instance], server: Server) -> None:
    one = serve("--probe-port", "0", "--drain-delay", "1")
    end = time.monotonic() + 10
    while b"health checks on" not in one.said:
        assert time.monotonic() < end
        assert one.process.stderr is not None
        one.said += os.read(one.process.stderr.fileno(), 4096)
    port = int(one.said.rpartition(b":")[2])
    assert probe(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").startswith(
        b"HTTP/1.1 200 OK"
    )
    ready = probe(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert ready.endswith(b'{"ready": true}')
    assert probe(port, b"HEAD /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").endswith(b"\r\n\r\n")
    assert b" 404 " in probe(port, b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    one.process.terminate()
    end = time.monotonic() + 1
    while b" 503 " not in probe(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"):
        assert time.monotonic() < end
    assert b" 200 " in probe(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert one.process.wait(20) == 0
