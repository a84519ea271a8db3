"""The ASGI application: its routes, what is done for every request, its startup and shutdown."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import pawlock
from pawlock.errors import PawlockError
from pawlock.service import coordination, inspection, page, routes, schemas, several, watch
from pawlock.service.health import add_health
from pawlock.service.problems import Problem, answer_problem, response_of
from pawlock.service.requests import State

__all__ = ["create_app"]

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
    codes = {404: "NO_SUCH_ROUTE", 405: "METHOD_NOT_ALLOWED"}
    details = {
        404: "no such path: /openapi.json lists all paths",
        405: f"{request.method} is not allowed here: /openapi.json lists the methods of each path",
    }
    code, text = codes.get(error.status_code, "HTTP"), details.get(error.status_code, str(error.detail))
    response = response_of(Problem(error.status_code, code, text))
    response.headers.update(error.headers or {})
    return response


def create_app(state: State) -> FastAPI:
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
    app.state.watches = watches
    state.at_end.append(end_watches)
    # The stream first: one of the path segments of the others could be its name.
    for part in (watch, coordination, several, inspection, routes, page):
        app.include_router(part.router)
    for kind in (Problem, PawlockError):
        app.add_exception_handler(kind, answer_problem)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_middleware(_EveryRequest)
    add_health(app, state)
    make = app.openapi
    app.openapi = lambda: schemas.describe(make())  # type: ignore[method-assign]
    return app
