"""``pawlock.integrations.asgi`` in this process: lifespans that lead in turn, requests that exclude each other."""

from __future__ import annotations

import asyncio
import json
import time
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import date, datetime
from datetime import time as clock
from decimal import Decimal
from itertools import combinations, product
from typing import Annotated, Any, cast
from uuid import UUID

import pytest
from fastapi import APIRouter, Depends, FastAPI, Path, Request, WebSocket
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, StringConstraints
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message

import pawlock
from pawlock.integrations import asgi
from tests.support.refusal import case
from tests.support.servers import Server


class Answer:
    def __init__(self, messages: list[Message]) -> None:
        self.status: int = messages[0]["status"]
        self.headers = {key.decode(): value.decode() for key, value in messages[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in messages[1:])
        self.text = content.decode()

    @property
    def body(self) -> Any:
        return json.loads(self.text)


async def ask(app: ASGIApp, path: str, method: str = "POST", kind: str = "http") -> Answer:
    """One request, as a server would hand it over."""
    messages: list[Message] = []
    gone = asyncio.Event()

    async def receive() -> Message:
        if gone.is_set():
            return {"type": "http.disconnect"}
        gone.set()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(errors="replace"),
        "query_string": query.encode(),
        "headers": [],
        "server": ("test", 80),
        "client": ("test", 1),
    }
    await app(scope, receive, send)
    return Answer(messages)


# ------------------------------------------------------------------ leader


async def test_one_of_two_applications_runs_it_and_the_other_follows_at_once_when_that_one_stops(
    server: Server,
) -> None:
    ran: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    ended: list[str] = []

    async with pawlock.connect_async(server.url) as one, pawlock.connect_async(server.url) as two:

        def worker(client: pawlock.AsyncClient, word: str) -> asgi.Lifespan:
            async def work(lease: pawlock.AsyncLease) -> None:
                ran.put_nowait((word, lease.fence))
                try:
                    await asyncio.sleep(3600)
                finally:
                    ended.append(word)

            return asgi.leader(client, "scheduler", work, ttl=30)

        async with AsyncExitStack() as second:
            async with worker(one, "one")(FastAPI()):
                assert (await ran.get())[0] == "one"
                fence = (await one.election("scheduler").leader()).fence  # type: ignore[union-attr]
                await second.enter_async_context(worker(two, "two")(FastAPI()))
                assert ran.empty()
            assert ended == ["one"], "the function has ended when the application has stopped"
            # Far below the TTL: it resigned.
            word, later = await asyncio.wait_for(ran.get(), 10)
            assert word == "two"
            assert later > fence
        assert ended == ["one", "two"]
        assert await one.election("scheduler").leader() is None
    left = server.command("KEYS", "*")
    assert isinstance(left, list)
    assert [
        key for key in left if isinstance(key, bytes) and b":fence" not in key and b":dead:" not in key
    ] == []


async def test_it_composes_with_the_lifespan_of_the_application(server: Server) -> None:
    order: list[str] = []

    @asynccontextmanager
    async def own(_app: object) -> AsyncIterator[dict[str, int]]:
        order.append("set up")
        yield {"pool": 7}
        order.append("torn down")

    async with pawlock.connect_async(server.url) as client:
        led = asyncio.Event()

        async def work(_lease: pawlock.AsyncLease) -> None:
            order.append("runs")
            led.set()
            try:
                await asyncio.sleep(3600)
            finally:
                order.append("ended")

        async def tidy(_lease: pawlock.AsyncLease) -> None:
            tidied.set()

        tidied = asyncio.Event()
        inner = asgi.leader(client, "tidy", tidy, lifespan=own)
        async with asgi.leader(client, "work", work, lifespan=inner)(None) as state:
            assert state == {"pool": 7}
            await led.wait()
            await tidied.wait()
    assert order == ["set up", "runs", "ended", "torn down"]


