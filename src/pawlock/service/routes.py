"""The routes of leases and sessions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from pawlock.core.options import check_ttl, to_ms
from pawlock.errors import AcquireTimeout, ConfigurationError
from pawlock.runtimes.shared import secret
from pawlock.service import leases, schemas
from pawlock.service.acquisition import Acquisition
from pawlock.service.problems import Problem
from pawlock.service.requests import MOST_TTL, MOST_WAIT, Attempt, RequestContext, answer
from pawlock.service.spaces import MUTEXES

__all__ = [
    "acquire",
    "end_session",
    "keep_alive",
    "open_session",
    "release",
    "renew",
    "router",
    "sessions",
    "ttl_of",
]

router: APIRouter = APIRouter(prefix="/v1/ns/{namespace}/{kind}/{name}", tags=["leases"])
sessions: APIRouter = APIRouter(prefix="/v1/ns/{namespace}/sessions", tags=["sessions"])
_DEFAULT_TTL = 30.0
_BOTH = ("Idempotency-Key", "Pawlock-Session")


def ttl_of(ctx: RequestContext, ttl: float | None) -> int:
    """The life of a lease in ms, from what was asked for and what the session and the limits say.

    Raises:
        Problem: More than the client may have.
    """
    bound = ctx.session_ttl_ms
    if bound is not None:
        if ttl is not None:
            raise Problem(422, "BAD_BODY", "ttl: a lease in a session has the TTL of the session")
        return bound
    seconds = check_ttl(_DEFAULT_TTL if ttl is None else ttl)
    if seconds > MOST_TTL:
        text = f"ttl must be at most {MOST_TTL:g} s for this client, got {seconds:g}"
        raise Problem(422, "TTL_LIMIT", text)
    return to_ms(seconds)


@router.post(
    "/acquire",
    summary="Acquire a lock",
    openapi_extra=schemas.operation(
        schemas.Acquire,
        "kind",
        "name",
        headers=_BOTH,
        gives=f"{schemas.LEASE} namespace:text token:text ttl:number",
    ),
)
async def acquire(request: Request) -> Response:
    """Acquire a lock, or wait in its queue; the waiter leaves the queue when the client disconnects."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.Acquire)
    spec, ttl_ms = ctx.spec(body.permits, body.n), ttl_of(ctx, body.ttl)
    wait = min(body.wait, MOST_WAIT)
    if body.identifier is not None and spec.kind not in MUTEXES:
        raise ConfigurationError(f"identifier is not supported for a {spec.kind}")
    mark = "" if body.identifier is None else ctx.mark_of(body.identifier)

    async def again() -> tuple[str, int, float] | None:
        return await leases.again(ctx.space, spec, mark, ttl_ms, ctx.who, ctx.session) if mark else None

    async def take(attempt: Attempt) -> dict[str, Any]:
        found = await again()
        if found is None:
            acquisition = Acquisition(ctx, spec, attempt, attempt.token, ttl_ms, shared=bool(mark))
            try:
                grant, token = await acquisition.run(wait, ctx.waiting)
            except AcquireTimeout:
                # Another request of the identifier may have got it meanwhile.
                found = await again()
                if found is None:
                    raise
            else:
                found = token, grant.fence, round(grant.valid_until - ctx.space.engine.runtime.now(), 3)
        held = dict(zip(("token", "fence", "expires_in"), found, strict=True))
        space, ttl = ctx.space.namespace, ttl_ms / 1000
        return {"namespace": space, "kind": spec.kind, "name": spec.name, "ttl": ttl, **held}

    return await ctx.once(ctx.new_token(body.holder, mark), take)


@router.post(
    "/renew",
    summary="Renew a lease",
    openapi_extra=schemas.operation(schemas.Renew, "kind", "name", headers=_BOTH, gives=schemas.LEASE),
)
async def renew(request: Request) -> Response:
    """Extend a lease; its expiry is never lowered."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.Renew)
    spec = ctx.spec(body.permits, body.n)
    ttl_ms = ttl_of(ctx, None if ctx.session else body.ttl)

    async def extend(_: Attempt) -> dict[str, Any]:
        fence, left = await leases.renew(ctx.space, spec, body.token, ttl_ms, ctx.who, ctx.session)
        return {"kind": spec.kind, "name": spec.name, "fence": fence, "expires_in": left}

    return await ctx.once(secret(), extend)


@router.post(
    "/release",
    summary="Release a lease",
    openapi_extra=schemas.operation(
        schemas.Release, "kind", "name", headers=_BOTH, gives="kind:text name:text released:flag"
    ),
)
async def release(request: Request) -> Response:
    """Release a lease; the same step grants the lock to the next waiter."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.Release)
    spec = ctx.spec(body.permits, body.n)

    async def leave(attempt: Attempt) -> dict[str, Any]:
        done = await leases.release(ctx.space, spec, body.token, ctx.who, ctx.session)
        if not done and not attempt.again:
            raise leases.not_held(spec)
        return {"kind": spec.kind, "name": spec.name, "released": True}

    return await ctx.once(secret(), leave)


# Sessions -----------------------------------------------------------------------------------------------------------


@sessions.post(
    "",
    summary="Open a session",
    openapi_extra=schemas.operation(
        schemas.OpenSession, headers=_BOTH[:1], gives="session:text namespace:text ttl:number"
    ),
)
async def open_session(request: Request) -> Response:
    """Open a session: if no keep-alive arrives for its TTL, everything that it holds is released."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.OpenSession)
    ctx.session = ""
    ttl_ms = ttl_of(ctx, body.ttl)

    async def begin(attempt: Attempt) -> dict[str, Any]:
        session = f"s{ttl_ms}-{attempt.token}"
        await leases.open_session(ctx.space, session, ttl_ms, ctx.who)
        return {"session": session, "namespace": ctx.space.namespace, "ttl": ttl_ms / 1000}

    return await ctx.once(secret(), begin)


@sessions.post(
    "/keep-alive",
    summary="Keep a session alive",
    openapi_extra=schemas.operation(None, headers=_BOTH[1:], gives="ttl:number held:list lost:list"),
)
async def keep_alive(request: Request) -> Response:
    """Renew the session of the header ``Pawlock-Session`` and all its leases; returns the leases that were lost."""
    return answer(await leases.keep_session(*_session(request)))


@sessions.delete(
    "",
    summary="End a session",
    openapi_extra=schemas.operation(None, headers=_BOTH[1:], gives="released:integer"),
)
async def end_session(request: Request) -> Response:
    """End the session of the header ``Pawlock-Session``, and release everything that it holds."""
    return answer({"released": await leases.close_session(*_session(request))})


def _session(request: Request) -> tuple[Any, str, Any]:
    ctx = RequestContext(request, "acquire")
    if not ctx.session:
        raise Problem(400, "NO_SESSION", "no session: send it in the header Pawlock-Session")
    return ctx.space, ctx.session, ctx.who
