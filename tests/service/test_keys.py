"""Keys that other programs lock too, through the service: by curl, and by pawlock's own clients of both APIs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
import redis

import pawlock
from pawlock.core.protocol.key_text import read_key
from pawlock.primitives.key import SCRIPTS
from pawlock.service.access import Access, entry_for, new_secret
from pawlock.service.config import Limits
from tests.faults.rig import APIS, Api, Client, until
from tests.service.rig import Instance, Tokens
from tests.service.test_client import url
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
def test_a_lease_of_a_key(service: Instance, server: Server, spelled: str) -> None:
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
    listed = service.ask("GET", "/v1/ns/pawlock/locks").body["locks"]
    assert [one["name"] for one in listed] == [f"key:{key}"]
    renewed = service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/renew", {"token": token, "ttl": 40})
    assert renewed.status == 200
    assert renewed.body["fence"] == fence
    assert int(str(server.command("PTTL", key))) > 30_000
    assert service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/release", {"token": token}).status == 200
    assert server.command("EXISTS", key) == 0
    again = service.ask("POST", f"/v1/ns/pawlock/key/{spelled}/release", {"token": token})
    assert again.status == 409


def test_a_waiter_gets_a_key_that_another_program_deletes(service: Instance, server: Server) -> None:
    server.command("SET", "order:42", "theirs", "PX", 400)
    held = service.ask("POST", "/v1/ns/pawlock/key/plain:order:42/acquire", {"wait": 10})
    assert held.status == 200
    server.command("HSET", "theirs", THEIRS, 1)
    server.command("PEXPIRE", "theirs", 400)
    assert service.ask("POST", "/v1/ns/pawlock/key/redisson:theirs/acquire", {"wait": 10}).status == 200


def test_what_cannot_be_a_key_is_refused_untouched(service: Instance, server: Server) -> None:
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


def test_a_key_that_becomes_another_programs_costs_the_others_nothing(
    service: Instance, server: Server
) -> None:
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


def test_what_becomes_another_programs_ends_with_its_session(service: Instance, server: Server) -> None:
    headers = {"Pawlock-Session": service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 5}).body["session"]}
    for kind, name in (("key", "plain:a"), ("lock", "b")):
        assert service.ask("POST", f"/v1/ns/pawlock/{kind}/{name}/acquire", {}, headers=headers).status == 200
    server.command("DEL", "a")
    server.command("HSET", "a", THEIRS, 1)
    assert service.ask("DELETE", "/v1/ns/pawlock/sessions", None, headers=headers).body == {"released": 1}
    assert server.command("EXISTS", "a", "pawlock:b") == 1


def test_a_crowd_of_requests_leaves_it_to_another_program_now_and_then(
    service: Instance, server: Server
) -> None:
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
            until(lambda: service.ask("GET", at).body["queue_length"] == 1, what="a queue that never ends")
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
    service: Instance, server: Server, spelled: str, channel: str, message: str
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
        until(is_told, what="what wakes them, of a request")
        with pawlock.connect(url(service)) as client:
            client.lock(read_key(spelled)).acquire().release()
        until(is_told, what="what wakes them, of a client")


def test_a_key_is_those_bytes_and_no_others(service: Instance, server: Server) -> None:
    written = {form: unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD")}
    for text in written.values():
        held = service.ask("POST", f"/v1/ns/pawlock/key/{quote(text)}/acquire", {})
        assert (held.status, held.body["name"]) == (200, text)
        assert server.command("EXISTS", text) == 1
    for bad in ("a%00b", "%25", "%2E%2E"):
        assert service.ask("POST", f"/v1/ns/pawlock/key/{bad}/acquire", {}).status in (400, 422)


def test_an_owner_enters_a_key_again(service: Instance, server: Server) -> None:
    first = service.ask("POST", "/v1/ns/pawlock/key/plain:job/acquire", {"owner": "deploy"})
    second = service.ask("POST", "/v1/ns/pawlock/key/plain:job/acquire", {"owner": "deploy"})
    assert first.status == second.status == 200
    assert service.ask("POST", "/v1/ns/pawlock/key/plain:job/acquire", {"owner": "other"}).status == 423
    for one in (first, second):
        left = {"token": one.body["token"], "owner": "deploy"}
        assert service.ask("POST", "/v1/ns/pawlock/key/plain:job/release", left).status == 200
    assert server.command("EXISTS", "job") == 0


def test_several_names_and_keys_at_once(service: Instance, server: Server) -> None:
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


def test_a_session_keeps_a_key(service: Instance, server: Server) -> None:
    opened = service.ask("POST", "/v1/ns/pawlock/sessions", {"ttl": 5}).body["session"]
    headers = {"Pawlock-Session": opened}
    assert service.ask("POST", "/v1/ns/pawlock/key/plain:a/acquire", {}, headers=headers).status == 200
    told = service.ask("POST", "/v1/ns/pawlock/sessions/keep-alive", {}, headers=headers).body
    assert [(one["kind"], one["name"]) for one in told["held"]] == [("key", "plain:a")]
    assert service.ask("DELETE", "/v1/ns/pawlock/sessions", None, headers=headers).body == {"released": 1}
    assert server.command("EXISTS", "a") == 0


def test_it_is_taken_away_with_a_reason(service: Instance, server: Server) -> None:
    service.ask("POST", "/v1/ns/pawlock/key/redisson:a/acquire", {})
    taken = service.ask("POST", "/v1/ns/pawlock/key/redisson:a/force-release", {"reason": "a test"})
    assert (taken.status, taken.body["released"], taken.body["name"]) == (200, True, "key:a")
    assert server.command("EXISTS", "a") == 0


@pytest.mark.parametrize(
    "action", ["acquire", "renew", "release", "force-release", "look", "history", "several"]
)
def test_a_token_locks_only_the_keys_that_it_lists(
    tokens: Tokens, service: Instance, server: Server, action: str
) -> None:
    tokens.add("some", roles=["acquire", "read", "force"], namespaces=["pawlock"], keys=["order:*"])
    tokens.add("none", roles=["acquire", "read", "force"], namespaces=["pawlock"])
    server.command("SET", "pawlock:other", "theirs", "PX", 60_000)

    def ask(token: str, key: str) -> int:
        base, body = f"/v1/ns/pawlock/key/plain:{key}", {"token": "a" * 32 + "@b"}
        if action == "several":
            return service.ask(
                "POST", "/v1/ns/pawlock/multi_lock/acquire", {"names": [], "keys": [key]}, token=token
            ).status
        if action in ("look", "history"):
            return service.ask("GET", base + ("/history" if action == "history" else ""), token=token).status
        given: Any = {"acquire": {}, "force-release": {"reason": "a test"}}.get(action, body)
        return service.ask("POST", f"{base}/{action}", given, token=token).status

    def known() -> bool:
        return service.ask("GET", "/v1/ns/pawlock/locks", token="none").status == 200

    until(known, what="the tokens are read")
    assert ask("some", "order:42") != 403
    assert ask("some", "pawlock:other") == ask("none", "order:42") == 403
    assert kept(server, "pawlock:other") == "theirs"


def test_a_key_that_a_token_no_longer_lists_is_not_renewed(
    tokens: Tokens, service: Instance, server: Server
) -> None:
    tokens.add("some", roles=["acquire"], namespaces=["pawlock"], keys=["order:*"])
    until(
        lambda: service.ask("POST", "/v1/ns/pawlock/sessions", {}, token="some").status == 200, what="known"
    )
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


def test_the_keys_of_a_token_are_checked(tmp_path: Path) -> None:
    entry = entry_for("a", new_secret(), ["pawlock"], ["acquire"], None)
    assert "keys" not in entry
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"tokens": [{**entry, "keys": "order:*"}]}))
    with pytest.raises(pawlock.ConfigurationError, match="keys must be a list"):
        Access(Limits(), path).load()


def test_a_token_is_made_with_the_keys_that_it_may_lock(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    command = [sys.executable, "-m", "pawlock", "serve", "--make-token", "web", "--tokens", str(path)]
    command += [
        "--namespace",
        "pawlock",
        "--role",
        "acquire",
        "--allow-key",
        "order:*",
        "--allow-key",
        "lock:a",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (entry,) = json.loads(path.read_text())["tokens"]
    assert entry["keys"] == ["order:*", "lock:a"]


# pawlock's own clients ------------------------------------------------------------------------------------------------


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Threads, then asyncio."""
    with Api(request.param) as api:
        yield api