async def test_an_application_stops_while_it_waits_to_lead_and_while_the_server_is_away(
    own_server: Server,
) -> None:
    async def work(_lease: pawlock.AsyncLease) -> None:
        await asyncio.sleep(3600)

    async with (
        pawlock.connect_async(own_server.url) as holder,
        pawlock.connect_async(own_server.url) as client,
    ):
        async with holder.election("scheduler").campaign(), asgi.leader(client, "scheduler", work)(None):
            while not own_server.command("EXISTS", "{pawlock:%election:scheduler}:1:queue"):  # noqa: ASYNC110 - asked of the server
                await asyncio.sleep(0.01)
        own_server.kill()
        async with asgi.leader(client, "scheduler", work)(None):
            await asyncio.sleep(0.1)
        own_server.start()


async def test_what_can_never_work_ends_the_start(server: Server) -> None:
    async def work(_lease: pawlock.AsyncLease) -> None: ...

    async with pawlock.connect_async(server.url) as client:
        with pytest.raises(pawlock.ConfigurationError, match="unknown option"):
            asgi.leader(client, "scheduler", work, tll=3)
        with pytest.raises(pawlock.ConfigurationError, match="backoff"):
            async with asgi.leader(client, "scheduler", work, backoff=(0, 0))(None):
                pass
        with (
            pawlock.connect(server.url) as threads,
            pytest.raises(pawlock.ConfigurationError, match="connect_async"),
        ):
            asgi.leader(threads, "scheduler", work)  # type: ignore[arg-type]


async def test_the_error_of_an_application_that_fails_is_not_hidden(server: Server) -> None:
    async def work(_lease: pawlock.AsyncLease) -> None:
        await asyncio.sleep(3600)

    async with pawlock.connect_async(server.url) as client:
        with pytest.raises(ZeroDivisionError):
            async with asgi.leader(client, "scheduler", work)(None):
                raise ZeroDivisionError
        assert await client.election("scheduler").leader() is None


# ------------------------------------------------------------------ lock


def shop(client: pawlock.AsyncClient, **options: object) -> tuple[FastAPI, asyncio.Event, asyncio.Event]:
    """An application, an event that its handler sets, and one that it waits for."""
    app = FastAPI()
    inside, go_on = asyncio.Event(), asyncio.Event()
    guard = asgi.lock(client, "order:{id}", **cast("dict[str, Any]", options))

    @app.post("/orders/{id}", dependencies=[Depends(guard)])
    async def order(request: Request, id: int) -> dict[str, int]:  # noqa: A002
        inside.set()
        await go_on.wait()
        return {"fence": request.state.fence, "id": id}

    @app.post("/threads/{id}")
    def in_a_thread(request: Request, lease: pawlock.AsyncLease = Depends(guard)) -> dict[str, bool]:  # noqa: B008, FAST002
        return {"same": lease is request.state.lease, "held": lease.remaining() > 0}

    return app, inside, go_on


