"""The ASGI application: its routes, the layer in front of them, its startup and shutdown."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

import pawlock
from pawlock.errors import PawlockError
from pawlock.service import coordination, health, inspection, page, routes, schemas, several, watch
from pawlock.service.problems import Problem, answer_problem, response_of
from pawlock.service.request_log import RequestLog
from pawlock.service.requests import GONE, State

__all__ = ["ServiceApp", "create_app"]

log: logging.Logger = logging.getLogger("pawlock.service")

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
            b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
]


_STEPS: dict[str, Callable[[Request], Awaitable[Response]]] = {
    "acquire": routes.acquire,
    "release": routes.release,
    "renew": routes.renew,
}


# The stream first: one of the path segments of the others could be its name.
_ROUTERS = tuple(part.router for part in (watch, coordination, several, inspection, routes, page))


def _find_step(scope: Scope) -> Callable[[Request], Awaitable[Response]] | None:
    """The step of a lease that a request asks for, as the framework would find it; None for all other requests."""
    if scope["method"] != "POST":
        return None
    parts = scope["path"].split("/")
    if len(parts) != 7 or parts[1] != "v1" or parts[2] != "ns" or not (parts[3] and parts[4] and parts[5]):
        return None
    scope["path_params"] = {"namespace": parts[3], "kind": parts[4], "name": parts[5]}
    found = _STEPS.get(parts[6])
    if found is not None:
        scope["pawlock.operation"] = parts[6]
    return found


class ServiceApp:
    """The ASGI application in front of the framework: matches paths as they were sent, and adds the security headers.

    The routes of a lease need nothing of what the framework does before a route, which takes longer than they do: they
    are called directly. The framework knows them too, for the OpenAPI document.

    Args:
        app: The application of the framework.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app: FastAPI = app
        self._request_log: RequestLog = app.state.request_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # A path that is decoded before it is split would make "a/b" of "a%2Fb", and another name of it.
        raw = scope.get("raw_path") or scope["path"].encode()
        scope = {**scope, "path": raw.decode("latin-1")}
        began = time.monotonic()
        status = GONE

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer(scope, receive, noted)
        finally:
            self._request_log.note(scope, status, time.monotonic() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        step = _find_step(scope)
        if step is None:
            await self._pass(scope, receive, send)
            return
        scope["app"] = self.app
        request = Request(scope, receive)
        try:
            response = await step(request)
        except (Problem, PawlockError) as error:
            response = await answer_problem(request, error)
        except ClientDisconnect:
            response = Response(status_code=GONE)
        except Exception:
            log.exception("a request failed")
            response = response_of(_internal_error())
        headers = [*response.raw_headers, *_HEADERS]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def answered(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            await self.app(scope, receive, answered)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("a request failed")
            if begun:
                raise
            await response_of(_internal_error())(scope, receive, answered)


def _internal_error() -> Problem:
    return Problem(500, "INTERNAL", "internal error: see the log of the service")


def _methods_of(request: Request) -> str:
    """The methods of all routes of a path; the framework names those of the first one."""
    # RequestContext for at the routers themselves: how an application keeps those that it includes is its own affair.
    every = [route for one in (request.app.router, *_ROUTERS) for route in one.routes]
    routes = [route for route in every if isinstance(route, Route)]
    found = [route.methods or () for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for methods in found for method in methods}))


async def _answer_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    codes = {404: "NO_SUCH_ROUTE", 405: "METHOD_NOT_ALLOWED"}
    details = {
        404: "no such path: /openapi.json lists all paths",
        405: f"{request.method} is not allowed here: the Allow header lists the methods",
    }
    code, text = codes.get(error.status_code, "HTTP"), details.get(error.status_code, str(error.detail))
    response = response_of(Problem(error.status_code, code, text))
    response.headers.update(error.headers or {})
    if "allow" in response.headers:
        response.headers["allow"] = _methods_of(request)
    return response


def create_app(state: State) -> ServiceApp:
    """The service as an ASGI application.

    Args:
        state: Its namespaces and tokens.
    """
    watches: dict[str, watch.Watch] = {}

    def end_watches() -> None:
        for one in watches.values():
            one.end()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await state.spaces.close()

    app = FastAPI(
        title="pawlock", version=pawlock.__version__, lifespan=life, docs_url=None, redoc_url=None, redirect_slashes=False,
        description="Distributed locks over HTTP.",
    )  # fmt: skip
    app.state.pawlock = state
    app.state.request_log = RequestLog(
        {
            ("pawlock_http_waiting", "Requests waiting now."): lambda: state.access.used("waiters"),
            ("pawlock_http_streams", "Open event streams."): lambda: state.access.used("streams"),
            ("pawlock_http_namespaces", "Namespaces in use."): lambda: len(state.spaces),
            ("pawlock_http_draining", "1 while shutting down, else 0."): lambda: float(state.draining),
        }
    )
    app.state.watches = watches
    state.at_end.append(end_watches)
    for part in _ROUTERS:
        app.include_router(part)
    for kind in (Problem, PawlockError):
        app.add_exception_handler(kind, answer_problem)
    app.add_exception_handler(HTTPException, _answer_http)
    _add_health(app, state)
    make = app.openapi
    app.openapi = lambda: schemas.describe(make())  # type: ignore[method-assign]
    return ServiceApp(app)


def _add_health(app: FastAPI, state: State) -> None:
    alive = {"responses": schemas.success({"alive": "flag"})}
    ready = {"responses": {**schemas.success({"ready": "flag"}), **schemas.problems(502, 503)}}

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz", tags=["health"], summary="Liveness check", openapi_extra=alive)
    async def healthz() -> Response:
        """200 as long as the process responds."""
        return health.alive()

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", tags=["health"], summary="Readiness check", openapi_extra=ready)
    async def readyz() -> Response:
        """200 while it takes requests and the server behind it answers, else 503."""
        return await health.ready(state)

    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def metrics(request: Request) -> Response:
        """For Prometheus; needs a token with the role `read` of any namespace. No names are in it."""
        who = state.access.who(request.headers.get("authorization"))
        request.scope["pawlock.who"] = who.id
        state.access.spend(who)
        if not who.roles & {"read", "admin"}:
            raise Problem(403, "FORBIDDEN", f"the token {who.id!r} has no read role")
        text, kind = app.state.request_log.metrics()
        return Response(text, headers={"Content-Type": kind})
