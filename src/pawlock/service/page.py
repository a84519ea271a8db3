"""The live page: files of the package, nothing from other hosts."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from pawlock.core.protocol.names import check_namespace
from pawlock.service import schemas
from pawlock.service.access import ROLES
from pawlock.service.requests import State, answer, plain

__all__ = ["favicon", "index", "router", "script", "style", "whoami"]

router: APIRouter = APIRouter()

_READ = ["GET", "HEAD"]


@cache
def _read(name: str) -> bytes:
    return files("pawlock.service").joinpath("static", name).read_bytes()


@router.api_route("/", methods=_READ, include_in_schema=False)
async def index() -> Response:
    """The page. It shows nothing before a token is entered."""
    return Response(_read("page.html"), media_type="text/html")


@router.api_route("/page.js", methods=_READ, include_in_schema=False)
async def script() -> Response:
    """The script."""
    return Response(_read("page.js"), media_type="text/javascript")


@router.api_route("/page.css", methods=_READ, include_in_schema=False)
async def style() -> Response:
    """The style sheet."""
    return Response(_read("page.css"), media_type="text/css")


@router.api_route("/favicon.svg", methods=_READ, include_in_schema=False)
@router.api_route("/favicon.ico", methods=_READ, include_in_schema=False)
async def favicon() -> Response:
    """The icon."""
    return Response(_read("favicon.svg"), media_type="image/svg+xml")


@router.get(
    "/v1/whoami",
    tags=["looks"],
    summary="Permissions of a token",
    openapi_extra=schemas.whoami(),
)
async def whoami(request: Request) -> Response:
    """What the token may do in a namespace: query ``namespace``, default ``pawlock``."""
    state: State = request.app.state.pawlock
    who = state.access.who(request.headers.get("authorization"))
    state.access.spend(who)
    namespace = plain(request.query_params.get("namespace", "pawlock"))
    check_namespace(namespace)
    may = [role for role in ROLES if who.may(role, namespace)]
    # Those that its token names, and those in use here that it may read.
    named = [pattern for pattern in who.namespaces if "*" not in pattern and who.may("read", pattern)]
    spaces = sorted({*named, *state.spaces.known_to(who)})
    permissions = {
        "id": who.id,
        "namespace": namespace,
        "may": may,
        "expires": who.expires,
        "namespaces": spaces,
    }
    return answer(permissions)
