"""What is held and waited for, as Prometheus reads it: of all clients of a namespace, not of this instance alone."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from pawlock.core.names import check_namespace
from pawlock.primitives.registry import beside_locks
from pawlock.service import schemas
from pawlock.service.problems import Problem
from pawlock.service.requests import State, plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pawlock.model import LockInfo

__all__ = ["metrics", "router", "text_of"]

router: APIRouter = APIRouter()

_GAUGES = {
    "pawlock_service_locks_held": "Held names, of all clients.",
    "pawlock_service_waiting": "Threads, tasks and requests that wait, of all clients.",
    "pawlock_service_longest_wait_seconds": "How long the first of those that wait now has waited.",
}


def text_of(spaces: Iterable[tuple[str, Iterable[LockInfo]]]) -> str:
    """The gauges of some namespaces in the text format of Prometheus.

    Args:
        spaces: Each namespace, with the state of its held names.
    """
    rows: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for namespace, infos in spaces:
        for kind in ("lock", *beside_locks()):
            rows[namespace, kind] = [0, 0, 0.0]
        for info in infos:
            row = rows[namespace, info.kind]
            row[0] += 1
            row[1] += info.waiting
            row[2] = max(row[2], info.longest_wait or 0.0)
    lines: list[str] = []
    for at, (name, about) in enumerate(_GAUGES.items()):
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        for (namespace, kind), row in rows.items():
            shown = namespace.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            lines.append(f'{name}{{namespace="{shown}",kind="{kind}"}} {row[at]:g}')
    return "\n".join(lines) + "\n"


def _described() -> dict[str, Any]:
    described = schemas.operation(None, query={"namespace": schemas.WORD})
    described["parameters"] = [one for one in described["parameters"] if one["in"] == "query"]
    described["responses"]["200"] = {
        "description": "Gauges in the text format of Prometheus.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    return described


@router.get(
    "/metrics",
    tags=["looks"],
    summary="Gauges for Prometheus",
    openapi_extra=_described(),
    response_class=PlainTextResponse,
)
async def metrics(request: Request) -> Response:
    """What is held and waited for in each ``namespace`` of the query, of all clients; needs the role ``read`` there.

    Default: the namespaces that the token names, and those in use on this instance that it may read.
    """
    state: State = request.app.state.pawlock
    who = state.access.who(request.headers.get("authorization"))
    state.access.spend(who)
    asked = [plain(one) for one in request.query_params.getlist("namespace")] or state.spaces.shown_to(who)
    for namespace in asked:
        check_namespace(namespace)
        if not who.may("read", namespace):
            text = f"the token {who.id!r} has no role 'read' in the namespace {namespace!r}"
            raise Problem(403, "FORBIDDEN", text)
    # One by one: each is a scan of the server's keys.
    found = [(namespace, await state.spaces.peek(namespace).locks()) for namespace in dict.fromkeys(asked)]
    return PlainTextResponse(
        text_of(found), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"}
    )
