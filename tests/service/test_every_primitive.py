"""What is no plain lease of one name: latches, barriers, elections, several names. Over REST, and from Python."""

import http.client
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pawlock
from tests.service.rig import Answer, App, Instance, Service
from tests.support.pace import pace
from tests.support.servers import Server

NS = "/v1/ns/pawlock"


def ask(service: Service, path: str, body: object, key: str = "") -> Answer:
    return service.ask("POST", f"{NS}/{path}", body, headers={"Idempotency-Key": key} if key else {})


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + pace() * seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_latch(app: Callable[[], App], server: Server) -> None:
    one, two = app(), app()
    assert one.ask("GET", f"{NS}/latch/l").body["count"] is None
    assert ask(one, "latch/l/wait", {"count": 3}).status == 423
    with ThreadPoolExecutor(1) as pool, pawlock.connect(server.url) as direct:
        waiting = pool.submit(ask, one, "latch/l/wait", {"count": 3, "wait": 20})
        until(lambda: one.ask("GET", f"{NS}/latch/l").body["waiting"] == 1)
        # The same key counts once, at any instance; the same part too.
        assert ask(one, "latch/l/count-down", {"count": 3}, "k").status == 200
        assert ask(two, "latch/l/count-down", {"count": 3}, "k").headers["idempotent-replayed"] == "true"
        for _ in range(2):
            assert ask(two, "latch/l/count-down", {"count": 3, "part": "a b"}).status == 200
        assert one.ask("GET", f"{NS}/latch/l").body["left"] == 1
        assert ask(one, "latch/l/count-down", {"count": 4}).body["code"] == "LIMIT_MISMATCH"
        direct.latch("l", 3).count_down()
        assert waiting.result(5).body == {"name": "l", "open": True}
    assert ask(two, "latch/l/reset", {"count": 3}).status == 200
    look = one.ask("GET", f"{NS}/latch/l").body
    assert (look["count"], look["left"], look["open"]) == (3, 3, False)


def test_a_barrier(app: Callable[[], App], server: Server) -> None:
    one, two = app(), app()
    assert ask(one, "barrier/b/wait", {"parties": 3}).status == 423
    assert one.ask("GET", f"{NS}/barrier/b").body["arrived"] == 0
    with ThreadPoolExecutor(3) as pool, pawlock.connect(server.url) as direct:
        first = pool.submit(ask, one, "barrier/b/wait", {"parties": 3, "wait": 20}, "k")
        until(lambda: two.ask("GET", f"{NS}/barrier/b").body["arrived"] == 1)
        # At another instance with its key, it is the same party.
        again = pool.submit(ask, two, "barrier/b/wait", {"parties": 3, "wait": 20}, "k")
        other = pool.submit(ask, two, "barrier/b/wait", {"parties": 3, "wait": 20})
        until(lambda: two.ask("GET", f"{NS}/barrier/b").body["arrived"] == 2)
        time.sleep(0.3)
        assert not again.done()
        assert direct.barrier("b", 3).wait(5) == 0
        places = [one.result(5).body["missing"] for one in (first, again, other)]
        assert places in ([1, 1, 2], [2, 2, 1])


@pytest.mark.slow
def test_a_barrier_of_which_one_instance_is_killed(serve: Callable[..., Instance], server: Server) -> None:
    one, two = serve(), serve()
    assert ask(one, "barrier/b/wait", {"parties": 3}).status == 423
    assert one.ask("GET", f"{NS}/barrier/b").body["arrived"] == 0
    with ThreadPoolExecutor(2) as pool, pawlock.connect(server.url) as direct:
        first = pool.submit(ask, one, "barrier/b/wait", {"parties": 3, "wait": 20}, "k")
        until(lambda: two.ask("GET", f"{NS}/barrier/b").body["arrived"] == 1)
        one.end(9)
        assert isinstance(first.exception(5), OSError)
        # At another instance with its key, it is the same party.
        again = pool.submit(ask, two, "barrier/b/wait", {"parties": 3, "wait": 20}, "k")
        other = pool.submit(ask, two, "barrier/b/wait", {"parties": 3, "wait": 20})
        until(lambda: two.ask("GET", f"{NS}/barrier/b").body["arrived"] == 2)
        time.sleep(0.3)
        assert not again.done()
        assert direct.barrier("b", 3).wait(5) == 0
        assert {again.result(5).body["missing"], other.result(5).body["missing"]} == {1, 2}


