"""Requests that come twice, and instances that end."""

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import pawlock
from pawlock.service import store
from tests.service.rig import App, Instance, Loop, Service, Tokens
from tests.support.pace import pace
from tests.support.proxy import Proxy
from tests.support.servers import Server

NS = "/v1/ns/pawlock"


def test_a_second_instance_answers_a_repeated_request_the_same(app: Callable[[], App]) -> None:
    one, two = app(), app()
    key = {"Idempotency-Key": "k-1"}
    first = one.ask("POST", f"{NS}/lock/a/acquire", {"ttl": 30}, headers=key)
    second = two.ask("POST", f"{NS}/lock/a/acquire", {"ttl": 30}, headers=key)
    assert first.status == second.status == 200
    assert first.body == second.body
    assert second.headers["idempotent-replayed"] == "true"
    release = {"token": first.body["token"]}
    gone = {"Idempotency-Key": "k-2"}
    assert two.ask("POST", f"{NS}/lock/a/release", release, headers=gone).status == 200
    assert one.ask("POST", f"{NS}/lock/a/release", release, headers=gone).status == 200
    assert one.ask("POST", f"{NS}/lock/a/release", release).status == 409


def test_a_release_that_is_sent_again_tells_of_a_lease_that_an_operator_took(
    server: Server, tokens: Tokens, loop: Loop
) -> None:
    with Proxy(server) as proxy, pawlock.connect(server.url) as operator:
        service = App(loop, proxy.url, tokens)
        try:
            token = service.acquire("a", ttl=60).body["token"]
            operator.force_release("a", reason="x")
            lost = proxy.drop_request(token)
            answer = service.ask("POST", f"{NS}/lock/a/release", {"token": token})
            assert lost.hits
            assert (answer.status, answer.body["code"]) == (409, "UNLOCK_FAILED"), answer.body
        finally:
            service.end()


def test_the_end_of_a_session_whose_answer_was_lost_releases_all_the_same(
    server: Server, tokens: Tokens, loop: Loop
) -> None:
    with Proxy(server) as proxy:
        service = App(loop, proxy.url, tokens)
        try:
            # The first one also loads the script.
            for lost in (False, True):
                opened = service.ask("POST", f"{NS}/sessions", {"ttl": 60})
                headers = {"Pawlock-Session": opened.body["session"]}
                assert service.acquire("a", session=headers["Pawlock-Session"]).status == 200
                rule = proxy.swallow_reply(store._CLOSE.sha) if lost else None
                assert service.ask("DELETE", f"{NS}/sessions", headers=headers).body == {"released": 1}
                assert rule is None or rule.hits
                assert service.ask("DELETE", f"{NS}/sessions", headers=headers).status == 404
            assert service.acquire("a").status == 200
        finally:
            service.end()


