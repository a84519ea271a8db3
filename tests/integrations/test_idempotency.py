"""``pawlock.integrations.asgi.Idempotency`` in this process: what is handled, replayed, refused, and what is freed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import pawlock
from pawlock.integrations.asgi import Idempotency, is_final
from tests.support.servers import Server

OWN = Path(__file__).read_bytes()


@dataclass
class Client:
    """Asks an application as a server would."""

    app: ASGIApp
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(
        self,
        path: str = "/pay",
        key: str | None = "k",
        body: bytes = b"{}",
        method: str = "POST",
        **headers: str,
    ) -> Answer:
        sent = [body[:3], body[3:]] if len(body) > 3 else [body]
        messages: list[Message] = []

        async def receive() -> Message:
            if sent:
                return {"type": "http.request", "body": sent.pop(0), "more_body": bool(sent)}
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            messages.append(message)

        path, _, query = path.partition("?")
        given = {**headers, **({} if key is None else {"Idempotency-Key": key})}
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "server": ("test", 80),
            "client": ("test", 1),
            "extensions": {"http.response.pathsend": {}, "other": {}},
        }
        await self.app(scope, receive, send)
        return Answer(messages)


class Answer:
    def __init__(self, messages: list[Message]) -> None:
        self.status: int = messages[0]["status"]
        self.headers = {key.decode(): value.decode() for key, value in messages[0].get("headers", [])}
        self.content = b"".join(message.get("body", b"") for message in messages[1:])
        self.parts = len(messages) - 1

    @property
    def body(self) -> Any:
        return json.loads(self.content)

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"

    @property
    def problem(self) -> tuple[int, str]:
        assert self.headers["content-type"] == "application/problem+json"
        assert self.body["status"] == self.status
        return self.status, self.body["code"]


@dataclass
class Bank:
    """The application: it counts what it did."""

    paid: list[Any] = field(default_factory=list[Any])
    status: int = 201
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    after: list[str] = field(default_factory=list[str])

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.api_route("/pay", methods=["POST", "PUT", "PATCH"])
        async def pay(request: Request) -> Response:
            self.paid.append(await request.body())
            headers = {"Location": f"/payments/{len(self.paid)}", "Set-Cookie": "secret=1", "X-Own": "1"}
            later = BackgroundTask(self.after.append, "later")
            fence = getattr(request.state, "fence", None)
            content = {"number": len(self.paid), "fence": fence}
            return JSONResponse(content, self.status, headers, background=later)

        @app.post("/slow")
        async def slow() -> dict[str, int]:
            self.paid.append("slow")
            self.begun.set()
            await self.go_on.wait()
            return {"number": len(self.paid)}

        @app.post("/fails")
        async def fails() -> None:
            self.paid.append("fails")
            raise RuntimeError("no such account")

        @app.post("/stream")
        async def stream(parts: int, size: int) -> StreamingResponse:
            async def made() -> AsyncIterator[bytes]:
                for _ in range(parts):
                    yield b"x" * size

            self.paid.append("stream")
            return StreamingResponse(made())

        @app.post("/empty")
        async def empty() -> Response:
            self.paid.append("empty")
            return Response(status_code=204)

        return app


@pytest.fixture
async def client(server: Server) -> AsyncIterator[pawlock.AsyncClient]:
    async with pawlock.connect_async(server.url) as client:
        yield client


def who(scope: Scope) -> str:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    return headers.get(b"authorization", b"").decode()


def guarded(
    bank: Bank,
    client: pawlock.AsyncClient,
    caller: Callable[[Any], str | None] = who,
    **options: Any,
) -> Client:
    app = bank.app()
    app.add_middleware(Idempotency, client=client, caller=caller, **options)
    return Client(app)


async def test_a_repeated_request_gets_the_same_response(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    user = guarded(bank, client)
    first = await user.ask(body=b'{"amount": 5}')
    assert (first.status, first.body["number"], first.replayed) == (201, 1, False)
    assert first.body["fence"] > 0
    assert first.headers["set-cookie"] == "secret=1"
    second = await user.ask(body=b'{"amount": 5}', key='"k"')
    assert (second.status, second.content, second.replayed) == (201, first.content, True)
    assert second.headers["location"] == "/payments/1"
    assert second.headers["content-type"] == "application/json"
    assert int(second.headers["content-length"]) == len(first.content)
    assert not {"set-cookie", "x-own"} & set(second.headers)
    assert bank.paid == [b'{"amount": 5}']
    assert bank.after == ["later"]
    assert (await user.ask(body=b'{"amount": 5}', key="another")).body["number"] == 2
    assert (await user.ask(key=None)).body == {"number": 3, "fence": None}


async def test_the_same_key_for_another_request_is_refused(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    user = guarded(bank, client)
    await user.ask(body=b"1")
    for other in (
        user.ask(body=b"2"),
        user.ask("/pay?x=1", body=b"1"),
        user.ask("/empty", body=b"1"),
        user.ask(body=b"1", method="PATCH"),
    ):
        assert (await other).problem == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(bank.paid) == 1


async def test_callers_do_not_see_the_responses_of_each_other(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    user = guarded(bank, client)
    assert (await user.ask(Authorization="ann")).body["number"] == 1
    assert (await user.ask(Authorization="bob")).body["number"] == 2
    assert (await user.ask(Authorization="ann")).body["number"] == 1
    # Not by putting a name together, either.
    assert (await user.ask(Authorization="an", key="nk")).body["number"] == 3
    anybody = guarded(bank, client, lambda _: None)
    assert [(await anybody.ask()).body["number"] for _ in range(2)] == [4, 5]


async def test_only_unsafe_methods_and_keys_that_make_sense(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    user = guarded(bank, client)
    assert [(await user.ask(method="PUT")).body["number"] for _ in range(2)] == [1, 2]
    for key in ("", '""', "x" * 256):
        assert (await user.ask(key=key)).problem == (400, "IDEMPOTENCY_KEY_MALFORMED")
    strict = guarded(bank, client, missing="refuse", methods=["PUT"])
    assert (await strict.ask(key=None, method="PUT")).problem == (400, "IDEMPOTENCY_KEY_MISSING")
    assert (await strict.ask(key=None)).status == 201
    small = guarded(bank, client, max_body=4)
    assert (await small.ask(key="b", body=b"12345")).problem == (413, "BODY_TOO_LARGE")
    assert (await small.ask(key="b", body=b"1234")).status == 201


async def test_while_it_is_handled_a_repeated_one_is_refused_or_waits(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    user = guarded(bank, client)
    patient = Client(Idempotency(user.app, client=client, caller=who, wait=60))
    hasty = Client(Idempotency(user.app, client=client, caller=who, wait=0.05))
    first = asyncio.ensure_future(user.ask("/slow"))
    await bank.begun.wait()
    refused = await user.ask("/slow")
    assert refused.problem == (409, "IDEMPOTENCY_KEY_IN_USE")
    assert refused.headers["retry-after"] == "1"
    assert (await hasty.ask("/slow")).problem == (409, "IDEMPOTENCY_KEY_IN_USE")
    waits = asyncio.ensure_future(patient.ask("/slow"))
    await asyncio.sleep(0.1)
    bank.go_on.set()
    assert (await first).body == {"number": 1}
    assert ((await waits).body, (await waits).replayed) == ({"number": 1}, True)
    assert bank.paid == ["slow"]


@pytest.mark.parametrize("status", [500, 503, 429, 401])
async def test_what_may_succeed_later_is_not_stored(client: pawlock.AsyncClient, status: int) -> None:
    bank = Bank(status=status)
    user = guarded(bank, client)
    assert [(await user.ask()).status for _ in range(2)] == [status] * 2
    bank.status = 201
    assert ((await user.ask()).status, len(bank.paid)) == (201, 3)
    keeps = guarded(Bank(status=status), client, store=lambda _: True)
    assert [(await keeps.ask(key="kept")).replayed for _ in range(2)] == [False, True]


async def test_an_exception_frees_the_key(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    user = guarded(bank, client)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such account"):
            await user.ask("/fails")
    assert bank.paid == ["fails"] * 2


async def test_an_application_that_does_not_end_its_response_frees_the_key(
    client: pawlock.AsyncClient,
) -> None:
    async def broken(scope: Scope, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    user = Client(Idempotency(broken, client=client, caller=who))
    for _ in range(2):
        with pytest.raises(IndexError):  # there was no response
            await user.ask()


async def test_an_application_that_sends_no_headers(client: pawlock.AsyncClient) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 201})
        await send({"type": "http.response.body"})

    asking = Client(Idempotency(app, client=client, caller=who))
    assert ((await asking.ask()).status, (await asking.ask()).status) == (201, 201)
    assert (await asking.ask()).replayed


async def test_a_stream_is_stored_if_it_is_short(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    user = guarded(bank, client)
    for replayed in (False, True):
        answer = await user.ask("/stream?parts=3&size=10")
        assert (answer.content, answer.replayed) == (b"x" * 30, replayed)


@pytest.mark.parametrize(
    "path", ["/stream?parts=3&size=40000", "/stream?parts=1&size=70000", "/stream?parts=1&size=65500"]
)
async def test_a_long_response_is_sent_and_not_kept(client: pawlock.AsyncClient, path: str) -> None:
    bank = Bank()
    user = guarded(bank, client)
    answer = await user.ask(path)
    parts, size = (int(one.partition("=")[2]) for one in path.partition("?")[2].split("&"))
    assert (answer.status, len(answer.content)) == (200, parts * size)
    again = await user.ask(path)
    assert again.problem == (409, "RESPONSE_NOT_KEPT")
    assert "retry-after" not in again.headers
    assert bank.paid == ["stream"]
    assert (await user.ask(body=b"2")).problem == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_a_file_is_sent_as_what_can_be_recorded(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    app = bank.app()
    seen: list[set[str]] = []

    @app.post("/file")
    async def file(request: Request) -> FileResponse:
        seen.append(set(request.scope["extensions"]))
        return FileResponse(__file__)

    app.add_middleware(Idempotency, client=client, caller=who)
    user = Client(app)
    first, second = await user.ask("/file"), await user.ask("/file")
    assert first.content == second.content == OWN
    assert second.replayed
    assert seen == [{"other"}]


async def test_no_body(client: pawlock.AsyncClient) -> None:
    user = guarded(Bank(), client)
    for replayed in (False, True):
        answer = await user.ask("/empty", body=b"")
        assert (answer.status, answer.content, answer.replayed) == (204, b"", replayed)
        assert "content-length" not in answer.headers


async def test_a_client_that_goes_away_finds_its_response_later(client: pawlock.AsyncClient) -> None:
    """A StreamingResponse would stop at the disconnect."""
    bank = Bank()
    user = guarded(bank, client)
    user.gone.set()
    assert (await user.ask("/stream?parts=3&size=10")).status == 200
    assert (await user.ask("/stream?parts=3&size=10")).replayed
    assert bank.paid == ["stream"]


async def test_a_client_that_goes_away_before_its_body_came_begins_nothing(
    client: pawlock.AsyncClient,
) -> None:
    bank = Bank()
    user = guarded(bank, client)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": "/pay", "headers": [(b"idempotency-key", b"k")]}
    await user.app(scope, receive, send)
    assert bank.paid == []
    assert (await user.ask()).status == 201


async def test_a_lost_lease_is_no_success(client: pawlock.AsyncClient, server: Server) -> None:
    bank = Bank()
    user = guarded(bank, client, ttl=1.5)
    asked = asyncio.ensure_future(user.ask("/slow"))
    await bank.begun.wait()
    keys = server.command("KEYS", "pawlock:%once:*")
    assert isinstance(keys, list)
    (key,) = keys
    assert isinstance(key, bytes)
    server.command("DEL", key)
    answer = await asked
    assert answer.problem == (500, "LEASE_LOST")
    assert "retry-after" not in answer.headers
    bank.go_on.set()
    assert (await user.ask("/slow")).body == {"number": 2}


async def test_a_lease_that_was_lost_unnoticed_records_nothing(
    client: pawlock.AsyncClient, server: Server
) -> None:
    bank = Bank()
    user = guarded(bank, client)
    asked = asyncio.ensure_future(user.ask("/slow"))
    await bank.begun.wait()
    server.command("FLUSHALL")
    bank.go_on.set()
    assert (await asked).problem == (500, "LEASE_LOST")
    assert (await user.ask("/slow")).body == {"number": 2}


async def test_a_lease_that_is_lost_in_a_long_stream_cuts_it_off(
    client: pawlock.AsyncClient, server: Server
) -> None:
    """Its status was sent: only a response that has no end shows that something went wrong."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 70_000, "more_body": True})
        server.command("FLUSHALL")
        await send({"type": "http.response.body", "body": b"end"})

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}
    with pytest.raises(pawlock.LeaseLost):
        await Idempotency(app, client=client, caller=who)(scope, receive, send)
    assert [one.get("more_body") for one in sent] == [None, True]