def test_an_election(service: App, server: Server) -> None:
    with pawlock.connect(server.url) as direct:
        assert service.ask("GET", f"{NS}/election/e").body["held"] is False
        leads = service.acquire("e", "election", holder="web-1", ttl=20)
        assert leads.status == 200
        assert service.acquire("e", "lock").status == 200, "a lock of that name is another thing"
        leader = direct.election("e").leader()
        assert leader is not None
        assert leader.identity.startswith("web-1")
        with ThreadPoolExecutor(1) as pool:
            follows = pool.submit(service.acquire, "e", "election", holder="web-2", ttl=20, wait=20)
            until(lambda: service.ask("GET", f"{NS}/election/e").body["queue_length"] == 1)
            told = {"token": leads.body["token"]}
            assert service.ask("POST", f"{NS}/election/e/renew", {**told, "ttl": 20}).status == 200
            assert service.ask("POST", f"{NS}/election/e/release", told).status == 200
            assert follows.result(5).body["fence"] > leads.body["fence"]
        assert service.ask("GET", f"{NS}/election/e").body["holder"].startswith("web-2")


def test_what_is_done_once_is_shown(service: App, server: Server) -> None:
    def shown() -> dict[str, Any]:
        found: dict[str, Any] = service.ask("GET", f"{NS}/once/job").body
        return found

    assert (shown()["held"], shown()["done"]) == (False, None)
    with pawlock.connect(server.url) as direct:
        state = direct.once("job", keep=60).begin()
        assert isinstance(state, pawlock.Started)
        until(lambda: service.ask("GET", f"{NS}/locks").body["total"] == 1)
        listed = service.ask("GET", f"{NS}/locks").body["locks"]
        assert [(one["name"], one["kind"]) for one in listed] == [("job", "once")]
        assert (shown()["held"], shown()["done"], shown()["fence"]) == (True, None, state.fence)
        state.finish("a secret")
        done = shown()["done"]
        assert (done["type"], done["size"], done["fence"]) == ("text", 8, state.fence)
        assert 50 < done["keep_left"] <= 60
        assert "secret" not in str(shown())
    assert service.ask("POST", f"{NS}/once/job/acquire", {}).status == 404


def test_several_names(service: App) -> None:
    held = service.acquire("b", ttl=30)
    names = ["c", "a", "b"]
    busy = ask(service, "multi_lock/acquire", {"names": names})
    assert (busy.status, busy.body["name"]) == (423, "b")
    until(lambda: not service.ask("GET", f"{NS}/lock/a").body["held"])
    with ThreadPoolExecutor(1) as pool:
        # What was taken outlives its ttl while the rest is waited for.
        waiting = pool.submit(
            ask, service, "multi_lock/acquire", {"names": names, "ttl": 1.5, "wait": 20}, "k"
        )
        time.sleep(2.0)
        assert service.ask("GET", f"{NS}/lock/a").body["held"]
        service.ask("POST", f"{NS}/lock/b/release", {"token": held.body["token"]})
        taken = waiting.result(10)
    assert taken.status == 200, taken.body
    assert [one["name"] for one in taken.body["leases"]] == ["a", "b", "c"]
    assert (
        ask(service, "multi_lock/acquire", {"names": names, "ttl": 1.5, "wait": 20}, "k").body == taken.body
    )
    leases = [{"name": one["name"], "token": one["token"]} for one in taken.body["leases"]]
    assert ask(service, "multi_lock/renew", {"leases": leases, "ttl": 20}).status == 200
    assert ask(service, "multi_lock/release", {"leases": leases}).status == 200
    assert ask(service, "multi_lock/release", {"leases": leases}).body["code"] == "UNLOCK_FAILED"
    assert service.acquire("a").status == 200
    assert ask(service, "multi_lock/acquire", {"names": ["x", "x"]}).status == 422


