"""What operators of the service need: metrics, logs, exit codes, and answers that tell no secret."""

import json
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

import pawlock
from pawlock import errors
from pawlock.errors import PawlockError
from pawlock.primitives.mutex import Mutex
from pawlock.service.access import Principal
from pawlock.service.config import Limits
from pawlock.service.problems import problem_of
from tests.service.rig import Instance, Tokens
from tests.support.servers import Server

NS = "/v1/ns/pawlock"
TOKEN = "t" * 24 + "@host:1/a"


@pytest.mark.parametrize("option", ["--port", "--probe-port"])
def test_a_port_in_use_ends_it_with_one_line(server: Server, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = ["--port", "0"] if option == "--probe-port" else []
        done = subprocess.run(
            [sys.executable, "-m", "pawlock", "serve", "--url", server.url, *ports, option, port],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 69
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert done.stdout == ""


def test_it_prints_the_address_that_clients_take(service: Instance, tokens: Tokens) -> None:
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


def test_an_address_of_http_is_told_what_to_write() -> None:
    with pytest.raises(pawlock.ConfigurationError, match=r"http\+pawlock://"):
        pawlock.connect("http://127.0.0.1:8750")


def test_who_has_no_token_is_not_told_where_the_server_is(tokens: Tokens) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    service = Instance(f"redis://127.0.0.1:{port}", tokens, "--probe-port", "0")
    try:
        ready = service.ask("GET", "/readyz", token=None)
        assert (ready.status, ready.body["code"]) == (503, "REDIS_CONNECTION_ERROR")
        refused = service.acquire("a")
        assert refused.status == 503
        helpers = [
            f"{{pawlock:a}}:{one}" for one in ("fence", "1:queue", "1:tickets", f"1:dead:{TOKEN}", "1:holds")
        ]
        script = Mutex("lock", "a", "pawlock:a").leave(TOKEN, 0, 0).script
        step = {"script": script.sha, "words": ["pawlock:a", *helpers, TOKEN, "0", "0", "", "86400000"]}
        called = service.ask("POST", f"{NS}/calls", {"calls": [step]})
        assert called.body["replies"][0]["fault"] == "unreachable"
        for answer in (ready, refused, called):
            assert str(port) not in json.dumps(answer.body)
    finally:
        service.end()
    assert f":{port}/".encode() in service.said, "its log says where"


def test_metrics_count_requests_and_tell_no_name(service: Instance, tokens: Tokens) -> None:
    tokens.add("reader", roles=["read"], namespaces=["x"])
    tokens.add("taker", roles=["acquire"])
    time.sleep(1.1)  # the file is read again
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


@pytest.mark.parametrize("which", ["none", "audit", "requests"])
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


def test_who_has_no_token_cannot_fill_the_log(serve: Callable[..., Instance], tokens: Tokens) -> None:
    del tokens
    service = serve()
    began = time.monotonic()
    for _ in range(200):
        service.ask("GET", f"{NS}/locks", token=None)
    seconds = time.monotonic() - began
    told = _lines(service)
    assert 20 <= len(told) <= 20 * (seconds + 2)


def _kinds(kind: type[PawlockError] = PawlockError) -> list[type[PawlockError]]:
    return [kind, *(one for sub in kind.__subclasses__() for one in _kinds(sub))]


PYTHON = re.compile(
    r"`|timeout=|unavailable_after|max_waiters|deadlock_after|\bclose\(\)|\bwith\b block|on_lost"
)


@pytest.mark.parametrize("kind", [one for one in _kinds() if one.__module__ == errors.__name__])
def test_every_problem_has_a_remedy_that_makes_sense_over_http(kind: type[PawlockError]) -> None:
    problem = problem_of(kind("what ``happened``", name="a"))
    assert problem.more["fix"]
    assert problem.more["cause"]
    assert not PYTHON.search(problem.more["fix"])
    assert "`" not in problem.detail + problem.more["cause"]


@pytest.mark.parametrize(
    ("pattern", "namespace", "fits"),
    [
        ("team-*", "team-a", True), ("team-*", "team-", True), ("team-*", "xteam-a", False), ("*", "a\nb", True),
        ("team-?", "team-a", False), ("team-?", "team-?", True), ("team-[ab]", "team-a", False),
        ("team-[ab]", "team-[ab]", True), ("a.c", "abc", False), ("*-prod", "web-prod", True),
        ("*-prod", "web-prod2", False),
    ],
)  # fmt: skip
def test_only_a_star_has_a_meaning_in_a_namespace_of_a_token(
    pattern: str,
    namespace: str,
    fits: bool,  # noqa: FBT001 - of a table
) -> None:
    who = Principal("a", (pattern,), frozenset(["read"]), Limits())
    assert who.may("read", namespace) is fits


def test_the_page_of_the_service_is_whole(service: Instance) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/page.js", "text/javascript"),
        ("/favicon.svg", "image/svg+xml"),
    ):
        answer = service.ask("GET", path, token=None)
        assert answer.status == 200, path
        assert answer.headers["content-type"].startswith(kind)
