"""Inspecting one lock or all locks, the audit log; and force release."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, cast

from fastapi import APIRouter, Request, Response

from pawlock._inside import plan_behind
from pawlock._key_text import read_key
from pawlock._seen import with_sleepers
from pawlock._template import escape
from pawlock.core.inspect import inspect
from pawlock.core.key import Key
from pawlock.core.primitive import Primitive
from pawlock.model import LockInfo
from pawlock.primitives.once.operation import Recorded
from pawlock.primitives.once.operation import look as recorded
from pawlock.service import schemas
from pawlock.service.leases import LeaseSpec
from pawlock.service.problems import Problem
from pawlock.service.requests import Attempt, RequestContext, answer
from pawlock.service.spaces import KEY, MUTEXES, Space
from pawlock.service.terms import options_of_question

__all__ = ["audit", "force", "look", "names", "router", "shown"]

router: APIRouter = APIRouter(prefix="/v1/ns/{namespace}", tags=["looks"])
_MOST_LISTED = 10_000
_MOST_REMEMBERED = 1000
_ONCE = "once"
"""Run only by direct clients of the server, but shown here."""
_ALSO = (_ONCE, "rwlock")
"""Kinds that lists have, and that nobody acquires by that word."""


def shown(info: LockInfo) -> dict[str, Any]:
    """A record as JSON: no infinity, no token."""
    record = asdict(info)
    if math.isinf(info.ttl_left):
        record["ttl_left"] = None
    return record


def _limit(request: Request, usual: int, most: int) -> int:
    text = request.query_params.get("limit", str(usual))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= most):
        raise Problem(422, "BAD_QUERY", f"limit must be 1 to {most}")
    return int(text[:9])


def _spec_of(ctx: RequestContext) -> LeaseSpec:
    permits = ctx.request.query_params.get("permits")
    if permits is not None and not (permits.isascii() and permits.isdecimal() and len(permits) < 11):
        raise Problem(422, "BAD_QUERY", "permits must be a number")
    spec = ctx.spec(int(permits) if permits else None, 1, *_ALSO)
    return LeaseSpec("rwlock_read", spec.name) if spec.kind == "rwlock" else spec


@router.get(
    "/{kind}/{name}",
    summary="Inspect a lock: holder and queue",
    openapi_extra=schemas.operation(
        None,
        "kind",
        "name",
        also=_ALSO,
        query={"permits": {"type": "integer", "minimum": 1}},
        gives=f"{schemas.RECORD} done:object? namespace:text",
    ),
)
async def look(request: Request) -> Response:
    """Inspect one lock. For a free lock, ``held`` is false.

    Of a ``once``, ``done`` says what is recorded, without the value: ``type``, ``size`` (bytes), ``fence``, ``at``
    (Unix time) and ``keep_left`` (seconds). It is null for what is not done, and for every other kind.
    """
    ctx = RequestContext(request, "read")
    spec = _spec_of(ctx)
    done: Recorded | None = None
    if spec.kind == _ONCE:
        plan = plan_behind(ctx.space.client.once(escape(spec.name)))
        done = await recorded(ctx.space.engine, plan)
        primitive = plan.primitive
    else:
        primitive = _primitive_of(ctx.space, spec)
    engine = ctx.space.engine
    info = await inspect(engine, primitive, options_of_question(engine), 1000)
    (info,) = await with_sleepers(engine, [info])
    done_fields = None if done is None else done._asdict()
    return answer({**shown(info), "done": done_fields, "namespace": ctx.space.namespace})


def _name_or_key(spec: LeaseSpec) -> str | Key:
    return read_key(spec.name) if spec.kind == KEY else escape(spec.name)


def _primitive_of(space: Space, spec: LeaseSpec) -> Primitive:
    if spec.kind in MUTEXES:
        # What is shown of a re-entrant lock is the same.
        spec = LeaseSpec(KEY if spec.kind == KEY else "lock", spec.name)
    elif spec.kind == "semaphore" and spec.permits is None:
        # Its holders are the same whatever it is said to have.
        spec = LeaseSpec("semaphore", spec.name, 1)
    return spec.primitive(space)


@router.get(
    "/locks",
    summary="List held locks",
    openapi_extra=schemas.operation(
        None,
        query={"search": {"type": "string"}, "limit": {"type": "integer", "minimum": 1, "maximum": 10000}},
        gives="namespace:text locks:list total:integer",
    ),
)
async def names(request: Request) -> Response:
    """List the held names of the namespace, of all clients, by scanning the keys of the server in small steps.

    Query: ``search`` (part of a name or holder), ``limit`` (default 1,000).
    """
    ctx = RequestContext(request, "read")
    limit = _limit(request, 1000, _MOST_LISTED)
    search = request.query_params.get("search", "")
    found = [one for one in await ctx.space.locks() if search in one.name or search in one.holder]
    listed = [shown(one) for one in found[:limit]]
    return answer({"namespace": ctx.space.namespace, "locks": listed, "total": len(found)})


@router.post(
    "/{kind}/{name}/force-release",
    summary="Force-release a name of any kind",
    openapi_extra=schemas.operation(
        schemas.Force, "kind", "name", also=_ALSO, headers=("Idempotency-Key",), gives=schemas.FORCED
    ),
)
async def force(request: Request) -> Response:
    """End the leases of the holders of a name, and grant it to the next waiters; the audit log records the reason.

    A semaphore and an rwlock may have several holders; ``holder`` selects one, as the inspection shows it. 409 if
    nothing was released.
    """
    ctx = RequestContext(request, "force")
    body = await ctx.read(schemas.Force)
    spec = _spec_of(ctx)
    kind = "lock" if spec.kind in MUTEXES else spec.kind.partition("_")[0]
    by = f"token {ctx.who.id}"

    async def take(_: Attempt) -> dict[str, Any]:
        forced = await ctx.space.client.force_release(
            _name_or_key(spec), cast("Any", kind), reason=body.reason, holder=body.holder, by=by
        )
        return asdict(forced)

    return await ctx.once("-", take)


@router.get(
    "/audit",
    summary="Audit log",
    openapi_extra=schemas.operation(
        None,
        query={"limit": {"type": "integer", "minimum": 1, "maximum": 1000}},
        gives="namespace:text audit:list",
    ),
)
async def audit(request: Request) -> Response:
    """The audit log of the namespace, newest first.

    Query: ``limit`` (default 200, at most 1,000).
    """
    ctx = RequestContext(request, "read")
    entries = await ctx.space.client.audit(limit=_limit(request, 200, _MOST_REMEMBERED))
    return answer({"namespace": ctx.space.namespace, "audit": [asdict(one) for one in entries]})
