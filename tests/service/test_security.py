"""Who is let in, and what nobody may do."""

import http.client
import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.rig import App, Instance, Tokens, resident
from tests.support.command import call
from tests.support.servers import Server

NS = "/v1/ns/pawlock"


def test_without_a_known_token_nothing_is_told(service: App) -> None:
    asked = itertools.product(
        (None, "Bearer pawlock_wrong", "Basic YTpi", "Bearer ", "Bearer é"),
        (("POST", f"{NS}/lock/a/acquire"), ("GET", f"{NS}/locks"), ("GET", f"{NS}/audit")),
    )
    for header, (method, path) in asked:
        answer = service.ask(method, path, token=None, headers={"Authorization": header} if header else {})
        assert (answer.status, answer.body["code"]) == (401, "UNAUTHENTICATED"), (header, path)
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert service.ask("GET", f"{NS}/lock/a").body["held"] is False


def test_an_expired_token_is_told_so(service: App, tokens: Tokens) -> None:
    tokens.add("old", roles=["acquire"], expires=time.time() - 1)
    answer = service.acquire("a", token="old")
    assert answer.status == 401
    assert answer.body["code"] == "TOKEN_EXPIRED"


def test_a_token_that_is_added_is_known_within_a_second(service: App, tokens: Tokens) -> None:
    assert service.ask("GET", f"{NS}/locks", token="pawlock_unknown").status == 401
    tokens.add("late", roles=["read"])
    end = time.monotonic() + 5
    while service.ask("GET", f"{NS}/locks", token="late").status != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_wait_ends_with_its_token(service: App, tokens: Tokens) -> None:
    for how in ("taken", "demoted"):
        tokens.add(how, roles=["read", "acquire"])
    held = service.acquire("busy", ttl=60).body["token"]
    with ThreadPoolExecutor(2) as pool:
        waiting = {
            how: pool.submit(service.acquire, "busy", token=how, wait=20) for how in ("taken", "demoted")
        }
        end = time.monotonic() + 10
        while service.ask("GET", f"{NS}/lock/busy").body["queue_length"] < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        listed = {one["id"]: one for one in json.loads(tokens.path.read_text())["tokens"]}
        listed["demoted"]["roles"] = ["force"]
        del listed["taken"]
        tokens.path.write_text(json.dumps({"tokens": list(listed.values())}))
        time.sleep(1.1)  # the file is read again
        assert service.ask("POST", f"{NS}/lock/busy/release", {"token": held}).status == 200
        assert {how: one.result(10).status for how, one in waiting.items()} == {"taken": 401, "demoted": 403}
    while service.ask("GET", f"{NS}/lock/busy").body["held"]:
        assert time.monotonic() < end, "it holds what it can neither renew nor release"
        time.sleep(0.02)


def test_a_token_may_do_what_its_roles_say_in_its_namespaces_alone(service: App, tokens: Tokens) -> None:
    tokens.add("reader", roles=["read"])
    tokens.add("taker", roles=["acquire"])
    tokens.add("team", roles=["acquire", "read"], namespaces=["team-*"])
    assert service.acquire("a", token="reader").status == 403
    assert service.acquire("a", token="team").status == 403
    taken = service.acquire("a", token="taker", ttl=60)
    assert taken.status == 200
    assert service.ask("GET", f"{NS}/lock/a", token="taker").status == 403
    assert service.ask("GET", f"{NS}/lock/a", token="reader").status == 200
    assert service.ask("POST", f"{NS}/lock/a/force-release", {"reason": "x"}, token="taker").status == 403
    assert service.ask("POST", "/v1/ns/team-1/lock/a/acquire", {}, token="team").status == 200
    # The token of a lease is worth nothing without the right to its namespace, and nothing for another name.
    release = {"token": taken.body["token"]}
    assert service.ask("POST", f"{NS}/lock/a/release", release, token="reader").status == 403
    assert service.ask("POST", f"{NS}/lock/b/release", release, token="taker").status == 409
    assert service.ask("POST", f"{NS}/lock/a/release", {"token": str(taken.body["fence"])}).status == 409
    assert service.ask("GET", f"{NS}/lock/a", token="reader").body["held"] is True


