"""Several names as one lock: all of them, or none.

They are taken in one order by all clients, so that no cycle of waiters can form. What was taken is renewed while
the rest is waited for, and given back if the rest does not come.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Request, Response

from pawlock._key_text import read_key
from pawlock.errors import AcquireTimeout, NotHeld, PawlockError, WrongKey
from pawlock.runtimes.shared import secret
from pawlock.service import leases, schemas
from pawlock.service.acquisition import Acquisition
from pawlock.service.leases import LeaseSpec
from pawlock.service.problems import Problem
from pawlock.service.requests import MOST_WAIT, Attempt, RequestContext
from pawlock.service.routes import ttl_of
from pawlock.service.spaces import KEY

__all__ = ["acquire_all", "release_all", "renew_all", "router"]

router: APIRouter = APIRouter(prefix="/v1/ns/{namespace}/multi_lock", tags=["several names"])
_BOTH = ("Idempotency-Key", "Pawlock-Session")
_MOST_NAMES = 100
_LOST = NotHeld, WrongKey
"""Of one lease of several: it is over, also where another program has put something else there. The others go on."""


class _Several:
    """The acquisition of several locks for one client."""

    def __init__(self, ctx: RequestContext, attempt: Attempt, ttl_ms: int) -> None:
        self.ctx = ctx
        self.attempt = attempt
        self.ttl_ms = ttl_ms
        self.taken: list[tuple[LeaseSpec, str]] = []

    def token(self, name: str) -> str:
        """The token of one name: the same at each try of a request."""
        chance, _, shown = self.attempt.token.partition("@")
        return hashlib.sha256(f"{chance}\0{name}".encode()).hexdigest()[:32] + f"@{shown}"

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Keep what was taken while the next one is waited for."""
        async with self.ctx.waiting():
            keeper = asyncio.get_running_loop().create_task(self._keep())
            try:
                yield
            finally:
                keeper.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await keeper

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.ttl_ms / 3000)
            with contextlib.suppress(PawlockError):
                # What is lost is found out once the rest has come.
                await self.renew()

    async def renew(self) -> list[dict[str, Any]]:
        """Raise the life of all that was taken."""
        ctx = self.ctx
        return [
            dict(zip(("fence", "expires_in"), found, strict=True))
            for spec, token in self.taken
            for found in [await leases.renew(ctx.space, spec, token, self.ttl_ms, ctx.who, ctx.session)]
        ]

    async def take(self, wanted: Sequence[LeaseSpec], wait: float) -> list[dict[str, Any]]:
        """Take them all.

        Raises:
            AcquireTimeout: One of them is held by another.
        """
        ctx, runtime = self.ctx, self.ctx.space.engine.runtime
        until = runtime.now() + wait
        grants: list[dict[str, Any]] = []
        try:
            for spec in wanted:
                left = max(0.0, until - runtime.now()) if wait else 0.0
                token = self.token(spec.to_json() if spec.kind == KEY else spec.name)
                acquisition = Acquisition(ctx, spec, self.attempt, token, self.ttl_ms)
                grant, token = await acquisition.run(left, self.waiting)
                self.taken.append((spec, token))
                grants.append({"kind": spec.kind, "name": spec.name, "token": token, "fence": grant.fence})
            if wait and len(wanted) > 1:
                # The first ones have waited for the last one.
                for one, found in zip(grants, await self.renew(), strict=True):
                    one.update(found)
                if await ctx.is_gone():
                    raise asyncio.CancelledError
        except NotHeld as error:
            self._give_back()
            text = f"{error.name!r} was lost while waiting for the others; all were released"
            raise AcquireTimeout(text, name=error.name) from error
        except BaseException:
            self._give_back()
            raise
        return grants

    def _give_back(self) -> None:
        if self.taken:
            self.ctx.space.in_background(self._leave())

    async def _leave(self) -> None:
        ctx, give_up = self.ctx, self.attempt.give_up
        if give_up is None or await give_up():
            for spec, token in self.taken:
                with contextlib.suppress(*_LOST):
                    await leases.release(ctx.space, spec, token, ctx.who, ctx.session)


