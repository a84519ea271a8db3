"""Requests that come twice, and instances that end."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.service.rig import Instance

NS = "/v1/ns/pawl"


def test_a_second_instance_answers_a_repeated_request_the_same(serve: Callable[..., Instance]) -> None:
    one, two = serve(), serve()
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


def test_a_key_that_comes_with_another_body_is_refused(service: Instance) -> None:
    key = {"Idempotency-Key": "k"}
    assert service.ask("POST", f"{NS}/lock/a/acquire", {"ttl": 30}, headers=key).status == 200
    for path, body in ((f"{NS}/lock/a/acquire", {"ttl": 31}), (f"{NS}/lock/b/acquire", {"ttl": 30})):
        other = service.ask("POST", path, body, headers=key)
        assert (other.status, other.body["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


def test_a_try_that_was_not_granted_may_be_made_again_with_its_key(service: Instance) -> None:
    held = service.acquire("a")
    key = {"Idempotency-Key": "k"}
    assert service.ask("POST", f"{NS}/lock/a/acquire", {}, headers=key).status == 423
    service.ask("POST", f"{NS}/lock/a/release", {"token": held.body["token"]})
    assert service.ask("POST", f"{NS}/lock/a/acquire", {}, headers=key).status == 200


def test_keys_of_two_clients_are_two_keys(service: Instance) -> None:
    service.tokens.add("other", roles=["acquire"])
    time.sleep(1.1)
    key = {"Idempotency-Key": "k"}
    assert service.ask("POST", f"{NS}/lock/a/acquire", {}, headers=key).status == 200
    assert service.ask("POST", f"{NS}/lock/b/acquire", {}, headers=key, token="other").status == 200


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


def _queued(service: Instance, length: int) -> None:
    end = time.monotonic() + 10
    while service.ask("GET", f"{NS}/lock/a").body["queue_length"] != length:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_sigterm_tells_waiters_and_leaves_leases_to_their_clients(serve: Callable[..., Instance]) -> None:
    one, two = serve("--drain-delay", "0.5"), serve()
    held = one.acquire("a", ttl=60)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.ask, "POST", f"{NS}/lock/a/acquire", {"wait": 50})
        _queued(two, 1)
        one.process.terminate()
        time.sleep(0.2)
        assert one.ask("GET", "/readyz").status == 503
        assert one.ask("GET", "/healthz").status == 200
        told = waiting.result(10)
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