PATHS = [
    ("/v1/ns/pawlock/../secret/lock/a", 404),
    ("/v1/ns/pawlock/lock/..", 400),
    ("/v1/ns/pawlock/lock/%2e%2e", 400),
    ("/v1/ns/pawlock/lock/%2E", 400),
    ("/v1/ns/pawlock//lock/a", 404),
    ("/v1/ns/pawlock/lock/a%00b", 400),
    ("/v1/ns/pawlock/lock/a%0d%0ab", 400),
    ("/v1/ns/pawlock/lock/%ff", 400),
    ("/v1/ns/pawlock/lock/" + "x" * 201, 422),
    ("/v1/ns/other/lock/a", 403),
    ("/v1/ns/pawlock%2F..%2Fother/lock/a", 403),
    ("/v1/ns/%70awlock/lock/a", 200),
    ("/v1/ns/pawlock/lock/a%2F..%2Fb", 200),
    ("/v1/ns/pawlock/lock/%7Bpawlock%7D:fence", 200),
    ("/v1/ns/pawlock/lock/{a}", 200),
    ("/v1/ns/pawlock/gate/a", 404),
]


def test_tricks_with_paths(instance: Instance) -> None:
    """Over a connection: a client of an application would put some of them in order before it asks."""
    instance.tokens.add("one", roles=["read", "acquire"])
    time.sleep(1.1)  # the file is read again
    found = [(path, instance.ask("GET", path, token="one").status) for path, _ in PATHS]
    assert found == PATHS


def test_a_name_cannot_reach_a_key_of_another(service: App, server: Server) -> None:
    assert service.ask("POST", f"{NS}/lock/a%2Fb%7B%7D/acquire", {}).status == 200
    listed = server.command("KEYS", "*")
    assert isinstance(listed, list)
    keys = sorted(key.decode() for key in listed if isinstance(key, bytes))
    assert "pawlock:a/b%7B%7D" in keys
    assert all(
        key.startswith(("pawlock:a/b%7B%7D", "{pawlock:a/b%7B%7D}:", "{pawlock}:1:")) for key in keys
    ), keys


def test_a_body_that_is_too_large_is_refused(service: App) -> None:
    path = f"{NS}/lock/a/acquire"
    answer = service.ask("POST", path, b'{"holder": "' + b"x" * 20_000)
    assert (answer.status, answer.body["code"]) == (413, "BODY_TOO_LARGE")
    # In parts, none of which says how long it is in all.
    headers = {"Authorization": f"Bearer {service.tokens.secrets['admin']}"}
    assert service.send("POST", path, [b"x" * 10_000, b"y" * 10_000], headers, 10)[0] == 413


def test_bad_bodies_are_refused_with_a_reason(service: App) -> None:
    for body, status, code in (
        (b"{", 400, "BAD_JSON"),
        (b"[]", 422, "BAD_BODY"),
        (b'{"tll": 3}', 422, "BAD_BODY"),
        (b'{"ttl": "3"}', 422, "BAD_BODY"),
        (b'{"ttl": -1}', 422, "BAD_BODY"),
        (b'{"ttl": 1e300}', 422, "CONFIGURATION"),
        (b'{"ttl": 7200}', 422, "TTL_LIMIT"),
        (b'{"ttl": NaN}', 422, "BAD_BODY"),
        (b'{"wait": -1}', 422, "BAD_BODY"),
        (b'{"permits": 3}', 422, "CONFIGURATION"),
        (b'{"holder": "a@b"}', 422, "BAD_BODY"),
    ):
        answer = service.ask("POST", f"{NS}/lock/a/acquire", body)
        assert (answer.status, answer.body["code"]) == (status, code), body
        assert answer.body["detail"], body


