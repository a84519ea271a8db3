"""Who went away before its answer was written holds nothing."""

import http.client
import json
import socket
import struct
import time

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
