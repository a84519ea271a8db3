"""What operators of the service need: metrics, logs, exit codes, and answers that tell no secret."""

import json
import logging
import re
import select
import socket
import time
from collections.abc import Callable

import pytest

import pawlock
from pawlock import errors
from pawlock.errors import PawlockError
from pawlock.service.access import Principal
from pawlock.service.config import Limits
from pawlock.service.problems import problem_of
from tests.service.rig import App, Instance, Loop, Tokens
from tests.support.command import call
from tests.support.servers import Server

NS = "/v1/ns/pawlock"


def test_a_port_in_use_ends_it_with_one_line(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for options in (["--port", port], ["--port", "0", "--probe-port", port]):
            code, printed, said = call("serve", "--url", server.url, *options)
            assert (code, printed) == (69, "")
            assert said.count("\n") == 1, said
            assert f"cannot listen on 127.0.0.1 port {port}" in said


@pytest.mark.slow
def test_it_prints_the_address_that_clients_take(instance: Instance, tokens: Tokens) -> None:
    service = instance
    found = re.search(rb"connect to (http\+pawlock://\S+)\n", service.said)
    deadline = time.monotonic() + 10
    while found is None:
        assert time.monotonic() < deadline, service.said
        assert service.process.stderr is not None
        if select.select([service.process.stderr], [], [], 0.1)[0]:
            service.said += service.process.stderr.read1(4096)  # type: ignore[attr-defined]
        found = re.search(rb"connect to (http\+pawlock://\S+)\n", service.said)
    url = found[1].decode().replace("<token>", tokens.secrets["admin"])
    with pawlock.connect(url) as client, client.lock("a"):
        assert service.ask("GET", f"{NS}/lock/a").body["held"] is True


def test_who_has_no_token_is_not_told_where_the_server_is(
    loop: Loop, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    service = App(loop, f"redis://127.0.0.1:{port}", tokens)
    ready = service.ask("GET", "/readyz", token=None)
    assert (ready.status, ready.body["code"]) == (503, "REDIS_CONNECTION_ERROR")
    refused = service.acquire("a")
    assert refused.status == 503
    for answer in (ready, refused):
        assert str(port) not in json.dumps(answer.body)
    service.end()
    assert f":{port}/" in caplog.text, "its log says where"


def test_metrics_count_requests_and_tell_no_name(service: App, tokens: Tokens) -> None:
    tokens.add("reader", roles=["read"], namespaces=["x"])
    tokens.add("taker", roles=["acquire"])
    held = service.acquire("very-private-name", ttl=60)
    assert service.acquire("very-private-name").status == 423
    service.ask("POST", f"{NS}/lock/very-private-name/release", {"token": held.body["token"]})
    service.ask("GET", f"{NS}/lock/very-private-name")
    service.ask("GET", "/very-private-path")
    assert service.ask("GET", "/metrics", token=None).status == 401
    assert service.ask("GET", "/metrics", token="taker").status == 403
    told = service.ask("GET", "/metrics", token="reader")
    assert told.status == 200
    assert told.headers["content-type"].startswith("text/plain")
    text = told.body.decode()
    for line in (
        'pawlock_http_requests_total{method="POST",operation="acquire",status="200"} 1.0',
        'pawlock_http_requests_total{method="POST",operation="acquire",status="423"} 1.0',
        'pawlock_http_requests_total{method="POST",operation="acquire",status="401"} 0.0',
        'pawlock_http_requests_total{method="POST",operation="release",status="200"} 1.0',
        'pawlock_http_requests_total{method="GET",operation="metrics",status="403"} 1.0',
        'pawlock_http_request_seconds_count{operation="acquire"} 2.0',
        "pawlock_http_namespaces 1.0",
        "pawlock_http_waiting 0.0",
    ):
        assert line in text, text
    assert "private" not in text


def _lines(service: Instance) -> list[dict[str, object]]:
    service.end()
    return [json.loads(line) for line in service.said.decode().splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    "which", ["requests", *(pytest.param(one, marks=pytest.mark.slow) for one in ("none", "audit"))]
)
def test_the_log_says_who_was_refused_and_who_forced_what(
    serve: Callable[..., Instance], tokens: Tokens, which: str
) -> None:
    tokens.add("reader", roles=["read"])
    service = serve("--log", which)
    held = service.acquire("a", ttl=60)
    service.ask("GET", f"{NS}/lock/a", token="pawlock_wrong")
    service.acquire("a", token="reader")
    service.ask("POST", f"{NS}/lock/a/force-release", {"reason": "stuck"})
    told = _lines(service)
    for secret in (
        held.body["token"],
        held.body["token"].partition("@")[0],
        *tokens.secrets.values(),
        "pawlock_wrong",
    ):
        assert secret.encode() not in service.said
    short = [(one["event"], one["client"], one["status"], one["code"]) for one in told]
    audit = [
        ("refused", None, 401, "UNAUTHENTICATED"), ("refused", "reader", 403, "FORBIDDEN"),
        ("forced", "admin", 200, None),
    ]  # fmt: skip
    if which == "none":
        assert short == []
    elif which == "audit":
        assert short == audit
    else:
        assert [one for one in short if one[0] != "request"] == audit
        requests = [one for one in told if one["event"] == "request"]
        assert [one["status"] for one in requests] == [200, 401, 403, 200]
        assert requests[0]["path"] == f"{NS}/lock/a/acquire"
    for one in told:
        assert one["address"] == "127.0.0.1"
        assert str(one["at"]).endswith("+00:00")


def test_who_has_no_token_cannot_fill_the_log(service: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pawlock.service.audit")
    began = time.monotonic()
    for _ in range(200):
        service.ask("GET", f"{NS}/locks", token=None)
    seconds = time.monotonic() - began
    told = [one for one in caplog.records if one.name == "pawlock.service.audit"]
    assert 20 <= len(told) <= 20 * (seconds + 2)


def _kinds(kind: type[PawlockError] = PawlockError) -> list[type[PawlockError]]:
    return [kind, *(one for sub in kind.__subclasses__() for one in _kinds(sub))]


PYTHON = re.compile(
    r"`|timeout=|unavailable_after|max_waiters|deadlock_after|\bclose\(\)|\bwith\b block|on_lost"
)


def test_every_problem_has_a_remedy_that_makes_sense_over_http() -> None:
    kinds = [one for one in _kinds() if one.__module__ == errors.__name__]
    assert len(kinds) > 20
    for kind in kinds:
        problem = problem_of(kind("what ``happened``", name="a"))
        assert problem.more["fix"], kind
        assert problem.more["cause"], kind
        assert not PYTHON.search(problem.more["fix"]), kind
        assert "`" not in problem.detail + problem.more["cause"], kind


def test_only_a_star_has_a_meaning_in_a_namespace_of_a_token() -> None:
    for pattern, namespace, fits in (
        ("team-*", "team-a", True), ("team-*", "team-", True), ("team-*", "xteam-a", False), ("*", "a\nb", True),
        ("team-?", "team-a", False), ("team-?", "team-?", True), ("team-[ab]", "team-a", False),
        ("team-[ab]", "team-[ab]", True), ("a.c", "abc", False), ("*-prod", "web-prod", True),
        ("*-prod", "web-prod2", False),
    ):  # fmt: skip
        who = Principal("a", (pattern,), frozenset(["read"]), Limits())
        assert who.may("read", namespace) is fits, (pattern, namespace)


def test_the_page_of_the_service_is_whole(service: App) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/favicon.svg", "image/svg+xml"),
    ):
        answer = service.ask("GET", path, token=None)
        assert answer.status == 200, path
        assert answer.headers["content-type"].startswith(kind)


def test_head_has_the_headers_of_get_and_no_body(service: App) -> None:
    pages = ["/", "/page.js", "/page.css", "/favicon.svg", "/favicon.ico", "/healthz", "/readyz", "/metrics"]
    for path in pages:
        # The number of requests is in the metrics: their length grows.
        counted = {"content-length"} if path == "/metrics" else set[str]()
        told: list[tuple[int, dict[str, str]]] = []
        for method in ("GET", "HEAD"):
            answer = service.ask(method, path)
            assert int(answer.headers["content-length"]) > 0, path
            told.append((answer.status, {k: v for k, v in answer.headers.items() if k not in counted}))
        assert told[0][0] == 200, path
        assert told[0] == told[1], path
        refused = service.ask("DELETE", path)
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD"), path


def test_a_refused_method_lists_those_of_all_routes_of_a_path(service: App) -> None:
    for path, allowed in (("/v1/ns/pawlock/sessions", "DELETE, POST"), ("/v1/ns/pawlock/lock/a", "GET")):
        refused = service.ask("PUT", path)
        assert (refused.status, refused.headers["allow"]) == (405, allowed)
