"""Streams and waits that outlive their token."""

import http.client
import json
import time
from collections.abc import Callable

import pytest

from tests.service.rig import Instance, Tokens

pytestmark = pytest.mark.slow
NS = "/v1/ns/pawlock"


def test_streams_and_waits_end_with_their_token(serve: Callable[..., Instance], tokens: Tokens) -> None:
    secrets = {how: tokens.add(how, roles=["read", "acquire"]) for how in ("taken", "demoted")}
    service = serve()
    held = service.acquire("busy", ttl=60).body["token"]
    streams: dict[str, http.client.HTTPResponse] = {}
    waiters: dict[str, http.client.HTTPConnection] = {}
    opened: list[http.client.HTTPConnection] = []
    for how, secret in secrets.items():
        headers = {"Authorization": f"Bearer {secret}"}
        opened += [http.client.HTTPConnection("127.0.0.1", service.port, timeout=30) for _ in range(2)]
        waiters[how] = opened[-1]
        opened[-2].request("GET", f"{NS}/events", headers=headers)
        streams[how] = opened[-2].getresponse()
        opened[-1].request("POST", f"{NS}/lock/busy/acquire", json.dumps({"wait": 20}).encode(), headers)
    end = time.monotonic() + 15
    while service.ask("GET", f"{NS}/lock/busy").body["queue_length"] < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    listed = {one["id"]: one for one in json.loads(tokens.path.read_text())["tokens"]}
    listed["demoted"]["roles"] = ["force"]
    del listed["taken"]
    tokens.path.write_text(json.dumps({"tokens": list(listed.values())}))
    for how, events in streams.items():
        assert events.status == 200
        while events.read1(65536):
            # It ends by itself; till then it has an event a second.
            assert time.monotonic() < end, f"{how}: a stream goes on without its token"
    assert service.ask("POST", f"{NS}/lock/busy/release", {"token": held}).status == 200
    told = {how: waiter.getresponse().status for how, waiter in waiters.items()}
    assert told == {"taken": 401, "demoted": 403}
    while service.ask("GET", f"{NS}/lock/busy").body["held"]:
        assert time.monotonic() < end, "it holds what it can neither renew nor release"
        time.sleep(0.05)
    for one in opened:
        one.close()
