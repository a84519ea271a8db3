"""What curl can do: take, wait, renew, release, look."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pawlock
from pawlock.service.spaces import kinds
from tests.service.rig import App, Instance, Service, Tokens
from tests.support.pace import pace
from tests.support.servers import Server


def test_one_acquires_and_the_next_waits_until_it_is_released(service: App) -> None:
    first = service.acquire("order:42", ttl=20)
    assert first.status == 200, first.body
    assert service.acquire("order:42").status == 423
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(service.acquire, "order:42", ttl=20, wait=20)
        time.sleep(0.5)
        assert not second.done()
        look = service.ask("GET", "/v1/ns/pawlock/lock/order:42").body
        assert look["held"] is True
        assert look["queue_length"] == 1
        path = "/v1/ns/pawlock/lock/order:42/release"
        assert service.ask("POST", path, {"token": first.body["token"]}).status == 200
        at = time.monotonic()
        granted = second.result(10)
        assert time.monotonic() - at < pace() * 1
    assert granted.status == 200
    assert granted.body["fence"] > first.body["fence"]
    again = service.ask("POST", path, {"token": first.body["token"]})
    assert again.status == 409
    assert again.body["code"] == "UNLOCK_FAILED"
    assert again.body["fix"]


def test_the_locks_of_a_client_that_died_go_within_its_sessions_ttl(service: App) -> None:
    opened = service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 1.5})
    session = opened.body["session"]
    taken = service.acquire("dead", session=session)
    assert taken.status == 200, taken.body
    for _ in range(4):
        time.sleep(0.6)
        kept = service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", headers={"Pawlock-Session": session})
        assert [one["name"] for one in kept.body["held"]] == ["dead"], kept.body
    at = time.monotonic()
    assert service.acquire("dead", wait=10).status == 200
    assert 1.0 < time.monotonic() - at < pace() * 1.9
    over = service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", headers={"Pawlock-Session": session})
    assert over.status == 404
    assert over.body["code"] == "SESSION_ENDED"


def test_a_lease_that_was_taken_from_a_session_is_told(service: App) -> None:
    headers = {"Pawlock-Session": service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 30}).body["session"]}
    service.acquire("gone", session=headers["Pawlock-Session"])
    forced = service.ask("POST", "/v1/ns/pawlock/lock/gone/force-release", {"reason": "stuck"})
    assert forced.body["count"] == 1
    kept = service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", headers=headers).body
    assert [one["name"] for one in kept["lost"]] == ["gone"]
    assert service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", headers=headers).body["lost"] == []
    audit = service.ask("GET", "/v1/ns/pawlock/audit").body["audit"]
    assert audit[0]["name"] == "gone"
    assert (audit[0]["text"], audit[0]["who"]) == ("stuck", "token admin")


def test_ending_a_session_releases_all_that_it_holds(service: App) -> None:
    headers = {"Pawlock-Session": service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 30}).body["session"]}
    for name in ("one", "two"):
        assert service.acquire(name, session=headers["Pawlock-Session"]).status == 200
    assert service.acquire("p", "semaphore", session=headers["Pawlock-Session"], permits=2).status == 200
    assert {one["name"] for one in service.ask("GET", "/v1/ns/pawlock/locks").body["locks"]} == {
        "one",
        "two",
        "p",
    }
    assert service.ask("DELETE", "/v1/ns/pawlock/sessions", headers=headers).body == {"released": 3}
    assert service.ask("GET", "/v1/ns/pawlock/locks").body["locks"] == []
    assert service.acquire("one").status == 200


def test_a_waiter_whose_client_goes_away_leaves_the_queue_at_once(instance: Instance) -> None:
    held = instance.acquire("busy", ttl=60)
    connection = socket.create_connection(("127.0.0.1", instance.port))
    body = b'{"wait": 50}'
    connection.sendall(
        b"POST /v1/ns/pawlock/lock/busy/acquire HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
        + instance.tokens.secrets["admin"].encode()
        + b"\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    assert _queue(instance, "busy", 1)
    connection.close()
    at = time.monotonic()
    assert _queue(instance, "busy", 0)
    assert time.monotonic() - at < pace() * 1
    path = "/v1/ns/pawlock/lock/busy/release"
    assert instance.ask("POST", path, {"token": held.body["token"]}).status == 200
    assert instance.ask("GET", "/v1/ns/pawlock/lock/busy").body["held"] is False


def _queue(service: Service, name: str, length: int) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if service.ask("GET", f"/v1/ns/pawlock/lock/{name}").body["queue_length"] == length:
            return True
        time.sleep(0.02)
    return False


KINDS: list[tuple[str, dict[str, object], int]] = [
    ("lock", {}, 1), ("fair_lock", {}, 1), ("rlock", {}, 1), ("semaphore", {"permits": 2}, 2),
    ("rwlock_read", {}, 9), ("rwlock_write", {}, 1), ("election", {}, 1),
]  # fmt: skip


def test_every_primitive_with_leases(service: App) -> None:
    for number, (kind, body, together) in enumerate(KINDS):
        path = f"/v1/ns/pawlock/{kind}/x{number}"
        grants = [service.ask("POST", f"{path}/acquire", body) for _ in range(3)]
        granted = min(together, 3)
        assert [one.status for one in grants] == [200] * granted + [423] * (3 - granted), kind
        for grant in grants[:granted]:
            told = {**body, "token": grant.body["token"]}
            renewed = service.ask("POST", f"{path}/renew", {**told, "ttl": 50})
            assert renewed.body["expires_in"] > 45, kind
            assert service.ask("POST", f"{path}/release", told).status == 200, kind
        assert service.ask("POST", f"{path}/acquire", body).status == 200, kind


def test_every_kind_of_the_registry_that_has_leases_is_tested() -> None:
    assert set(kinds()) == {kind for kind, _, _ in KINDS}


def test_an_identifier_that_holds_gets_its_lease_again(
    app: Callable[[], App], server: Server, tokens: Tokens
) -> None:
    tokens.add("bob", roles=["acquire", "read"])
    one, two = app(), app()
    for kind in ("lock", "rlock", "fair_lock", "key"):
        name = f"of-{kind}"
        first = one.acquire(name, kind, identifier="job-7", ttl=20)
        second = two.acquire(name, kind, identifier="job-7", ttl=40)
        assert (first.status, second.status) == (200, 200), kind
        for what in ("token", "fence"):
            assert first.body[what] == second.body[what], kind
        assert second.body["expires_in"] > 30
        shown = one.ask("GET", f"/v1/ns/pawlock/{kind}/{name}").body["holder"]
        assert "job-7" not in first.body["token"]
        # Neither another identifier, nor what is shown, nor another client is let in.
        for who, identifier in (("admin", "job-8"), ("admin", shown), ("bob", "job-7"), ("admin", None)):
            if kind == "key" and who == "bob":
                continue
            more = {} if identifier is None else {"identifier": identifier}
            assert two.acquire(name, kind, token=who, **more).status == 423, (kind, who, identifier)
        told = {"token": first.body["token"]}
        assert two.ask("POST", f"/v1/ns/pawlock/{kind}/{name}/release", told).status == 200
        third = one.acquire(name, kind, identifier="job-7")
        assert third.body["fence"] > first.body["fence"], "it is counted once"
        assert third.body["token"] != first.body["token"]
    refused = one.acquire("s", "semaphore", permits=2, identifier="job-7")
    assert (refused.status, refused.body["code"]) == (422, "CONFIGURATION")


def test_a_lease_that_is_given_again_belongs_to_the_session_that_asked(service: App) -> None:
    first = service.acquire("kept", identifier="job-7", ttl=20)
    headers = {"Pawlock-Session": service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 30}).body["session"]}
    again = service.acquire("kept", identifier="job-7", session=headers["Pawlock-Session"])
    assert again.body["token"] == first.body["token"]
    kept = service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", headers=headers).body
    assert [one["name"] for one in kept["held"]] == ["kept"]
    assert service.ask("DELETE", "/v1/ns/pawlock/sessions", headers=headers).body == {"released": 1}
    assert service.ask("GET", "/v1/ns/pawlock/lock/kept").body["held"] is False


def test_two_waits_of_one_identifier_get_one_lease(app: Callable[[], App]) -> None:
    service = app()
    held = service.acquire("busy", ttl=30)
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(service.acquire, "busy", identifier="job-7", wait=2, ttl=20) for _ in range(2)]
        assert _queue(service, "busy", 2)
        token = {"token": held.body["token"]}
        assert service.ask("POST", "/v1/ns/pawlock/lock/busy/release", token).status == 200
        both = [one.result(10) for one in waits]
    assert {one.status for one in both} == {200}
    assert len({one.body["token"] for one in both}) == 1


def test_a_lock_over_http_and_one_of_the_library_exclude_each_other(service: App, server: Server) -> None:
    with pawlock.connect(server.url) as client:
        assert service.acquire("both").status == 200
        assert client.lock("both").try_acquire() is None
        with client.lock("other"):
            assert service.acquire("other").status == 423