async def test_without_its_server_nothing_is_handled(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    bank = Bank()
    async with pawlock.connect_async(own_server.url, unavailable_after=0.1) as client:
        user = guarded(bank, client)
        assert (await user.ask()).status == 201
        own_server.kill()
        answer = await user.ask()
        assert answer.problem == (503, "IDEMPOTENCY_UNAVAILABLE")
        assert answer.headers["retry-after"] == "1"
        assert (await user.ask(key=None)).status == 201
        await client.close(timeout=0.1)
    assert (await user.ask()).problem == (503, "IDEMPOTENCY_UNAVAILABLE"), "the client was closed"
    assert "idempotency keys" in caplog.text
    assert len(bank.paid) == 2


async def test_a_response_that_cannot_be_recorded_is_sent(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    bank = Bank()
    async with pawlock.connect_async(own_server.url, unavailable_after=0.1) as client:
        user = guarded(bank, client, ttl=20)
        asked = asyncio.ensure_future(user.ask("/slow"))
        await bank.begun.wait()
        own_server.kill()
        bank.go_on.set()
        assert (await asked).body == {"number": 1}
        assert "may not have been recorded" in caplog.text
        await client.close(timeout=0.1)


async def test_what_a_program_recorded_is_no_response(client: pawlock.AsyncClient) -> None:
    bank = Bank()
    user = Client(Idempotency(bank.app(), client=client, caller=who))
    middleware = user.app
    assert isinstance(middleware, Idempotency)
    for value in (None, b"{", b"[1]\n", b'{"pawlock_http": 2}\n', {"a": 1}):
        once = client.once(middleware._name_of("", b"k"))
        state = await once.begin()
        assert isinstance(state, pawlock.AsyncStarted)
        await state.finish(value)
        assert (await user.ask()).problem == (409, "RESPONSE_NOT_KEPT")
        await once.forget()
    assert "Idempotency" in repr(middleware)


async def test_other_scopes_pass(client: pawlock.AsyncClient) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    middleware = Idempotency(app, client=client, caller=who)
    for kind in ("lifespan", "websocket"):
        await middleware({"type": kind, "headers": []}, None, None)  # type: ignore[arg-type]
    assert seen == ["lifespan", "websocket"]


async def test_what_can_never_work_is_refused_at_once(client: pawlock.AsyncClient) -> None:
    app = Bank().app()
    wrong: list[dict[str, Any]] = [
        {"caller": "user"}, {"missing": "ignore"}, {"keep": 0}, {"wait": -1}, {"max_body": -1}, {"max_body": True},
        {"retry_after": float("nan")}, {"ttl": 0}, {"prefix": "x" * 200}, {"client": object()},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(pawlock.ConfigurationError):
            Idempotency(app, **{"client": client, "caller": who, **given})
    async with pawlock.connect_async(
        ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]
    ) as several:
        with pytest.raises(pawlock.NotSupported):
            Idempotency(app, client=several, caller=who)
    assert [is_final(one) for one in (200, 302, 404, 422, 409, 500)] == [True] * 4 + [False] * 2