def test_a_client_has_a_rate(service: App, tokens: Tokens) -> None:
    tokens.add("slow", roles=["acquire"], rate=2)
    asked = [service.acquire("r", token="slow") for _ in range(8)]
    assert [one.body["code"] for one in asked if one.status == 429] == ["RATE_LIMIT"] * 4
    assert asked[-1].headers["retry-after"] == "1"
    assert service.acquire("r").status == 423


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_names_of_any_length_leave_its_memory_flat(serve: Callable[..., Instance], tokens: Tokens) -> None:
    service = serve()
    head = f"Authorization: Bearer {tokens.secrets['admin']}\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), 20) as one:
        before = 0
        for number in range(1500):
            name = f"{number:06d}" + "x" * 25_000
            path = f"{NS}/lock/{name}" if number % 2 else f"/v1/ns/{name}/locks"
            one.sendall(f"GET {path} HTTP/1.1\r\n{head}".encode())
            answer = b""
            while not answer.endswith(b"}"):
                answer += one.recv(65536)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"BAD_PATH" in answer
            assert len(answer) < 2000
            before = before or resident(service)
    assert resident(service) - before < 20 * 1024 * 1024


def test_every_answer_says_how_it_may_be_used(instance: Instance) -> None:
    for path in ("/healthz", f"{NS}/locks", "/nothing"):
        headers = instance.ask("GET", path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


def test_it_reaches_beyond_this_machine_only_with_tokens_and_tls(server: Server, tokens: Tokens) -> None:
    words = ["serve", "--url", server.url, "--host", "0.0.0.0", "--port", "0"]
    for options, word in (([], "--tokens"), (["--tokens", str(tokens.path)], "--certificate")):
        code, _, said = call(*words, *options)
        assert code == 64
        assert word in said
        assert said.count("\n") == 1


def test_a_token_can_be_made_and_only_its_hash_is_kept(
    app: Callable[[], App], tokens: Tokens, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    words = ["--namespace", "pawlock", "--role", "acquire", "--expires", "30d"]
    code, printed, _ = call("serve", "--make-token", "web", "--tokens", str(path), *words)
    secret = printed.strip()
    assert code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret not in path.read_text()
    tokens.path = path
    service = app()
    assert service.acquire("a", token=secret).status == 200
    assert service.ask("GET", f"{NS}/locks", token=secret).status == 403


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = st.sampled_from(["ttl", "wait", "token", "identifier", "permits", "n", "holder", "reason"])
_PART = st.sampled_from(
    ["lock", "rlock", "semaphore", "rwlock_read", "sessions", "a", "%00", "..", "%2F", "é", "locks"]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "DELETE", "PUT"]),
    parts=st.lists(_PART | st.text(max_size=12), max_size=4),
    what=st.sampled_from(["", "/acquire", "/renew", "/release", "/force-release", "/keep-alive"]),
    body=st.dictionaries(_FIELDS, _JSON, max_size=4) | _JSON,
    headers=st.dictionaries(
        st.sampled_from(["Pawlock-Session", "Idempotency-Key", "Content-Type"]),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
        | st.just("s1000-aaaaaaaaaaaaaaaaaaaa"),
    ),
)
def test_nothing_that_is_sent_makes_a_500(
    service: App, method: str, parts: list[str], what: str, body: object, headers: dict[str, str]
) -> None:
    path = NS + "".join(f"/{quote(part, safe='%/.')}" for part in parts)
    if isinstance(body, dict):
        body = {**body, "wait": 0} if "wait" in body else body
    answer = service.ask(method, path + what, json.dumps(body).encode(), headers=headers)
    assert answer.status < 500, (answer.status, answer.body)
    if answer.status >= 400:
        assert answer.body["code"]
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_program_is_told_as_json_where_it_listens_and_what_was_made(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    words = ["--make-token", "web", "--namespace", "pawlock", "--role", "read", "--tokens", str(path)]
    code, printed, _ = call("serve", "--json", *words)
    assert (code, json.loads(printed)["entry"]) == (0, json.loads(path.read_text())["tokens"][0])
    with subprocess.Popen(
        [sys.executable, "-m", "pawlock", "serve", "--json", "--url", server.url, "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            began = json.loads(process.stdout.readline())
            connection = http.client.HTTPConnection(began["listening"].removeprefix("http://"), timeout=10)
            headers = {"Authorization": f"Bearer {began['token']}"}
            connection.request("GET", f"{NS}/lock/a", headers=headers)
            assert connection.getresponse().status == 200
            connection.close()
        finally:
            process.terminate()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
