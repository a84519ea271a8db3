"""What comes over a connection: offers of other protocols, pipelined requests, and what is no HTTP."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.service.rig import Instance
from tests.support.servers import Server

OFFER = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\nUpgrade: h2c\r\n"


class Raw:
    """A connection on which bytes are sent as they are."""

    def __init__(self, service: Instance) -> None:
        self.service = service
        self.socket = socket.create_connection(("127.0.0.1", service.port), 10)
        self.had = b""

    def head(self, name: str, framing: str, more: str = "") -> bytes:
        token = self.service.tokens.secrets["admin"]
        return (
            f"POST /v1/ns/pawlock/lock/{name}/acquire HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            f"{more}{framing}\r\n\r\n"
        ).encode()

    def answer(self) -> tuple[int, dict[str, object]]:
        while b"\r\n\r\n" not in self.had:
            self._more()
        head, _, self.had = self.had.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(self.had) < length:
            self._more()
        body, self.had = self.had[:length], self.had[length:]
        return int(head.split(b" ", 2)[1]), json.loads(body)

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, "the connection was closed"
        self.had += data


@pytest.fixture
def raw(instance: Instance) -> Iterator[Raw]:
    one = Raw(instance)
    yield one
    one.socket.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "offer", [OFFER, "Connection: upgrade\r\nUpgrade: websocket\r\n", ""], ids=["h2c", "websocket", "none"]
)
def test_an_offer_of_another_protocol_costs_no_body(raw: Raw, offer: str) -> None:
    body = b'{"ttl": 7}'
    for number, split in enumerate((False, True, False)):
        parts = [raw.head(f"n{number}", f"Content-Length: {len(body)}", offer), body]
        for part in parts if split else [b"".join(parts)]:
            raw.socket.sendall(part)
            time.sleep(0.05 if split else 0)
        status, told = raw.answer()
        assert (status, told.get("ttl")) == (200, 7.0), told


@pytest.mark.slow
def test_an_offer_may_come_with_a_body_in_parts_and_with_none(raw: Raw) -> None:
    raw.socket.sendall(raw.head("c", "Transfer-Encoding: chunked", OFFER) + b'4\r\n{"tt\r\n')
    time.sleep(0.05)
    raw.socket.sendall(b'6\r\nl": 7}\r\n0\r\n\r\n')
    assert raw.answer()[1]["ttl"] == 7.0
    raw.socket.sendall(raw.head("d", "Content-Length: 0", OFFER))
    assert raw.answer()[1]["ttl"] == 30.0
    raw.socket.sendall(raw.head("e", "X-Nothing: 1", OFFER))
    assert raw.answer()[1]["ttl"] == 30.0


@pytest.mark.slow
def test_requests_in_one_write_are_answered_in_their_order(raw: Raw) -> None:
    body = b'{"ttl": 7}'
    one = [raw.head(f"p{number}", f"Content-Length: {len(body)}", OFFER) + body for number in range(3)]
    raw.socket.sendall(b"".join(one))
    assert [raw.answer()[1]["name"] for _ in range(3)] == ["p0", "p1", "p2"]


GARBAGE = [
    b"\x16\x03\x01\x02\x00",
    b"GET\r\n\r\n",
    b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nTransfer-Encoding: x\r\nContent-Length: 2\r\n\r\n",
]


@pytest.mark.slow
@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_what_is_no_request_gets_400_and_no_more(instance: Instance, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", instance.port), 10) as line:
        line.sendall(garbage)
        line.shutdown(socket.SHUT_WR)
        answer = line.recv(65536)
        # The first bytes of TLS may be no whole line yet.
        assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
        assert not answer or json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "BAD_REQUEST"
    assert instance.ask("GET", "/healthz").status == 200


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
    assert probe(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 200 OK")
    ready = probe(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert ready.endswith(b'{"ready": true}')
    assert probe(port, b"HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"\r\n\r\n")
    assert b" 404 " in probe(port, b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\n\r\n")
    assert probe(port, b"GET /" + b"x" * 20_000) == b""
    one.process.terminate()
    end = time.monotonic() + 1
    while b" 503 " not in probe(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"):
        assert time.monotonic() < end
    assert b" 200 " in probe(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert one.process.wait(20) == 0
