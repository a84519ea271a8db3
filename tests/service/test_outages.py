"""The server behind the service goes away and comes back; what a request costs it while it is there."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.rig import App, Instance, Loop, Service, Tokens
from tests.support.pace import pace
from tests.support.servers import Server

NS = "/v1/ns/pawlock"


@pytest.fixture
def service(own_server: Server, tokens: Tokens, loop: Loop) -> Iterator[App]:
    made = App(loop, own_server.url, tokens)
    yield made
    made.end()


@pytest.fixture
def instance(own_server: Server, tokens: Tokens) -> Iterator[Instance]:
    instance = Instance(own_server.url, tokens)
    yield instance
    instance.end(9)


@pytest.mark.fault
def test_without_a_server_it_says_so_soon_and_goes_on_later(own_server: Server, service: App) -> None:
    assert service.ask("GET", "/readyz").status == 200
    held = service.acquire("a", ttl=60)
    own_server.kill()
    began = time.monotonic()
    answer = service.acquire("b")
    assert time.monotonic() - began < pace() * 3
    assert (answer.status, answer.body["code"]) == (503, "REDIS_CONNECTION_ERROR"), answer.body
    assert answer.headers["retry-after"] == "1"
    assert answer.body["fix"]
    began = time.monotonic()
    ready = service.ask("GET", "/readyz")
    assert ready.status == 503
    assert time.monotonic() - began < pace() * 2.5
    assert service.ask("GET", "/healthz").status == 200
    token = {"token": held.body["token"]}
    for method, path, body in (
        ("GET", f"{NS}/lock/a", None),
        ("GET", f"{NS}/locks", None),
        ("GET", f"{NS}/latch/l", None),
        ("GET", f"{NS}/audit", None),
        ("POST", f"{NS}/lock/a/renew", token),
        ("POST", f"{NS}/lock/a/release", token),
        ("POST", f"{NS}/lock/a/force-release", {"reason": "x"}),
        ("POST", f"{NS}/latch/l/count-down", {"count": 1}),
        ("POST", f"{NS}/sessions", {}),
        ("POST", f"{NS}/multi_lock/acquire", {"names": ["x", "y"]}),
    ):
        began = time.monotonic()
        answer = service.ask(method, path, body)
        assert (answer.status, answer.headers.get("retry-after")) == (503, "1"), (path, answer)
        assert time.monotonic() - began < pace() * 2.5, path
    own_server.restart(keep_data=False)
    end = time.monotonic() + 10
    while service.acquire("b").status != 200:
        assert time.monotonic() < end
    assert service.ask("GET", "/readyz").status == 200
    # What the server forgot is held no more, and said so.
    lost = service.ask("POST", f"{NS}/lock/a/release", {"token": held.body["token"]})
    assert (lost.status, lost.body["code"]) == (409, "UNLOCK_FAILED")


@pytest.mark.slow
def test_two_thousand_wait_in_less_than_200_mb(own_server: Server, instance: Instance) -> None:
    held = instance.acquire("a", ttl=120)
    body = b'{"ttl": 30, "wait": 60}'
    request = (
        f"POST {NS}/lock/a/acquire HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: Bearer {instance.tokens.secrets['admin']}\r\n\r\n"
    ).encode() + body
    with contextlib.ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection(("127.0.0.1", instance.port))) for _ in range(2000)
        ]
        for line in lines:
            line.sendall(request)
        _await_queue(instance, 2000)
        status = Path(f"/proc/{instance.process.pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0])
        assert resident < 200_000, f"{resident} kB"
        # They are served in the order in which they came, and none is forgotten.
        assert instance.ask("POST", f"{NS}/lock/a/release", {"token": held.body["token"]}).status == 200
        lines[0].settimeout(10)
        answer = lines[0].recv(65536)
        assert b" 200 " in answer.split(b"\r\n")[0]
    _await_queue(instance, 0)


def _await_queue(service: Service, length: int) -> None:
    end = time.monotonic() + 60
    while service.ask("GET", f"{NS}/lock/a").body["queue_length"] != length:
        assert time.monotonic() < end
        time.sleep(0.1)