@router.post(
    "/acquire",
    summary="Acquire several locks, all or none",
    openapi_extra=schemas.operation(
        schemas.AcquireAll, headers=_BOTH, gives="namespace:text ttl:number leases:list"
    ),
)
async def acquire_all(request: Request) -> Response:
    """Acquire several locks, or wait for all of them; if one is not granted, the others are released."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.AcquireAll)
    specs = [*(LeaseSpec("lock", name) for name in body.names), *(_key_of(ctx, text) for text in body.keys)]
    if not 1 <= len(specs) <= _MOST_NAMES:
        text = f"names, keys: together they must be 1 to {_MOST_NAMES}, got {len(specs)}"
        raise Problem(422, "BAD_BODY", text)
    by_key = {one.primitive(ctx.space).key: one for one in specs}
    if len(by_key) < len(specs):
        raise Problem(422, "BAD_BODY", "names, keys: one is listed twice and would wait for itself")
    wanted = [by_key[key] for key in sorted(by_key)]
    ttl_ms, wait = ttl_of(ctx, body.ttl), min(body.wait, MOST_WAIT)

    async def take(attempt: Attempt) -> dict[str, Any]:
        several = _Several(ctx, attempt, ttl_ms)
        grants = await several.take(wanted, wait)
        return {"namespace": ctx.space.namespace, "ttl": ttl_ms / 1000, "leases": grants}

    return await ctx.once(ctx.new_token(body.holder), take)


@router.post(
    "/renew",
    summary="Renew several leases",
    openapi_extra=schemas.operation(schemas.RenewAll, headers=_BOTH, gives="leases:list"),
)
async def renew_all(request: Request) -> Response:
    """Extend several leases; 409 if one of them is lost, in which case the others are still extended."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.RenewAll)
    ttl_ms = ttl_of(ctx, None if ctx.session else body.ttl)
    leases_of = _leases_of(ctx, body.leases)

    async def renew(_: Attempt) -> dict[str, Any]:
        held: list[dict[str, Any]] = []
        lost: list[str] = []
        for one, spec in leases_of:
            try:
                fence, left = await leases.renew(ctx.space, spec, one.token, ttl_ms, ctx.who, ctx.session)
            except _LOST:
                lost.append(one.name)
            else:
                held.append({"kind": spec.kind, "name": spec.name, "fence": fence, "expires_in": left})
        _raise_if_lost(lost, "renew")
        return {"leases": held}

    return await ctx.once(secret(), renew)


@router.post(
    "/release",
    summary="Release several leases",
    openapi_extra=schemas.operation(schemas.ReleaseAll, headers=_BOTH, gives="released:texts"),
)
async def release_all(request: Request) -> Response:
    """Release several leases; 409 if one of them was lost, in which case the others are still released."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.ReleaseAll)
    leases_of = _leases_of(ctx, body.leases)

    async def leave(attempt: Attempt) -> dict[str, Any]:
        lost: list[str] = []
        for one, spec in reversed(leases_of):
            try:
                done = await leases.release(ctx.space, spec, one.token, ctx.who, ctx.session)
            except _LOST:
                done = False
            if not done and not attempt.again:
                lost.append(one.name)
        _raise_if_lost(lost, "release")
        return {"released": [one.name for one in body.leases]}

    return await ctx.once(secret(), leave)


def _key_of(ctx: RequestContext, text: str) -> LeaseSpec:
    ctx.check_key(read_key(text).key)
    return LeaseSpec(KEY, text)


def _leases_of(ctx: RequestContext, parts: Sequence[schemas.Part]) -> list[tuple[schemas.Part, LeaseSpec]]:
    return [
        (one, _key_of(ctx, one.name) if one.kind == KEY else LeaseSpec("lock", one.name)) for one in parts
    ]


def _raise_if_lost(lost: list[str], doing: str) -> None:
    if lost:
        text = f"{doing}: the tokens of {', '.join(map(repr, lost))} are not held (any more)"
        raise NotHeld(text, name=lost[0], operation="extend" if doing == "renew" else doing)
