"""The live page: files of the package, nothing from other hosts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request, Response

from pawlock.core.names import check_namespace
from pawlock.service import schemas
from pawlock.service.access import ROLES
from pawlock.service.requests import State, answer, plain

__all__ = ["file", "router", "whoami"]

router: APIRouter = APIRouter()

_FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
    "/favicon.ico": ("favicon.svg", "image/svg+xml"),
}


@cache
def _read(name: str) -> bytes:
    return files("pawlock.service").joinpath("static", name).read_bytes()


async def file(request: Request) -> Response:
    """The page, which shows nothing before a token is entered; its script, style sheet and icon."""
    name, kind = _FILES[request.url.path]
    return Response(_read(name), media_type=kind)


for _path in _FILES:
    router.add_api_route(_path, file, methods=["GET", "HEAD"], include_in_schema=False)


def _described() -> dict[str, Any]:
    gives = "id:text namespace:text may:texts expires:number? namespaces:texts"
    described = schemas.operation(None, query={"namespace": schemas.WORD}, gives=gives)
    # It is not below a namespace.
    described["parameters"] = [one for one in described["parameters"] if one["in"] == "query"]
    return described


@router.get("/v1/whoami", tags=["looks"], summary="Permissions of a token", openapi_extra=_described())
async def whoami(request: Request) -> Response:
    """What the token may do in a namespace: query ``namespace``, default ``pawlock``."""
    state: State = request.app.state.pawlock
    who = state.access.who(request.headers.get("authorization"))
    state.access.spend(who)
    namespace = plain(request.query_params.get("namespace", "pawlock"))
    check_namespace(namespace)
    may = [role for role in ROLES if who.may(role, namespace)]
    told = {
        "id": who.id,
        "namespace": namespace,
        "may": may,
        "expires": who.expires and who.expires.timestamp(),
    }
    return answer({**told, "namespaces": state.spaces.shown_to(who)})
