"""Who went away before its answer was written holds nothing."""

import http.client
import json
import socket
import struct
import time
from collections.abc import Callable

import pytest

from tests.service.rig import App, Instance, Tokens
from tests.support.proxy import Proxy
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


def test_what_an_identifier_got_again_is_not_released_for_its_first_request_that_went_away(
    server: Server, tokens: Tokens, app: Callable[[], App]
) -> None:
    """That one is told to be gone before its instance, whose requests are late, knows of the grant."""
    other = app()
    body = json.dumps({"ttl": 60, "wait": 50, "identifier": "job-7"}).encode()
    held = other.acquire("late", ttl=60)
    with Proxy(server) as proxy:
        one = Instance(proxy.url, tokens)
        try:
            with socket.create_connection(("127.0.0.1", one.port), 10) as waiter:
                head = (
                    "POST /v1/ns/pawlock/lock/late/acquire HTTP/1.1\r\nHost: x\r\n"
                    f"Authorization: Bearer {tokens.secrets['admin']}\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                waiter.sendall(head.encode() + body)
                assert _until(server, 1, "ZCARD", "{pawlock:late}:1:queue")
                queued = server.command("ZRANGE", "{pawlock:late}:1:queue", 0, -1)
                assert isinstance(queued, list)
                token = queued[0]
                assert isinstance(token, bytes)
                late = proxy.hold_request(token, times=None)
                released = {"token": held.body["token"]}
                assert other.ask("POST", "/v1/ns/pawlock/lock/late/release", released).status == 200
                proxy.wait_hit(late)
            time.sleep(0.2)  # it notices that its client went away
            again = other.acquire("late", identifier="job-7", ttl=60)
            assert (again.status, again.body["token"]) == (200, token.decode())
            late.release()
            late.remove()
            assert one.ask("GET", "/v1/ns/pawlock/lock/late").status == 200
            time.sleep(0.2)  # what it does in the background
            kept = {"token": again.body["token"]}
            assert other.ask("POST", "/v1/ns/pawlock/lock/late/renew", kept).status == 200
        finally:
            one.end(9)
