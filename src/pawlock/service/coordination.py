"""Latches and barriers: they are waited for, and never held."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from pawlock._inside import plan_behind
from pawlock._template import escape
from pawlock.aio.gates import AsyncBarrier, AsyncLatch
from pawlock.core.outcomes import LookAtBarrier, LookAtLatch
from pawlock.primitives.barrier import operation as barrier
from pawlock.primitives.latch import operation as latch
from pawlock.runtimes.shared import secret
from pawlock.service import leases, schemas
from pawlock.service.requests import MOST_WAIT, Attempt, RequestContext, answer, segment
from pawlock.service.terms import RETRY_FOR, RETRY_WAITING_FOR

__all__ = ["barriers", "count_down", "latches", "look_at_barrier", "look_at_latch", "meet", "reset", "wait"]

latches: APIRouter = APIRouter(prefix="/v1/ns/{namespace}/latch/{name}", tags=["latches"])
barriers: APIRouter = APIRouter(prefix="/v1/ns/{namespace}/barrier/{name}", tags=["barriers"])
_KEY = ("Idempotency-Key",)


def _latch(ctx: RequestContext, count: int, unavailable_after: float = RETRY_FOR) -> AsyncLatch:
    return ctx.space.client.latch(escape(_name(ctx)), count, unavailable_after=unavailable_after)


def _barrier(ctx: RequestContext, parties: int, unavailable_after: float = RETRY_FOR) -> AsyncBarrier:
    return ctx.space.client.barrier(escape(_name(ctx)), parties, unavailable_after=unavailable_after)


def _name(ctx: RequestContext) -> str:
    return segment(ctx.request.path_params["name"])


@latches.post(
    "/count-down",
    summary="Count down",
    openapi_extra=schemas.operation(schemas.CountDown, "name", headers=_KEY, gives="name:text counted:flag"),
)
async def count_down(request: Request) -> Response:
    """Count a latch down; at 0 all waiters are released. The count never falls below 0."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.CountDown)
    plan = plan_behind(_latch(ctx, body.count))
    part = latch.check_part(body.part)

    async def count(attempt: Attempt) -> dict[str, Any]:
        token = f"{attempt.token}@http"
        await latch.count_down(ctx.space.engine, plan.primitive, plan.options, body.n, part, token)
        return {"name": plan.primitive.name, "counted": True}

    return await ctx.once(secret(), count, keep=True)


@latches.post(
    "/reset",
    summary="Start a new round of a latch",
    openapi_extra=schemas.operation(schemas.Reset, "name", headers=_KEY, gives="name:text reset:flag"),
)
async def reset(request: Request) -> Response:
    """Start a new round: the latch is closed again, with its full count."""
    ctx = RequestContext(request, "acquire")
    plan = plan_behind(_latch(ctx, (await ctx.read(schemas.Reset)).count))

    async def begin(attempt: Attempt) -> dict[str, Any]:
        await latch.reset(ctx.space.engine, plan.primitive, plan.options, f"{attempt.token}@http")
        return {"name": plan.primitive.name, "reset": True}

    return await ctx.once(secret(), begin, keep=True)


@latches.post(
    "/wait",
    summary="Wait until a latch opens",
    openapi_extra=schemas.operation(schemas.LatchWait, "name", gives="name:text open:flag"),
)
async def wait(request: Request) -> Response:
    """Wait until a latch is open; 423 if it is still closed at the end of the wait."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.LatchWait)
    one = _latch(ctx, body.count, RETRY_WAITING_FOR)

    async def listen() -> dict[str, Any]:
        async with ctx.waiting():
            await one.wait(min(body.wait, MOST_WAIT))
        return {"name": one.name, "open": True}

    return await ctx.unless_gone(listen())


@latches.get(
    "",
    summary="Read the count of a latch",
    openapi_extra=schemas.operation(
        None, "name", gives="name:text count:integer? left:integer? open:flag waiting:integer namespace:text"
    ),
)
async def look_at_latch(request: Request) -> Response:
    """The remaining count of a latch, and the number of waiters. A latch that was never used has no count."""
    ctx = RequestContext(request, "read")
    primitive = plan_behind(_latch(ctx, 1)).primitive
    found: LookAtLatch = await leases.call(ctx.space, primitive.inspect(), "read latch")
    count, left = found.initial, found.left
    state = {"count": count or None, "left": left if count else None, "open": bool(count) and left == 0}
    told = {"namespace": ctx.space.namespace, "name": primitive.name, "waiting": found.waiters}
    return answer({**told, **state})


@barriers.post(
    "/wait",
    summary="Arrive at a barrier and wait",
    openapi_extra=schemas.operation(schemas.Arrive, "name", headers=_KEY, gives="name:text missing:integer"),
)
async def meet(request: Request) -> Response:
    """Arrive at a barrier and wait for all parties; then they pass together, and the barrier is ready again.

    The response has ``missing``: the number of parties still missing at this arrival; the last one gets 0. A client
    that disconnects, or whose wait elapses (423), no longer counts.
    """
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.Arrive)
    plan = plan_behind(_barrier(ctx, body.parties, RETRY_WAITING_FOR))
    most = min(body.wait, MOST_WAIT)

    async def arrive(attempt: Attempt) -> dict[str, Any]:
        token = f"{attempt.token}@http"
        async with ctx.waiting():
            missing = await barrier.wait(ctx.space.engine, plan.primitive, plan.options, most, token)
        return {"name": plan.primitive.name, "missing": missing}

    return await ctx.once(secret(), arrive)


@barriers.get(
    "",
    summary="Count the waiters of a barrier",
    openapi_extra=schemas.operation(
        None, "name", gives="name:text arrived:integer parties:integer? namespace:text"
    ),
)
async def look_at_barrier(request: Request) -> Response:
    """The number of parties that wait at a barrier, and how many it needs. An unused barrier has no parties."""
    ctx = RequestContext(request, "read")
    primitive = plan_behind(_barrier(ctx, 1)).primitive
    found: LookAtBarrier = await leases.call(ctx.space, primitive.inspect(), "read barrier")
    state = {"arrived": found.arrived, "parties": found.parties or None}
    return answer({"namespace": ctx.space.namespace, "name": primitive.name, **state})
