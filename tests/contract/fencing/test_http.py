"""The middleware for HTTP: late requests are refused, in ASGI and WSGI, with the fences of one process or of Redis."""

from __future__ import annotations

import asyncio
import io
import json
import time
from typing import Any

import pytest
import redis
import redis.asyncio

import pawlock
from pawlock.fencing import (
    AsgiFences,
    AsyncRedisGuard,
    Fences,
    MemoryFences,
    RedisGuard,
    WsgiFences,
    fence_header,
)
from tests.support.servers import Server

pytestmark = pytest.mark.slow
NOW = int(time.time() * 1_000_000)
Answer = tuple[int, dict[str, Any]]


async def application(scope: Any, receive: Any, send: Any) -> None:
    body = json.dumps({"fence": scope.get("pawlock.fence")}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def by_asgi(method: str, path: str, values: list[str], **options: Any) -> Answer:
    app = options.pop("app", None) or AsgiFences(application, **options)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    headers = [(b"pawlock-fence", value.encode()) for value in values]
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


def by_wsgi(method: str, path: str, values: list[str], **options: Any) -> Answer:
    def application(environ: Any, start: Any) -> Any:
        start("200 OK", [])
        return [json.dumps({"fence": environ.get("pawlock.fence")}).encode()]

    app = options.pop("app", None) or WsgiFences(application, **options)
    told: list[Any] = []
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "wsgi.input": io.BytesIO()}
    if values:
        environ["HTTP_PAWLOCK_FENCE"] = ",".join(values)
    body = b"".join(app(environ, lambda status, headers: told.append(int(status[:3]))))
    return told[0], json.loads(body)


@pytest.fixture(params=[by_asgi, by_wsgi])
def ask(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_late_request_is_refused(ask: Any) -> None:
    fences = MemoryFences()
    assert ask("PUT", "/tea", [str(NOW)], fences=fences) == (200, {"fence": NOW})
    assert ask("PUT", "/tea", [str(NOW)], fences=fences)[0] == 200
    assert ask("PUT", "/tea", [str(NOW + 5)], fences=fences)[0] == 200
    status, problem = ask("DELETE", "/tea", [str(NOW)], fences=fences)
    assert (status, problem["code"]) == (412, "CONCURRENT_MODIFICATION")
    assert str(NOW + 5) in problem["detail"]
    assert ask("PUT", "/salt", [str(NOW)], fences=fences)[0] == 200, "another resource"


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([], 428),
        (["0"], 412),
        (["-1"], 400),
        (["+5"], 400),
        (["1.5"], 400),
        (["007"], 400),
        (["five"], 400),
        (["٣"], 400),
        ([str(2**63)], 400),
        ([str(NOW + 2 * 86400 * 1_000_000)], 400),
        (["5", "6"], 400),
    ],
)
def test_what_is_no_fence_is_refused(ask: Any, values: list[str], status: int) -> None:
    if values == ["٣"] and ask is by_asgi:
        values = ["\u00b3"]
    found, problem = ask("POST", "/tea", values)
    assert found == status == problem["status"]
    assert problem["title"]
    assert problem["detail"]


@pytest.mark.parametrize("method", ["post", "Post", "PoST", "put", "patch", "delete", "MOVE", "query", "x"])
def test_a_method_counts_in_upper_and_lower_case_and_an_unknown_one_writes(ask: Any, method: str) -> None:
    assert ask(method, "/tea", [])[0] == 428
    fences = MemoryFences()
    assert ask(method, "/tea", [str(NOW + 5)], fences=fences) == (200, {"fence": NOW + 5})
    assert ask(method, "/tea", [str(NOW)], fences=fences)[0] == 412
    assert ask(method.swapcase(), "/tea", [], methods={method})[0] == 428
    assert ask("get", "/tea", [])[0] == ask("Options", "/tea", [])[0] == 200


