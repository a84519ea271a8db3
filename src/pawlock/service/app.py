"""The ASGI application: its routes, what is done for every request, its startup and shutdown."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import pawlock
from pawlock.errors import PawlockError
from pawlock.service import coordination, gauges, inspection, page, routes, schemas, several, watch
from pawlock.service.health import add_health
from pawlock.service.problems import Problem, answer_problem, response_of
from pawlock.service.requests import State

__all__ = ["create_app"]

log: logging.Logger = logging.getLogger("pawlock.service")

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", _POLICY),
]


class _EveryRequest:
    """Matches paths as they were sent, adds the security headers, and answers what went wrong.

    Args:
        app: The application behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A path that is decoded before it is split would make "a/b" of "a%2Fb", and another name of it.
        raw = scope.get("raw_path") or scope["path"].encode()
        scope = {**scope, "path": raw.decode("latin-1")}
        begun = False

        async def answered(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            await self._app(scope, receive, answered)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("a request failed")
            if begun:
                raise
            problem = Problem(500, "INTERNAL", "internal error: see the log of the service")
            await response_of(problem)(scope, receive, answered)


async def _answer_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code, text = {
        404: ("NO_SUCH_ROUTE", "no such path: /openapi.json lists all paths"),
        405: ("METHOD_NOT_ALLOWED", f"not allowed here: {request.method}; /openapi.json lists what is"),
    }.get(error.status_code, ("HTTP", str(error.detail)))
    response = response_of(Problem(error.status_code, code, text))
    response.headers.update(error.headers or {})
    return response


def create_app(state: State) -> FastAPI:
    """The service as an ASGI application.

    Args:
        state: Its namespaces and tokens.
    """

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await state.spaces.close()

    app = FastAPI(
        title="pawlock", version=pawlock.__version__, lifespan=life, docs_url=None, redoc_url=None, redirect_slashes=False,
        description="Distributed locks over HTTP.",
    )  # fmt: skip
    app.state.pawlock = state
    # What is asked for most comes first; `GET /{kind}/{name}` would match what is about latches and barriers.
    first = (routes.router, routes.sessions, coordination.latches, coordination.barriers)
    for router in (*first, several.router, inspection.router, watch.router, gauges.router, page.router):
        app.include_router(router)
    for kind in (Problem, PawlockError):
        app.add_exception_handler(kind, answer_problem)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_middleware(_EveryRequest)
    add_health(app, state)
    make = app.openapi
    app.openapi = lambda: schemas.describe(make())  # type: ignore[method-assign]
    return app
