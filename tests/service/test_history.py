"""What `pawlock serve --history` remembers of grants over HTTP."""

import time
from collections.abc import Callable

import pytest

import pawlock
from tests.service.rig import Instance, Tokens
from tests.support.servers import Server

pytestmark = pytest.mark.slow
NS = "/v1/ns/pawlock"


def entries(service: Instance, name: str, count: int, how: str) -> list[dict[str, object]]:
    """The history of a name, once it has so many entries and the newest one ended so."""
    end = time.monotonic() + 10
    while True:
        found: list[dict[str, object]] = service.ask("GET", f"{NS}/lock/{name}/history").body["history"]
        if len(found) == count and found[0]["how"] == how:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.05)


def test_grants_and_their_ends_are_remembered_whichever_instance_sees_them(
    serve: Callable[..., Instance], server: Server, tokens: Tokens
) -> None:
    one, two = serve("--history", "3"), serve("--history", "3")
    began = time.time()
    first = one.acquire("a", ttl=30, holder="web-1").body
    (held,) = entries(two, "a", 1, "held")
    assert held["fence"] == first["fence"]
    assert held["who"] == "web-1:http/admin"
    assert abs(float(str(held["granted"])) - began) < 2
    # Given back at the instance that did not grant it, before the other has written what it granted.
    assert two.ask("POST", f"{NS}/lock/a/release", {"token": first["token"]}).status == 200
    assert entries(one, "a", 1, "released")[0]["granted"] == held["granted"]
    second = one.acquire("a", ttl=30).body
    assert two.ask("POST", f"{NS}/lock/a/release", {"token": second["token"]}).status == 200
    assert [x["fence"] for x in entries(one, "a", 2, "released")] == [second["fence"], first["fence"]]
    one.acquire("a", ttl=0.3)
    assert entries(two, "a", 3, "expired")[0]["ended"] is None
    one.acquire("a", ttl=30)
    assert two.ask("POST", f"{NS}/lock/a/force-release", {"reason": "x"}).status == 200
    # The oldest one went.
    assert [x["how"] for x in entries(one, "a", 3, "forced")] == ["forced", "expired", "released"]
    url = f"http+pawlock://{tokens.secrets['admin']}@127.0.0.1:{one.port}"
    with pawlock.connect(url, ttl=1) as client:
        with client.lock("b"):
            time.sleep(0.7)  # one of its renewals
        (own,) = entries(two, "b", 1, "released")
        assert own["kind"] == "lock"
        assert [vars_of(entry) for entry in client.history("b")] == [own]
    # What is ended last is written before an instance ends.
    last = one.acquire("c", ttl=30).body
    assert one.ask("POST", f"{NS}/lock/c/release", {"token": last["token"]}).status == 200
    assert one.end() == 0
    assert entries(two, "c", 1, "released")[0]["fence"] == last["fence"]
    with pawlock.connect(server.url) as direct:
        assert [entry.fence for entry in direct.history("c")] == [last["fence"]]


def vars_of(entry: pawlock.HistoryEntry) -> dict[str, object]:
    return {name: getattr(entry, name) for name in entry.__slots__}


def test_nothing_is_noted_unless_it_was_asked_for(instance: Instance, server: Server) -> None:
    with pawlock.connect(server.url) as direct:
        held = instance.acquire("a", ttl=30).body
        assert instance.ask("POST", f"{NS}/lock/a/release", {"token": held["token"]}).status == 200
        time.sleep(0.6)
        assert direct.history("a") == []