def test_a_key_that_comes_with_another_body_is_refused(service: App) -> None:
    key = {"Idempotency-Key": "k"}
    assert service.ask("POST", f"{NS}/lock/a/acquire", {"ttl": 30}, headers=key).status == 200
    for path, body in ((f"{NS}/lock/a/acquire", {"ttl": 31}), (f"{NS}/lock/b/acquire", {"ttl": 30})):
        other = service.ask("POST", path, body, headers=key)
        assert (other.status, other.body["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


def test_a_try_that_was_not_granted_may_be_made_again_with_its_key(service: App) -> None:
    held = service.acquire("a")
    key = {"Idempotency-Key": "k"}
    assert service.ask("POST", f"{NS}/lock/a/acquire", {}, headers=key).status == 423
    service.ask("POST", f"{NS}/lock/a/release", {"token": held.body["token"]})
    assert service.ask("POST", f"{NS}/lock/a/acquire", {}, headers=key).status == 200


def test_keys_of_two_clients_are_two_keys(service: App) -> None:
    service.tokens.add("other", roles=["acquire"])
    key = {"Idempotency-Key": "k"}
    assert service.ask("POST", f"{NS}/lock/a/acquire", {}, headers=key).status == 200
    assert service.ask("POST", f"{NS}/lock/b/acquire", {}, headers=key, token="other").status == 200


@pytest.mark.slow
def test_a_waiter_of_a_killed_instance_goes_on_at_another_in_its_place(
    serve: Callable[..., Instance],
) -> None:
    one, two = serve(), serve()
    held = two.acquire("a", ttl=60)
    body, key = {"ttl": 30, "wait": 30}, {"Idempotency-Key": "w"}
    with ThreadPoolExecutor(3) as pool:
        lost = pool.submit(one.ask, "POST", f"{NS}/lock/a/acquire", body, headers=key)
        _queued(two, 1)
        behind = pool.submit(two.ask, "POST", f"{NS}/lock/a/acquire", body)
        _queued(two, 2)
        one.end(9)
        assert isinstance(lost.exception(10), OSError)
        again = pool.submit(two.ask, "POST", f"{NS}/lock/a/acquire", body, headers=key)
        time.sleep(0.3)
        two.ask("POST", f"{NS}/lock/a/release", {"token": held.body["token"]})
        granted = again.result(10)
        assert granted.status == 200
        assert not behind.done()
        two.ask("POST", f"{NS}/lock/a/release", {"token": granted.body["token"]})
        assert behind.result(10).status == 200


def _queued(service: Service, length: int) -> None:
    end = time.monotonic() + 10
    while service.ask("GET", f"{NS}/lock/a").body["queue_length"] != length:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_sigterm_tells_waiters_and_leaves_leases_to_their_clients(
    serve: Callable[..., Instance], service: App
) -> None:
    one, two = serve("--drain-delay", f"{0.5 * pace():.1f}"), service
    held = one.acquire("a", ttl=60)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.ask, "POST", f"{NS}/lock/a/acquire", {"wait": 50})
        _queued(two, 1)
        one.process.terminate()
        while one.ask("GET", "/readyz").status == 200:
            time.sleep(0.02)
        assert one.ask("GET", "/readyz").status == 503
        assert one.ask("GET", "/healthz").status == 200
        told = waiting.result(10 * pace())
    assert told.status == 503
    assert told.headers["retry-after"] == "1"
    one.end()
    assert b"Traceback" not in one.said
    _queued(two, 0)
    look = two.ask("GET", f"{NS}/lock/a").body
    assert look["held"] is True
    renewed = two.ask("POST", f"{NS}/lock/a/renew", {"token": held.body["token"], "ttl": 60})
    assert renewed.status == 200
    assert renewed.body["fence"] == held.body["fence"]


def test_a_try_that_goes_on_elsewhere_is_not_ended_by_the_one_before(app: Callable[[], App]) -> None:
    # A balancer gave up on the first instance, which does not know that yet, and asks the second one.
    one, two = app(), app()
    held = two.acquire("a", ttl=60)
    key = {"Idempotency-Key": "w"}
    body = json.dumps({"ttl": 30, "wait": 1.5}).encode()
    with ThreadPoolExecutor(2) as pool:
        # The same bytes at both: the first one's wait ends while the second one's goes on.
        first = pool.submit(one.ask, "POST", f"{NS}/lock/a/acquire", body, headers=key)
        _queued(two, 1)
        time.sleep(0.7)
        second = pool.submit(two.ask, "POST", f"{NS}/lock/a/acquire", body, headers=key)
        assert first.result(10).status == 423
        _queued(two, 1)
        two.ask("POST", f"{NS}/lock/a/release", {"token": held.body["token"]})
        granted = second.result(10)
        assert granted.status == 200
    # What the first one does behind its answer must not touch the lease of the second one.
    time.sleep(0.3)
    told = {"token": granted.body["token"], "ttl": 30}
    assert two.ask("POST", f"{NS}/lock/a/renew", told).status == 200


@pytest.mark.slow
def test_a_client_that_leaves_one_instance_for_another_keeps_its_place(
    serve: Callable[..., Instance],
) -> None:
    one, two = serve(), serve()
    for turn in range(5):
        held = two.acquire("a", ttl=60)
        key = {"Idempotency-Key": f"turn-{turn}"}
        body = json.dumps({"ttl": 30, "wait": 20}).encode()
        connection = socket.create_connection(("127.0.0.1", one.port))
        connection.sendall(
            f"POST {NS}/lock/a/acquire HTTP/1.1\r\nHost: x\r\nIdempotency-Key: turn-{turn}\r\n"
            f"Authorization: Bearer {one.tokens.secrets['admin']}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        _queued(two, 1)
        with ThreadPoolExecutor(1) as pool:
            again = pool.submit(two.ask, "POST", f"{NS}/lock/a/acquire", body, headers=key)
            time.sleep(0.02 * turn)
            connection.close()
            two.ask("POST", f"{NS}/lock/a/release", {"token": held.body["token"]})
            granted = again.result(10)
        # Both orders are fine: it went on with its token, or began anew. What it was told is true.
        assert granted.status == 200, granted.body
        time.sleep(0.1)
        told = {"token": granted.body["token"]}
        assert two.ask("POST", f"{NS}/lock/a/renew", {**told, "ttl": 30}).status == 200
        assert two.ask("POST", f"{NS}/lock/a/release", told).status == 200
        _queued(two, 0)


@pytest.mark.slow
def test_a_client_that_leaves_at_the_moment_of_the_grant_holds_nothing_for_long(instance: Instance) -> None:
    for turn in range(6):
        held = instance.acquire("a", ttl=60)
        connection = socket.create_connection(("127.0.0.1", instance.port))
        connection.sendall(
            f"POST {NS}/lock/a/acquire HTTP/1.1\r\nHost: x\r\nContent-Length: 24\r\n"
            f'Authorization: Bearer {instance.tokens.secrets["admin"]}\r\n\r\n{{"ttl": 1.0, "wait": 20}} '.encode()[
                :-1
            ]
        )
        _queued(instance, 1)
        with ThreadPoolExecutor(1) as pool:
            told = {"token": held.body["token"]}
            released = pool.submit(instance.ask, "POST", f"{NS}/lock/a/release", told)
            time.sleep(0.0004 * turn)
            connection.close()
            assert released.result(10).status == 200
        # Told before it left, its ttl ends it; else it is free at once.
        assert instance.acquire("a", ttl=5, wait=5).status == 200
        look = instance.ask("GET", f"{NS}/lock/a").body
        assert look["queue_length"] == 0
        token = {"reason": "next turn"}
        assert instance.ask("POST", f"{NS}/lock/a/force-release", token).status == 200
