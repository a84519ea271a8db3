"""Keys that other programs lock too, through the service: by curl, and by pawlock's own clients of both APIs."""

from __future__ import annotations

import json
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

import pawlock
from pawlock.service.access import Access, entry_for, new_secret
from tests.faults.rig import until
from tests.service.rig import App, Tokens
from tests.support.command import call
from tests.support.servers import Server

SPELLED = ["plain:order:42", "redisson:order:42", "redisson-fenced:order:42", "spring:locks:order:42"]
THEIRS = "8743c9c0-0795-4907-87fd-6c719a6b4586:1"


def kept(server: Server, key: str) -> Any:
    if server.command("TYPE", key) == "hash":
        return server.command("HGETALL", key)
    found = server.command("GET", key)
    return found.decode() if isinstance(found, bytes) else None


def on_server(spelled: str) -> str:
    form, _, rest = spelled.partition(":")
    return f"{rest}" if form != "python-redis-lock" else f"lock:{rest}"


@pytest.mark.parametrize("spelled", [*SPELLED, "python-redis-lock:order:42"])
def test_a_lease_of_a_key(service: App, server: Server, spelled: str) -> None:
    key = on_server(spelled)
    held = service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/acquire", {"ttl": 20})
    assert held.status == 200, held.body
    assert (held.body["kind"], held.body["name"], held.body["ttl"]) == ("key", spelled, 20)
    token, fence = held.body["token"], held.body["fence"]
    stored = kept(server, key)
    assert stored == token or stored[0].decode().endswith(token.partition("@")[2])
    assert server.command("EXISTS", f"pawlock:{key}") == 0, "it is the key itself"
    assert service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/acquire", {}).status == 423
    seen = service.ask("GET", f"/v1/ns/pawlock/key/{spelled}").body
    assert (seen["name"], seen["held"], seen["fence"]) == (f"key:{key}", True, fence)
    renewed = service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/renew", {"token": token, "ttl": 40})
    assert renewed.status == 200
    assert renewed.body["fence"] == fence
    assert int(str(server.command("PTTL", key))) > 30_000
    assert service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/release", {"token": token}).status == 200
    assert server.command("EXISTS", key) == 0
    again = service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/release", {"token": token})
    assert again.status == 409


def test_a_waiter_gets_a_key_that_another_program_deletes(service: App, server: Server) -> None:
    server.command("SET", "order:42", "theirs", "PX", 400)
    held = service.ask("POST", "/v1/ns/pawlock/key/plain:order:42/acquire", {"wait": 10})
    assert held.status == 200
    server.command("HSET", "theirs", THEIRS, 1)
    server.command("PEXPIRE", "theirs", 400)
    assert service.ask("POST", "/v1/ns/pawlock/key/redisson:theirs/acquire", {"wait": 10}).status == 200


def test_what_cannot_be_a_key_is_refused_untouched(service: App, server: Server) -> None:
    server.command("SET", "order:42", "theirs")
    wrong = service.ask("POST", "/v1/ns/pawlock/key/redisson:order:42/acquire", {})
    assert (wrong.status, wrong.body["code"]) == (409, "WRONG_KEY"), wrong.body
    assert kept(server, "order:42") == "theirs"
    bad = service.ask("POST", "/v1/ns/pawlock/key/spring:order/acquire", {})
    assert bad.status == 422
    assert "spring:locks:order:42" in bad.body["detail"]
    permits = service.ask("POST", "/v1/ns/pawlock/key/plain:a/acquire", {"permits": 2})
    assert permits.status == 422
    assert "key" in permits.body["detail"]


def test_a_key_that_becomes_another_programs_costs_the_others_nothing(service: App, server: Server) -> None:
    def becomes_theirs(key: str) -> None:
        server.command("DEL", key)
        server.command("HSET", key, THEIRS, 1)

    headers = {"Pawlock-Session": service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 5}).body["session"]}
    for kind, name in (("key", "plain:a"), ("lock", "b")):
        assert service.ask("POST", f"/v1/ns/pawlock/{kind}/{name}/acquire", {}, headers=headers).status == 200
    body = {"names": ["d"], "keys": ["plain:c"]}
    several = service.ask("POST", "/v1/ns/pawlock/multi_lock/acquire", body).body["leases"]
    parts = {"leases": [{one: lease[one] for one in ("kind", "name", "token")} for lease in several]}
    for key in ("a", "c"):
        becomes_theirs(key)
    listed = service.ask("GET", "/v1/ns/pawlock/locks")
    assert (listed.status, [one["name"] for one in listed.body["locks"]]) == (200, ["b", "d"])
    told = service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", {}, headers=headers)
    assert (told.status, [one["name"] for one in told.body["held"]]) == (200, ["b"])
    assert [one["name"] for one in told.body["lost"]] == ["plain:a"]
    assert service.ask("DELETE", "/v1/ns/pawlock/sessions", None, headers=headers).body == {"released": 1}
    for action, code in (("renew", "EXTEND_FAILED"), ("release", "UNLOCK_FAILED")):
        told = service.ask("POST", f"/v1/ns/pawlock/multi_lock/{action}", parts)
        assert (told.status, told.body["code"], told.body["name"]) == (409, code, "plain:c")
        one = next(lease for lease in several if lease["kind"] == "key")
        told = service.ask("POST", f"/v1/ns/pawlock/key/plain:c/{action}", {"token": one["token"]})
        assert (told.status, told.body["code"], told.body["name"]) == (409, "WRONG_KEY", "key:c")
    assert server.command("EXISTS", "pawlock:b", "pawlock:d") == 0
    assert [kept(server, key)[0] for key in ("a", "c")] == [THEIRS.encode()] * 2