@pytest.fixture
def client(api: Api, service: Instance) -> Client:
    return api.connect(url(service))


def lock(client: Client, key: pawlock.Key, **options: Any) -> Any:
    return client.lock(cast("str", key), **options)


KEYS = [
    pawlock.Key("order:42"), pawlock.Key.redisson("order:42"), pawlock.Key.redisson("order:42", fenced=True),
    pawlock.Key.spring("locks", "order:42"), pawlock.Key.python_redis_lock("order:42"), pawlock.Key.shedlock("job", env="e"),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_client_locks_a_key(api: Api, client: Client, server: Server, key: pawlock.Key) -> None:
    direct = api.connect(server.url)
    lease = lock(client, key, ttl=2).acquire()
    assert lease.raw.name == key.name
    assert server.command("EXISTS", key.key) == 1
    assert lock(direct, key).try_acquire() is None
    assert api.run(client.raw.lock(key).locked) is True
    info = api.run(lambda: client.raw.inspect(key))
    assert (info.name, info.held, info.foreign, info.fence) == (key.name, True, False, lease.fence)
    waiting = lock(direct, key).start(20)
    until(lambda: api.run(lambda: client.raw.inspect(key)).queue_length == 1, what="a waiter")
    lease.release()
    second = waiting.result(10)
    assert second.fence > lease.fence
    second.release()
    if key.fence == "redisson":
        counter = server.command("GET", "redisson_lock_token:{order:42}")
        assert isinstance(counter, bytes)
        assert int(counter) >= second.fence


@pytest.mark.parametrize("key", KEYS[:2], ids=repr)
def test_a_client_renews_and_notices_a_blind_delete(
    api: Api, client: Client, server: Server, key: pawlock.Key
) -> None:
    lease = lock(client, key, ttl=0.9).acquire()
    until(lambda: lease.remaining() < 0.6, what="some time")
    until(lambda: lease.remaining() > 0.7, what="a renewal")
    server.command("DEL", key.key)
    until(lambda: api.run(lambda: lease.raw.state) == "lost", what="the loss")


def test_a_client_waits_for_another_program_and_leaves_it_room(
    api: Api, client: Client, service: Instance, server: Server
) -> None:
    key, rival = pawlock.Key("order:42"), api.connect(url(service))
    server.command("SET", "order:42", "theirs", "PX", 60_000)
    waiting = lock(client, key, yield_after=0.001, yield_for=3.0).start(20)
    until(lambda: api.run(lambda: client.raw.inspect(key)).queue_length == 1, what="a waiter")
    server.command("DEL", "order:42")
    lease = waiting.result(10)
    behind = lock(rival, key, yield_after=0.001, yield_for=3.0).start(20)
    until(lambda: api.run(lambda: client.raw.inspect(key)).queue_length == 1, what="another")
    time.sleep(0.01)
    lease.release()
    # It is left free for others, though a client of pawlock waits.
    assert server.command("SET", "order:42", "theirs", "NX", "PX", 500) is not None
    behind.result(10).release()


def test_a_client_is_told_what_another_program_put_there(api: Api, client: Client, server: Server) -> None:
    server.command("HSET", "order:42", THEIRS, 1)
    before = server.command("DUMP", "order:42")
    with pytest.raises(pawlock.WrongKey, match="Redisson"):
        lock(client, pawlock.Key("order:42")).acquire()
    assert server.command("DUMP", "order:42") == before
    assert api is not None


@pytest.mark.parametrize("held", [pawlock.Key("n"), pawlock.Key.redisson("n")], ids=repr)
def test_two_wires_on_one_name_are_refused(
    api: Api, client: Client, server: Server, service: Instance, held: pawlock.Key
) -> None:
    lease = lock(client, held, ttl=30, renew=False).acquire()
    other = pawlock.Key("n") if held.wire == "redisson" else pawlock.Key.redisson("n")
    raw = api.connect(url(service)).raw
    before = server.command("DUMP", "n")
    attempts: dict[str, Callable[[], object]] = {
        "acquire": raw.lock(other).acquire,
        "try": raw.lock(other).try_acquire,
        "owner": raw.rlock(other, owner="job").acquire,
        "several": raw.multi_lock(["one", other]).acquire,
        "inspect": lambda: raw.inspect(other),
        "locked": raw.lock(other).locked,
        "force_release": lambda: raw.force_release(other, reason="a test"),
    }
    for what, attempt in attempts.items():
        began = time.monotonic()
        with pytest.raises(pawlock.WrongKey, match="key:n") as caught:
            api.run(attempt)
        told = str(caught.value)
        assert f"use pawlock.Key{'.redisson' if held.wire == 'redisson' else ''}('n')" in told, what
        assert told.count("the key of this lock has a value") == 1, told
        assert time.monotonic() - began < 5, f"{what}: it was tried again and again"
    assert server.command("DUMP", "n") == before
    assert server.command("EXISTS", "pawlock:one") == 0
    lease.release()


def test_a_lease_is_passed_on_between_the_service_and_the_server(
    api: Api, client: Client, server: Server
) -> None:
    direct = api.connect(server.url)
    for key in (pawlock.Key("n"), pawlock.Key.redisson("n", fenced=True), pawlock.Key.spring("locks", "n")):
        for giver, taker in ((client, direct), (direct, client)):
            lease = lock(giver, key, ttl=5).acquire()
            ticket = api.run(lease.raw.detach)
            adopted = api.run(partial(taker.raw.adopt, ticket))
            assert (adopted.name, adopted.fence >= lease.fence) == (key.name, True)
            api.run(adopted.release)
            assert server.command("EXISTS", key.key) == 0


def test_a_client_takes_keys_and_names_together_and_by_force(
    api: Api, client: Client, server: Server
) -> None:
    raw = client.raw
    both = raw.multi_lock([pawlock.Key.redisson("a"), "b"])
    lease = api.run(both.acquire)
    assert server.command("EXISTS", "a", "pawlock:b") == 2
    api.run(lease.release)
    held = api.run(raw.rlock(pawlock.Key("job"), owner="deploy").acquire)
    again = api.run(raw.rlock(pawlock.Key("job"), owner="deploy").acquire)
    api.run(again.release)
    taken = api.run(lambda: raw.force_release(pawlock.Key("job"), reason="a test"))
    assert (taken.name, taken.released) == ("key:job", True)
    assert api.run(lambda: raw.history(pawlock.Key("job"))) == []
    until(lambda: api.run(lambda: held.state) == "lost", what="the loss")


def test_what_has_no_text_is_refused_before_anything_is_sent(client: Client) -> None:
    for key in (pawlock.Key("k", wake=("push", "mine", 1000)), pawlock.Key.spring("a:b", "c")):
        with pytest.raises(pawlock.NotSupported, match="HTTP service"):
            lock(client, key)
    with pytest.raises(pawlock.NotSupported, match="fair_lock"):
        client.raw.fair_lock(pawlock.Key("k"))


# Steps that no client sends ----------------------------------------------------------------------------------------


def _steps(
    service: Instance, words: list[str], name: str = "acquire", wire: str = "plain", token: str = "admin"
) -> Any:
    script = next(
        one for one in SCRIPTS[wire].values() if one.name.endswith(f"mutex/{name}") or one.name == name
    )
    return service.ask(
        "POST", "/v1/ns/pawlock/calls", {"calls": [{"script": script.sha, "words": words}]}, token=token
    )


def _acquire(key: str, shared: str, *, base: str = "", more: tuple[str, ...] = ()) -> list[str]:
    base = base or key
    helpers = [f"{{{base}}}:fence", *(f"{{{base}}}:1:{what}" for what in ("queue", "tickets"))]
    token = "a" * 32 + "@host:1/python"
    dead = f"{{{base}}}:1:dead:{token}"
    keys = [key, *helpers, dead, *more, f"{{{base}}}:1:holds"]
    return [*keys, token, "5000", "3000", "0", "1", "-", "100", shared, "86400000"]


def test_steps_of_a_key_are_checked(tokens: Tokens, service: Instance, server: Server) -> None:
    tokens.add("some", roles=["acquire"], namespaces=["pawlock"], keys=["order:*"])
    until(
        lambda: service.ask("POST", "/v1/ns/pawlock/sessions", {}, token="some").status == 200, what="known"
    )
    fine = _steps(service, _acquire("order:1", "250 60 0 plain:order:1"), token="some")
    assert fine.status == 200, fine.body
    assert fine.body["replies"][0][0] == "H"
    server.command("DEL", "order:1")
    refused: list[tuple[int, Callable[[], Any]]] = [
        (403, lambda: _steps(service, _acquire("pawlock:x", "250 60 0 plain:pawlock:x"), token="some")),
        # Says one key, and sends another.
        (422, lambda: _steps(service, _acquire("order:1", "250 60 0 plain:order:2"), token="some")),
        (422, lambda: _steps(service, _acquire("order:1", "250 60 0 redisson:order:1"), token="some")),
        # What a release sends is for the service to write.
        (422, lambda: _steps(service, _acquire("order:1", "250 60 push:9:victim"), token="some")),
        (422, lambda: _steps(service, _acquire("order:1", "250 60 0"), token="some")),
        (422, lambda: _steps(service, _acquire("order:1", "250 99999 0 plain:order:1"), token="some")),
        (
            422,
            lambda: _steps(
                service, _acquire("order:1", "250 60 0 plain:order:1", base="order:2"), token="some"
            ),
        ),
    ]
    for status, step in refused:
        assert step().status == status
    assert server.command("EXISTS", "order:1", "order:2", "pawlock:x", "victim") == 0
