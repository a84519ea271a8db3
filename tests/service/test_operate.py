"""What operators of the service need: logs, exit codes, and answers that tell no secret."""

import json
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import pawlock
from pawlock import errors
from pawlock.errors import PawlockError
from pawlock.service.access import Principal, hash_of
from pawlock.service.problems import problem_of
from tests.service.rig import App, Instance, Loop, Tokens
from tests.service.test_every_primitive import until
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


def test_what_is_wrong_between_the_service_and_its_server_is_for_its_log(
    loop: Loop, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    with Server("valkey") as server:
        server.command("ACL", "SETUSER", "lockuser", *["on", ">pw", "~*", "&*", "+@all"])
        address = server.url.partition("://")[2]
        service = App(loop, f"redis://lockuser:pw@{address}", tokens)
        assert service.ask("GET", "/readyz", token=None).status == 200
        server.command("ACL", "SETUSER", "lockuser", "-evalsha", "-eval")
        refused = [service.ask("GET", "/readyz", token=None), service.acquire("a")]
        server.command("ACL", "SETUSER", "lockuser", "off")
        server.command("CLIENT", "KILL", "USER", "lockuser")
        refused += [service.ask("GET", "/readyz", token=None), service.acquire("a")]
        assert [one.status for one in refused] == [503, 502, 503, 502]
        for one in refused:
            said = json.dumps(one.body)
            assert "see the log of this instance" in said
            assert "lockuser" not in said
            assert str(server.port) not in said
        service.end()
    assert "lockuser" in caplog.text or address.rstrip("/0") in caplog.text


def test_gauges_of_what_all_clients_hold_and_wait_for(service: App, tokens: Tokens, server: Server) -> None:
    tokens.add("reader", roles=["read"])
    tokens.add("writer", roles=["acquire"])
    with pawlock.connect(server.url) as direct, ThreadPoolExecutor(1) as pool:
        lease = direct.lock("job").acquire()
        permit = direct.semaphore("pool", permits=2).acquire()
        waiting = pool.submit(service.acquire, "job", wait=20)
        name = 'pawlock_service_{}{{namespace="pawlock",kind="{}"}} {}'

        def lines() -> list[str]:
            told = service.ask("GET", "/metrics?namespace=pawlock", token="reader")
            assert (told.status, told.headers["content-type"][:10]) == (200, "text/plain")
            return bytes(told.body).decode().splitlines()

        until(lambda: name.format("waiting", "lock", 1) in lines())
        found = lines()
        assert name.format("locks_held", "lock", 1) in found
        assert name.format("locks_held", "semaphore", 1) in found
        assert name.format("locks_held", "election", 0) in found
        until(
            lambda: any(one.startswith(name.format("longest_wait_seconds", "lock", "0.")) for one in lines())
        )
        lease.release()
        permit.release()
        assert waiting.result(20).status == 200
    for token, status in (("writer", 403), (None, 401)):
        assert service.ask("GET", "/metrics?namespace=pawlock", token=token).status == status
    assert service.ask("GET", "/metrics?namespace=other", token="reader").status == 403
    assert b'namespace="pawlock"' in service.ask("GET", "/metrics", token="reader").body


def test_a_namespace_cannot_break_a_line_of_the_gauges() -> None:
    from pawlock.service.gauges import text_of

    text = text_of([('a"} 1\nb\\', [])])
    assert 'namespace="a\\"} 1\\nb\\\\"' in text
    assert all(line.startswith(("#", "pawlock_service_")) for line in text.splitlines())


def test_the_log_says_who_forced_what_and_no_secret(serve: Callable[..., Instance], tokens: Tokens) -> None:
    service = serve("--access-log")
    held = service.acquire("a", ttl=60)
    service.ask("GET", f"{NS}/lock/a", token="pawlock_wrong")
    service.ask("POST", f"{NS}/lock/a/force-release", {"reason": "stuck"})
    service.end()
    told = service.said.decode()
    assert "by token admin: stuck" in told
    assert f'"POST {NS}/lock/a/acquire HTTP/1.1" 200' in told
    assert f'"GET {NS}/lock/a HTTP/1.1" 401' in told
    for secret in (held.body["token"].partition("@")[0], *tokens.secrets.values(), "pawlock_wrong"):
        assert secret not in told


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
        who = Principal(id="a", hash=hash_of(""), namespaces=[pattern], roles=["read"])
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
    pages = ["/", "/page.js", "/page.css", "/favicon.svg", "/favicon.ico", "/healthz", "/readyz"]
    for path in pages:
        told: list[tuple[int, object]] = []
        for method in ("GET", "HEAD"):
            answer = service.ask(method, path)
            assert int(answer.headers["content-length"]) > 0, path
            told.append((answer.status, answer.headers))
        assert told[0][0] == 200, path
        assert told[0] == told[1], path
        assert service.ask("DELETE", path).status == 405, path