def test_what_becomes_another_programs_ends_with_its_session(service: App, server: Server) -> None:
    headers = {"Pawlock-Session": service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 5}).body["session"]}
    for kind, name in (("key", "plain:a"), ("lock", "b")):
        assert service.ask("POST", f"/v1/ns/pawlock/{kind}/{name}/acquire", {}, headers=headers).status == 200
    server.command("DEL", "a")
    server.command("HSET", "a", THEIRS, 1)
    assert service.ask("DELETE", "/v1/ns/pawlock/sessions", None, headers=headers).body == {"released": 1}
    assert server.command("EXISTS", "a", "pawlock:b") == 1


def test_a_crowd_of_requests_leaves_it_to_another_program_now_and_then(service: App, server: Server) -> None:
    at, over = "/v1/ns/pawlock/key/plain:order:42", threading.Event()

    def go_on() -> int:
        grants = 0
        while not over.is_set():
            held = service.ask("POST", f"{at}/acquire", {"wait": 20})
            assert held.status == 200, held.body
            grants += 1
            service.ask("POST", f"{at}/release", {"token": held.body["token"]})
        return grants

    with ThreadPoolExecutor(2) as pool, redis.Redis.from_url(server.url) as other:
        crowd = [pool.submit(go_on) for _ in range(2)]
        try:
            until(lambda: bool(other.set("order:42", "theirs", nx=True, px=200)), what="a turn of the other")
        finally:
            over.set()
        assert all(one.result(20) for one in crowd)


@pytest.mark.parametrize(
    ("spelled", "channel", "message"),
    [
        ("spring:locks:n", "locks-channel:locks:n", "locks:n"),
        ("redisson:n", "redisson_lock__channel:{n}", "0"),
        ("python-redis-lock:n", "", ""),
    ],
)
def test_a_release_wakes_waiters_of_others(
    service: App, server: Server, spelled: str, channel: str, message: str
) -> None:
    with (
        redis.Redis.from_url(server.url, decode_responses=True) as other,
        other.pubsub(ignore_subscribe_messages=True) as ear,
    ):
        ear.subscribe(channel or "none")
        ear.get_message(timeout=1)

        def is_told() -> bool:
            if not channel:
                return bool(other.delete("lock-signal:n") == 1)
            found = ear.get_message(timeout=0.05)
            return bool(found is not None and found["data"] == message)

        held = service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/acquire", {}).body
        assert (
            service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/release", {"token": held["token"]}).status
            == 200
        )
        until(is_told, what="what wakes them")


def test_a_name_is_those_bytes_and_no_others(service: App, server: Server) -> None:
    written = {form: unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD")}
    for (kind, key), text in product((("key", "{}"), ("lock", "pawlock:{}")), written.values()):
        held = service.ask("POST", f"/v1/ns/pawlock/{kind}/{quote(text)}/acquire", {})
        assert (held.status, held.body["name"]) == (200, text)
        assert server.command("EXISTS", key.format(text)) == 1
    for escaped, text in (("%25", "%"), ("%7Ba%7D%7Bb%7D", "{a}{b}")):
        held = service.ask("POST", f"/v1/ns/pawlock/key/{escaped}/acquire", {})
        assert (held.status, held.body["name"]) == (200, text)
        assert server.command("EXISTS", text) == 1
    for bad in ("a%00b", "a%0D%0Ab", "%2E%2E", "%FF"):
        assert service.ask("POST", f"/v1/ns/pawlock/key/{bad}/acquire", {}).status in (400, 422)


def test_several_names_and_keys_at_once(service: App, server: Server) -> None:
    body = {"names": ["a"], "keys": ["redisson:b", "plain:c"]}
    held = service.ask("POST", "/v1/ns/pawlock/multi_lock/acquire", body)
    assert held.status == 200, held.body
    assert server.command("EXISTS", "pawlock:a", "b", "c") == 3
    leases = [{one: lease[one] for one in ("kind", "name", "token")} for lease in held.body["leases"]]
    assert (
        service.ask("POST", "/v1/ns/pawlock/multi_lock/acquire", {"names": [], "keys": ["plain:c"]}).status
        == 423
    )
    assert service.ask("POST", "/v1/ns/pawlock/multi_lock/renew", {"leases": leases}).status == 200
    assert service.ask("POST", "/v1/ns/pawlock/multi_lock/release", {"leases": leases}).status == 200
    assert server.command("EXISTS", "pawlock:a", "b", "c") == 0
    bodies: list[dict[str, list[str]]] = [{"names": []}, {"names": ["c"], "keys": ["plain:pawlock:c"]}]
    for nothing in bodies:
        refused = service.ask("POST", "/v1/ns/pawlock/multi_lock/acquire", nothing)
        assert (refused.status, refused.body["code"]) == (422, "BAD_BODY")


def test_a_session_keeps_a_key(service: App, server: Server) -> None:
    opened = service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 5}).body["session"]
    headers = {"Pawlock-Session": opened}
    assert service.ask("POST", "/v1/ns/pawlock/key/plain:a/acquire", {}, headers=headers).status == 200
    told = service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", {}, headers=headers).body
    assert [(one["kind"], one["name"]) for one in told["held"]] == [("key", "plain:a")]
    assert service.ask("DELETE", "/v1/ns/pawlock/sessions", None, headers=headers).body == {"released": 1}
    assert server.command("EXISTS", "a") == 0