def test_a_request_that_reads_claims_with_the_fence_that_it_carries(ask: Any) -> None:
    fences = MemoryFences()
    assert ask("GET", "/tea", [str(NOW)], fences=fences) == (200, {"fence": NOW})
    assert ask("GET", "/tea", [str(NOW + 5)], fences=fences)[0] == 200
    for method in ("GET", "PUT"):
        assert ask(method, "/tea", [str(NOW)], fences=fences)[0] == 412
    assert ask("PUT", "/tea", [str(NOW + 5)], fences=fences)[0] == 200
    assert ask("GET", "/tea", [], fences=fences)[0] == 200, "who writes nothing needs no fence"


def test_reading_needs_no_fence_and_one_can_be_optional(ask: Any) -> None:
    assert ask("GET", "/tea", []) == (200, {"fence": None})
    assert ask("POST", "/tea", [], required=False)[0] == 200
    assert ask("POST", "/tea", ["x"], required=False)[0] == 400
    assert ask("GET", "/tea", [], methods={"get"})[0] == 428
    assert ask("POST", "/tea", [], resource=lambda scope: None)[0] == 200


def test_a_resource_may_be_wider_than_a_path(ask: Any) -> None:
    options = {"fences": MemoryFences(), "resource": lambda scope: "the whole shop"}
    assert ask("PUT", "/tea", [str(NOW + 9)], **options)[0] == 200
    assert ask("PUT", "/salt", [str(NOW)], **options)[0] == 412


def test_several_processes_share_their_fences_in_redis(server: Server) -> None:
    path = server.socket_path
    with redis.Redis(unix_socket_path=path) as one, redis.Redis(unix_socket_path=path) as two:
        assert by_wsgi("PUT", "/tea", [str(NOW + 5)], fences=RedisGuard(one))[0] == 200
        assert by_wsgi("PUT", "/tea", [str(NOW)], fences=RedisGuard(two))[0] == 412

    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=path) as client:
            app = AsgiFences(application, fences=AsyncRedisGuard(client))
            seen: list[Any] = []

            async def send(message: Any) -> None:
                seen.append(message)

            headers = [(b"pawlock-fence", str(NOW).encode())]
            scope = {"type": "http", "method": "PUT", "path": "/tea", "headers": headers}
            await app(scope, None, send)  # type: ignore[arg-type]
            assert seen[0]["status"] == 412

    asyncio.run(main())


def test_fences_that_cannot_be_asked_refuse(ask: Any) -> None:
    class Down:
        def claim(self, lease: Any, key: str, /) -> None:
            raise redis.ConnectionError("gone")

    down: Fences = Down()
    status, problem = ask("PUT", "/tea", [str(NOW)], fences=down)
    assert (status, problem["code"]) == (503, "FENCE_UNKNOWN")
    assert "gone" not in problem["detail"]


def test_a_fence_is_forgotten_after_its_time_and_not_before(ask: Any) -> None:
    fences = MemoryFences(keep=0.2)
    fences.claim(5, "tea")
    with pytest.raises(pawlock.StaleFence):
        fences.claim(4, "tea")
    time.sleep(0.3)
    fences.claim(4, "tea")
    time.sleep(0.3)
    fences.claim(1, "salt")
    assert list(fences._seen) == ["salt"]


def test_the_header_of_a_lease(valkey: Server) -> None:
    with pawlock.connect(valkey.url) as client, client.lock("tea") as lease:
        assert fence_header(lease) == {"Pawlock-Fence": str(lease.fence)}
        assert by_asgi("PUT", "/tea", [fence_header(lease)["Pawlock-Fence"]])[1] == {"fence": lease.fence}
    with pytest.raises(pawlock.StaleFence):
        fence_header(0)


def test_options_that_can_never_work_are_refused() -> None:
    for options in ({"methods": "POST"}, {"ahead": -1}, {"ahead": True}, {"ahead": float("nan")}):
        with pytest.raises(pawlock.ConfigurationError):
            AsgiFences(application, **options)
    for keep in (0, -1, True, "day"):
        with pytest.raises(pawlock.ConfigurationError, match="keep"):
            MemoryFences(keep=keep)  # type: ignore[arg-type]
    with pytest.raises(pawlock.ConfigurationError, match="is async"):
        WsgiFences(lambda environ, start: [], fences=AsyncRedisGuard(redis.asyncio.Redis()))


def test_what_is_not_http_passes() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    asyncio.run(AsgiFences(app)({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert seen == [{"type": "lifespan"}]