async def test_requests_of_one_order_exclude_each_other_and_others_do_not(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client, pawlock.connect_async(server.url) as other:
        app, inside, go_on = shop(client)
        twin, _, _ = shop(other)
        first = asyncio.create_task(ask(app, "/orders/7"))
        await inside.wait()
        for refusing in (app, twin):
            refused = await ask(refusing, "/orders/7")
            assert (refused.status, refused.headers["retry-after"]) == (423, "1")
            assert "LOCK_TIMEOUT" in refused.body["detail"]
        go_on.set()
        fence = (await first).body["fence"]
        assert (await ask(app, "/orders/8")).status == 200
        assert (await ask(app, "/orders/7")).body["fence"] > fence
        assert (await ask(app, "/threads/7")).body == {"same": True, "held": True}
        assert not await client.lock("order:7").locked()


async def test_a_request_waits_for_its_timeout_and_the_status_can_be_chosen(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client, pawlock.connect_async(server.url) as other:
        app, inside, go_on = shop(client, timeout=0.3, status=409, retry_after=2.5)
        patient, _, at_once = shop(other, timeout=30)
        at_once.set()
        first = asyncio.create_task(ask(app, "/orders/7"))
        await inside.wait()
        refused = await ask(app, "/orders/7")
        assert (refused.status, refused.headers["retry-after"]) == (409, "3")
        second = asyncio.create_task(ask(patient, "/orders/7"))
        while not (await client.inspect("order:7")).queue_length:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        go_on.set()
        assert ((await first).status, (await second).status) == (200, 200)


async def test_a_lease_that_is_lost_ends_the_handler_with_500(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        app, inside, _ = shop(client, ttl=1.5)
        asked = asyncio.create_task(ask(app, "/orders/7"))
        await inside.wait()
        await client.force_release("order:7", reason="a test")
        lost = await asked
        assert lost.status == 500
        assert "LEASE_TAKEN" in lost.body["detail"]
        assert "retry-after" not in lost.headers


async def test_a_server_that_is_away_is_503(own_server: Server) -> None:
    async with pawlock.connect_async(own_server.url, unavailable_after=0.2) as client:
        app, _, go_on = shop(client)
        go_on.set()
        assert (await ask(app, "/orders/7")).status == 200
        own_server.kill()
        refused = await ask(app, "/orders/7")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "CONNECTION" in refused.body["detail"]
        own_server.start()
    assert (await ask(app, "/orders/7")).status == 503, "the client is closed: the application is stopping"


async def test_the_error_of_a_handler_is_its_own(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        app = FastAPI()

        @app.post("/orders/{id}", dependencies=[Depends(asgi.lock(client, "order:{id}"))])
        async def order(id: int) -> None:  # noqa: A002
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await ask(app, "/orders/7")
        assert not await client.lock("order:7").locked()


async def test_a_block_in_an_endpoint_of_starlette(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        guard = asgi.lock(client, lambda request: f"cart:{request.query_params['user']}", ttl=5)

        async def endpoint(request: StarletteRequest) -> JSONResponse:
            async with guard.holding(request) as lease:
                again = await ask(app, "/carts?user=ann") if "again" in request.query_params else None
                return JSONResponse({"name": lease.name, "again": again and [again.status, again.text]})

        app = Starlette(routes=[Route("/carts", endpoint, methods=["POST"])])
        assert (await ask(app, "/carts?user={ann}")).body["name"] == "cart:{ann}"
        assert (await ask(app, "/carts?user=ann&again=1")).body["again"][0] == 423


def _order_of(id: UUID) -> UUID:  # noqa: A002
    return id


class _Both(BaseModel):
    shop: int
    id: int


UUIDS = [
    "6f1c1f06-9d6e-4a3f-8f0b-0d5f5a1c2b3d",
    "6F1C1F069D6E4A3F8F0B0D5F5A1C2B3D",
    "urn:uuid:6f1c1f06-9d6e-4a3f-8f0b-0d5f5a1c2b3d",
]
SPELLED: list[tuple[Any, list[str]]] = [
    (int, ["7", "07", "+7", " 7", "7.0", "0_7"]),
    (UUID, UUIDS),
    (float, ["0", "-0", "0.0", "0e9", "-0.0"]),
    (Decimal, ["7", "7.0", "7.00", "07", "+7"]),
    (Decimal, ["0", "-0", "0e5", "0.00"]),
    (Decimal, ["1E+900000000", "10E899999999"]),
    (
        datetime,
        ["2026-01-31T10:00:00Z", "2026-01-31 11:00+01:00", "2026-01-31T00:00:00.0-10:00", "1769853600"],
    ),
    (datetime, ["0001-01-01T00:00+05:00", "0001-01-01T01:00+06:00"]),
    (clock, ["10:00Z", "11:00:00.0+01:00", "00:00-10:00"]),
    (date, ["2026-01-31", "1769817600", "2026-01-31T00:00"]),
    (bool, ["1", "true", "YES", "on", "T"]),
    (Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)], ["ann", "ANN", " Ann "]),
    (
        Annotated[str, AfterValidator(lambda text: unicodedata.normalize("NFC", text))],
        ["caf\u00e9", "cafe\u0301"],
    ),
    (Annotated[UUID, Depends(_order_of)], UUIDS),
]


def _taking(kind: Any) -> Callable[[Any], Any]:
    """Say what a handler takes as its ``id``."""

    def say(handler: Any) -> Any:
        handler.__annotations__["id"] = kind
        return handler

    return say


def _name_of(request: Request | WebSocket) -> str:
    return str(request.state.lease.name)


def _of_handlers(guard: asgi.RequestLock, kind: Any) -> FastAPI:
    """Handlers of either sort, one that is below a router with a parameter of its own, and one with a block."""
    app, inner, guarded = FastAPI(), APIRouter(prefix="/shops/{shop}"), [Depends(guard)]

    @app.post("/async/{id}", dependencies=guarded)
    @_taking(kind)
    async def one(id: Any, request: Request) -> str:  # noqa: A002
        return _name_of(request)

    @app.post("/def/{id}", dependencies=guarded)
    @_taking(kind)
    def two(id: Any, request: Request) -> str:  # noqa: A002
        return _name_of(request)

    @inner.post("/{id}", dependencies=guarded)
    @_taking(kind)
    def three(shop: int, id: Any, request: Request) -> str:  # noqa: A002
        return _name_of(request)

    @app.post("/block/{id}")
    @_taking(kind)
    async def four(id: Any, request: Request) -> str:  # noqa: A002
        async with guard.holding(request):
            return _name_of(request)

    app.include_router(inner)
    return app


@pytest.mark.parametrize("by", ["fields", "function"])
async def test_every_spelling_of_what_a_handler_gets_is_one_name(server: Server, by: str) -> None:
    async with pawlock.connect_async(server.url) as client:
        guard = asgi.lock(
            client, "order:{id}" if by == "fields" else lambda at: f"order:{at.path_params['id']}"
        )
        for kind, spellings in SPELLED:
            app = _of_handlers(guard, kind)
            for path in ("async", "def", "block", "shops/07"):
                answers = [await ask(app, f"/{path}/{one}") for one in spellings]
                with case(kind, path, [one.text for one in answers]):
                    assert {one.status for one in answers} == {200}
                    assert len({one.body for one in answers}) == 1


async def test_a_number_is_written_as_python_does(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        for kind, text in product((int, float, Decimal), ("100", "7", "0")):
            app = _of_handlers(asgi.lock(client, "{id}"), kind)
            assert (await ask(app, f"/def/{text}")).body == str(kind(text))
        small = _of_handlers(asgi.lock(client, "{id}"), Decimal)
        assert (await ask(small, "/def/0.00000010")).body == "1E-7"


async def test_a_spelling_does_not_pass_a_holder(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        app, inside, go_on = shop(client)
        first = asyncio.create_task(ask(app, "/orders/7"))
        await inside.wait()
        for other in ("7", "07", "+7", " 7", "7.0"):
            assert (await ask(app, f"/orders/{other}")).status == 423, other
        go_on.set()
        assert (await first).body["id"] == 7
        assert (await ask(app, "/orders/07")).body["id"] == 7
        assert (await ask(app, "/orders/seven")).status == 422, (
            "FastAPI's own answer: the handler is not called"
        )


async def test_what_arguments_are_called_and_where_they_are_taken(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        app, guarded = FastAPI(), [Depends(asgi.lock(client, "{shop}/{id}"))]

        @app.post("/alias/{shop}/{id}", dependencies=guarded)
        def alias(where: Annotated[int, Path(alias="shop")], request: Request, id: int) -> str:  # noqa: A002
            assert (where, id) == (8, 7)
            return _name_of(request)

        @app.post("/model/{shop}/{id}", dependencies=guarded)  # noqa: FAST003
        def model(both: Annotated[_Both, Path()], request: Request) -> str:
            assert (both.shop, both.id) == (8, 7)
            return _name_of(request)

        @app.post("/text/{shop}/{id}", dependencies=guarded)  # noqa: FAST003
        def text(request: Request, id: int) -> str:  # noqa: A002
            assert (request.path_params["shop"], id) == ("08", 7)
            return _name_of(request)

        @app.websocket("/socket/{shop}/{id}", dependencies=guarded)
        async def socket(shop: int, id: int, websocket: WebSocket) -> None:  # noqa: A002
            raise LookupError(_name_of(websocket), shop, id)

        for path, name in (("alias", "8/7"), ("model", "8/7"), ("text", "08/7")):
            assert (await ask(app, f"/{path}/08/07")).body == name, path
        with pytest.raises(LookupError, match="'8/7', 8, 7"):
            await ask(app, "/socket/08/07", kind="websocket")


async def test_converters_of_starlette(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        guard = asgi.lock(client, "order:{id}")

        async def endpoint(request: StarletteRequest) -> JSONResponse:
            async with guard.holding(request) as lease:
                return JSONResponse([lease.name, str(request.path_params["id"])])

        for kind, spellings in (("int", ["7", "07"]), ("float", ["7", "7.0"]), ("uuid", UUIDS[:2])):
            app = Starlette(routes=[Route(f"/x/{{id:{kind}}}", endpoint, methods=["POST"])])
            answers = [await ask(app, f"/x/{one}") for one in spellings]
            # An older Starlette knows one spelling of a UUID only.
            for name, got in [one.body for one in answers if one.status == 200]:
                assert name == f"order:{got}" == f"order:{answers[0].body[1]}", kind

        class Nameless:
            pass

        class Odd(Convertor[Nameless]):
            regex = ".*"

            def convert(self, value: str) -> Nameless:
                assert value
                return Nameless()

        register_url_convertor("odd", Odd())
        app = Starlette(routes=[Route("/x/{id:odd}", endpoint, methods=["POST"])])
        with pytest.raises(pawlock.ConfigurationError, match="Nameless has no text"):
            await ask(app, "/x/7")


async def test_a_value_that_can_be_no_name_is_refused(server: Server) -> None:
    async with (
        pawlock.connect_async(server.url) as client,
        pawlock.connect_async(server.url, namespace="") as bare,
    ):
        for of, path, status in (
            (client, "x" * 194, 200),
            (client, "x" * 195, 422),
            (client, "x" * 9000, 422),
            (client, "\u00e9" * 98, 422),
            (client, "\ud800", 422),
            (client, "{draft} {{", 200),
            (bare, "{draft}", 200),
            (bare, "{", 422),
            (bare, "\n", 422),
        ):
            app, endpoint = FastAPI(), Depends(asgi.lock(of, "order:{name}"))

            @app.post("/{name}", dependencies=[endpoint])
            async def handle(name: str) -> int:
                return len(name)

            got = await ask(app, f"/{path}")
            assert (got.status, "retry-after" in got.headers) == (status, False), path[:20]
            assert status == 200 or got.body["detail"].startswith("name ")
            assert len(got.text) < 400
        with pytest.raises(pawlock.ConfigurationError, match="at most 200"):
            asgi.lock(client, "x" * 201)
        with pytest.raises(pawlock.ConfigurationError, match="not an argument name"):
            asgi.lock(client, "x:{0}")


_LATER = st.sampled_from(
    ["", " ", "+", "-", "0", "00", "_", ".", ".0", ".00", "e0", "E+1", "Z", "+00:00", "-0"]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from([int, float, Decimal, UUID, bool, str]),
    paths=st.lists(
        st.tuples(_LATER, st.sampled_from(["7", "0", "1", UUIDS[0]]), _LATER).map("".join),
        min_size=2,
        max_size=4,
    ),
)
def test_equal_values_and_no_others_are_one_name(server: Server, kind: Any, paths: list[str]) -> None:
    async def names() -> list[tuple[Any, str]]:
        found: list[tuple[Any, str]] = []
        async with pawlock.connect_async(server.url) as client:
            app, guarded = FastAPI(), [Depends(asgi.lock(client, "{id}"))]

            @app.post("/{id}", dependencies=guarded)
            @_taking(kind)
            async def handle(id: Any, request: Request) -> None:  # noqa: A002
                found.append((id, _name_of(request)))

            for path in paths:
                await ask(app, f"/{path}")
        return found

    for (value, name), (other, as_well) in combinations(asyncio.run(names()), 2):
        assert (value == other) == (name == as_well), (value, other)


async def test_sync_dependencies_of_fastapi_wait_for_each_other(server: Server) -> None:
    """FastAPI runs the two halves of one in any threads of its pool, and other requests in these in between."""
    inside, most = Counter[str](), Counter[str]()

    with pawlock.connect(server.url) as client:
        shared: dict[str, Any] = {
            "order": client.lock("order", timeout=30),
            "gate": client.semaphore("gate", permits=2, timeout=30),
        }
        app = FastAPI()

        def hold(kind: str) -> Iterator[Any]:
            with shared[kind] as lease:
                yield lease

        @app.post("/{kind}")
        def handle(kind: str, lease: Any = Depends(hold)) -> None:  # noqa: B008, FAST002
            inside[kind] += 1
            most[kind] = max(most[kind], inside[kind])
            time.sleep(0.005)
            inside[kind] -= 1
            lease.check()

        async def ask_often(path: str) -> None:
            for _ in range(20):
                assert (await ask(app, path)).status == 200

        await asyncio.gather(*(ask_often(path) for path in ("/order", "/gate") * 3))
        assert most["order"] == 1
        assert most["gate"] <= 2


def in_threads(client: pawlock.Client, inside: Counter[str], lasts: float = 0.05, **options: Any) -> FastAPI:
    """An application with a sync client: handlers that sleep while they are inside, by a dependency and by a block."""
    app = FastAPI()
    guard = asgi.lock(client, "order:{number}", **options)

    def work(lease: pawlock.Lease) -> dict[str, Any]:
        inside["now"] += 1
        inside["most"] = max(inside["most"], inside["now"])
        lease.lost.wait(lasts)
        inside["now"] -= 1
        lease.check()
        return {"fence": lease.fence}

    @app.post("/orders/{number}")
    def by_dependency(number: int, request: Request, lease: pawlock.Lease = Depends(guard)) -> Any:  # noqa: B008, FAST002
        assert lease is request.state.lease
        return work(lease)

    @app.post("/blocks/{number}")
    def by_block(number: int, request: Request) -> Any:
        with guard.holding(request) as lease:
            return work(lease)

    @app.post("/coroutines/{number}")
    async def by_coroutine(number: int, lease: pawlock.Lease = Depends(guard)) -> Any:  # noqa: B008, FAST002
        await asyncio.sleep(0.05)
        return {"fence": lease.fence}

    return app


async def test_a_sync_client_excludes_in_the_threads_of_the_pool(server: Server) -> None:
    inside = Counter[str]()
    with pawlock.connect(server.url) as client:
        app = in_threads(client, inside, timeout=30)
        paths = ["/orders/7", "/orders/07", "/blocks/7", "/coroutines/7"] * 5
        answers = await asyncio.gather(*(ask(app, path) for path in paths))
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body["fence"] for answer in answers}) == len(paths)
        assert inside["most"] == 1
        assert not client.lock("order:7").locked()


async def test_what_keeps_a_request_from_the_lock_of_a_sync_client_is_answered(own_server: Server) -> None:
    with (
        pawlock.connect(own_server.url, unavailable_after=0.2) as client,
        pawlock.connect(own_server.url) as other,
    ):
        app = in_threads(client, Counter(), ttl=1.5)
        held = await asyncio.to_thread(other.lock("order:7").acquire)
        for path in ("/orders/7", "/blocks/7"):
            refused = await ask(app, path)
            assert (refused.status, refused.headers["retry-after"]) == (423, "1")
        await asyncio.to_thread(held.release)
        long = in_threads(client, Counter(), lasts=20, ttl=1.5)
        for path in ("/orders/7", "/blocks/7"):
            asked = asyncio.create_task(ask(long, path))
            await asyncio.to_thread(take_from_holder, other)
            lost = await asked
            assert lost.status == 500, lost.text
            assert "LEASE_TAKEN" in lost.body["detail"]
            assert "retry-after" not in lost.headers
        own_server.kill()
        assert (await ask(app, "/orders/8")).status == 503


def take_from_holder(client: pawlock.Client) -> None:
    while not client.lock("order:7").locked():
        time.sleep(0.001)
    client.force_release("order:7", reason="a test")


async def test_a_field_that_the_path_does_not_have_is_named(server: Server) -> None:
    async with pawlock.connect_async(server.url) as client:
        app = FastAPI()

        @app.post("/orders/{id}", dependencies=[Depends(asgi.lock(client, "order:{order_id}"))])
        async def order(id: int) -> None: ...  # noqa: A002

        with pytest.raises(pawlock.ConfigurationError, match=r"order_id.*parameters of the path: id"):
            await ask(app, "/orders/7")
        for options in ({"status": 200}, {"retry_after": float("inf")}, {"timeout": -1}, {"tll": 3}):
            with pytest.raises(pawlock.ConfigurationError):
                asgi.lock(client, "order:{id}", **cast("dict[str, Any]", options))