def test_several_names_that_time_out_leave_nothing(service: App) -> None:
    service.acquire("b", ttl=30)
    for key in ("", "k"):
        told = ask(service, "multi_lock/acquire", {"names": ["a", "b"], "wait": 0.3}, key)
        assert told.status == 423
        until(lambda: not service.ask("GET", f"{NS}/lock/a").body["held"], 2)
        assert service.ask("GET", f"{NS}/lock/b").body["queue_length"] == 0


def test_every_kind_that_the_list_has_is_looked_at_and_force_released_by_that_word(
    service: App, server: Server
) -> None:
    with pawlock.connect(server.url) as direct:
        for take in (
            direct.lock("job").acquire, direct.semaphore("job", permits=2).acquire,
            direct.rwlock("job").write.acquire, direct.election("job").campaign, direct.once("job").begin,
        ):  # fmt: skip
            lease: Any = take()
            (one,) = service.ask("GET", f"{NS}/locks").body["locks"]
            path = f"{NS}/{one['kind']}/job"
            look = service.ask("GET", path)
            assert (look.status, look.body["held"]) == (200, True), one["kind"]
            assert service.ask("POST", f"{path}/force-release", {"reason": "x"}).status == 200, one["kind"]
            assert service.ask("GET", f"{NS}/locks").body["locks"] == []
            assert service.ask("GET", f"{NS}/audit").body["audit"][0]["who"] == "token admin"
            lease = getattr(lease, "lease", lease)
            with pytest.raises((pawlock.NotHeld, pawlock.LeaseLost)):
                lease.extend(30)


def test_every_kind_is_force_released(service: App, server: Server) -> None:
    with pawlock.connect(server.url) as direct:
        held: dict[str, Callable[[], Any]] = {
            "lock": direct.lock("lock").acquire,
            "semaphore": direct.semaphore("semaphore", permits=2).acquire,
            "rwlock_read": direct.rwlock("rwlock_read").read.acquire,
            "rwlock_write": direct.rwlock("rwlock_write").write.acquire,
            "election": direct.election("election").campaign,
            "once": direct.once("once").begin,
        }
        for kind, take in held.items():
            path = f"{NS}/{kind}/{kind}/force-release"
            free = service.ask("POST", path, {"reason": "x"})
            assert (free.status, free.body["code"]) == (409, "UNLOCK_FAILED"), kind
            lease = take()
            lease = getattr(lease, "lease", lease)
            holder = lease.token.partition("@")[2]
            assert service.ask("POST", path, {"reason": "x", "holder": "other"}).status == 409, kind
            taken = service.ask("POST", path, {"reason": "x", "holder": holder})
            assert taken.status == 200, (kind, taken.body)
            assert taken.body["kind"] == kind.partition("_")[0]
            assert (taken.body["holder"], taken.body["count"]) == (holder, 1), kind
            with pytest.raises((pawlock.NotHeld, pawlock.LeaseLost)):
                lease.extend(30)


def test_a_client_that_offers_http_2_is_served(serve: Callable[..., Instance]) -> None:
    """As each first request of Java's HttpClient does, whose body some parsers then lose."""
    one = serve()
    body = b'{"ttl": 5, "identifier": "one"}'
    head = (
        "POST /v1/ns/pawlock/lock/h2c/acquire HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        "Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {one.tokens.secrets['admin']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", one.port), 10) as line:
        for _ in range(2):
            line.sendall(head.encode())
            # In a packet of its own.
            time.sleep(0.1)
            line.sendall(body)
            answer = http.client.HTTPResponse(line)
            answer.begin()
            assert (answer.status, json.loads(answer.read())["name"]) == (200, "h2c")