def test_it_is_taken_away_with_a_reason(service: App, server: Server) -> None:
    service.ask("POST", "/v1/ns/pawlock/key/redisson:a/acquire", {})
    taken = service.ask("POST", "/v1/ns/pawlock/key/redisson:a/force-release", {"reason": "a test"})
    assert (taken.status, taken.body["count"], taken.body["name"]) == (200, 1, "key:a")
    assert server.command("EXISTS", "a") == 0


def test_a_token_locks_only_the_keys_that_it_lists(tokens: Tokens, service: App, server: Server) -> None:
    tokens.add("some", roles=["acquire", "read", "force"], namespaces=["pawlock"], keys=["order:*"])
    tokens.add("none", roles=["acquire", "read", "force"], namespaces=["pawlock"])
    server.command("SET", "pawlock:other", "theirs", "PX", 60_000)

    def ask(action: str, token: str, key: str) -> int:
        base, body = f"/v1/ns/pawlock/key/plain:{key}", {"token": "a" * 32 + "@b"}
        if action == "several":
            return service.ask(
                "POST", "/v1/ns/pawlock/multi_lock/acquire", {"names": [], "keys": [key]}, token=token
            ).status
        if action == "look":
            return service.ask("GET", base, token=token).status
        given: Any = {"acquire": {}, "force-release": {"reason": "a test"}}.get(action, body)
        return service.ask("POST", f"{base}/{action}", given, token=token).status

    for action in ("acquire", "renew", "release", "force-release", "look", "several"):
        assert ask(action, "some", "order:42") != 403, action
        assert ask(action, "some", "pawlock:other") == ask(action, "none", "order:42") == 403, action
        assert kept(server, "pawlock:other") == "theirs", action


def test_a_key_that_a_token_no_longer_lists_is_not_renewed(
    tokens: Tokens, service: App, server: Server
) -> None:
    tokens.add("some", roles=["acquire"], namespaces=["pawlock"], keys=["order:*"])
    headers = {
        "Pawlock-Session": service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 30}, token="some").body[
            "session"
        ]
    }
    assert (
        service.ask(
            "POST", "/v1/ns/pawlock/key/plain:order:1/acquire", {}, token="some", headers=headers
        ).status
        == 200
    )
    entries = json.loads(tokens.path.read_text())
    entries["tokens"][-1]["keys"] = ["nothing"]
    tokens.path.write_text(json.dumps(entries))

    def lost() -> list[str]:
        told = service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", {}, token="some", headers=headers)
        return [one["name"] for one in told.body["lost"]]

    until(lambda: lost() == ["plain:order:1"], what="it is reported lost")
    assert service.ask("DELETE", "/v1/ns/pawlock/sessions", None, token="some", headers=headers).status == 200


def test_the_entry_of_a_token_is_checked(tmp_path: Path) -> None:
    secret = new_secret()
    entry = entry_for("a", secret, ["pawlock"], ["acquire"], None)
    assert "keys" not in entry
    path = tmp_path / "tokens.json"
    for wrong, word in (
        ({"keys": "order:*"}, "keys"), ({"namespaces": []}, "namespaces"), ({"roles": ["write"]}, "roles"),
        ({"expires": "2030-01-31T00:00:00"}, "expires"), ({"hash": secret}, "hash"), ({"rate": -1}, "rate"),
        ({"id": "a b"}, "id"), ({"not_before": "2030-01-31"}, "not_before"),
    ):  # fmt: skip
        path.write_text(json.dumps({"tokens": [entry, {**entry, **wrong}]}))
        with pytest.raises(pawlock.ConfigurationError, match=f"entry 2: {word}") as told:
            Access(path).load()
        assert secret not in str(told.value)


def test_a_token_is_made_with_the_keys_that_it_may_lock(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    words = ["--namespace", "pawlock", "--role", "acquire", "--allow-key", "order:*", "--allow-key", "lock:a"]
    code, _, said = call("serve", "--make-token", "web", "--tokens", str(path), *words)
    assert code == 0, said
    (entry,) = json.loads(path.read_text())["tokens"]
    assert entry["keys"] == ["order:*", "lock:a"]
