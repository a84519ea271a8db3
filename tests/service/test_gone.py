"""Who went away before its answer was written holds nothing."""

import http.client
import json
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.service.rig import Instance
from tests.support.servers import Server


def _until(server: Server, count: int, *command: str) -> bool:
    end = time.monotonic() + 10
    while server.command(*command) != count:
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("path", ["lock/{name}/acquire", "multi_lock/acquire"])
def test_a_waiter_that_goes_away_as_its_grant_comes_leaves_the_name_free(
    instance: Instance, server: Server, how: str, path: str
) -> None:
    kept: list[str] = []
    # Open already: nothing lies between the end of the one and the request of the other.
    line = http.client.HTTPConnection("127.0.0.1", instance.port, timeout=30)
    headers = {"Authorization": f"Bearer {instance.tokens.secrets['admin']}"}
    line.request("GET", "/healthz")
    line.getresponse().read()
    for number in range(12):
        name = f"g{number}"
        held = instance.acquire(name, ttl=60)
        told: dict[str, object] = {"ttl": 60, "wait": 50}
        if path.startswith("multi"):
            told["names"] = [name, f"other{number}"]
        body = json.dumps(told).encode()
        with socket.create_connection(("127.0.0.1", instance.port), 10) as waiter:
            head = (
                f"POST /v1/ns/pawlock/{path.format(name=name)} HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {instance.tokens.secrets['admin']}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            waiter.sendall(head.encode() + body)
            assert _until(server, 1, "ZCARD", f"{{pawlock:{name}}}:1:queue")
            if how == "RST":
                waiter.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # In this very moment it is gone, and nothing has said so yet.
        given = json.dumps({"token": held.body["token"]})
        line.request("POST", f"/v1/ns/pawlock/lock/{name}/release", given, headers)
        released = line.getresponse()
        assert released.read()
        assert released.status == 200
        if not _until(server, 0, "EXISTS", f"pawlock:{name}", f"pawlock:other{number}"):
            kept.append(name)
    line.close()
    assert kept == [], "held for nobody"


def test_whoever_waits_is_not_forgotten_for_a_request_behind_it(instance: Instance, server: Server) -> None:
    """Two requests in a row on one connection, of which the first one waits when the client goes away."""
    instance.acquire("busy", ttl=60)
    body = json.dumps({"ttl": 60, "wait": 50}).encode()
    request = (
        f"POST /v1/ns/pawlock/lock/busy/acquire HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {instance.tokens.secrets['admin']}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with socket.create_connection(("127.0.0.1", instance.port), 10) as waiter:
        waiter.sendall(request)
        assert _until(server, 1, "ZCARD", "{pawlock:busy}:1:queue")
        waiter.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.1)
    assert _until(server, 0, "ZCARD", "{pawlock:busy}:1:queue")


@pytest.mark.slow
def test_a_client_that_asks_again_is_not_kept_from_its_grant_by_its_former_question(
    instance: Instance,
) -> None:
    """Its connection broke, and nothing has told the service."""
    instance.acquire("connected")
    word = {"token": "x" * 24 + "@host:1/thread", "timeout": 2.0}
    with ThreadPoolExecutor(2) as pool:
        former = pool.submit(instance.ask, "POST", "/v1/ns/pawlock/calls/wait", word, timeout=10)
        time.sleep(0.3)
        again = pool.submit(instance.ask, "POST", "/v1/ns/pawlock/calls/wait", word, timeout=10)
        answers = [(one.result().status, one.result().body) for one in (former, again)]
    assert answers == [(200, {"wakeup": None})] * 2
