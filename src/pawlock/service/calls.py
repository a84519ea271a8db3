"""The endpoint for pawlock's own clients: single steps of the protocol, checked as closely as whole requests."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from pawlock.core.protocol import carrier
from pawlock.core.protocol.faults import to_error
from pawlock.core.protocol.outcomes import Granted
from pawlock.core.protocol.runtime import Fault
from pawlock.core.retry import explained
from pawlock.errors import BackendUnavailable
from pawlock.service import schemas
from pawlock.service.leases import LeaseSpec
from pawlock.service.problems import hide_address
from pawlock.service.requests import RequestContext, answer
from pawlock.service.steps import Step, check_step
from pawlock.service.store.replies import RawReply, TooMany

__all__ = ["calls", "router", "wait"]

router: APIRouter = APIRouter(prefix="/v1/ns/{namespace}")


@router.post(
    "/calls",
    tags=["pawlock's clients"],
    summary="Steps of the protocol",
    openapi_extra=schemas.operation(schemas.Calls, gives={"replies": "replies"}),
)
async def calls(request: Request) -> Response:
    """For clients of ``http+pawlock://``: run single steps, and answer what the server answered."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.Calls, 64)
    engine = ctx.space.engine
    if not engine.runtime.channel():
        try:
            await engine.runtime.ready(1.0)
        except Fault as fault:
            # The client retries it as one of a server of its own.
            return answer({"replies": [_reply_of(fault)] * len(body.calls)})
    checked = [check_step(ctx, one.script, one.words) for one in body.calls]
    outcomes = await engine.runtime.call_many([one.call for one in checked], 1.0)
    outcomes = [
        await explained(engine, step.call, outcome) if isinstance(outcome, Fault) else outcome
        for step, outcome in zip(checked, outcomes, strict=True)
    ]
    replies: list[Any] = [_reply_of(outcome) for outcome in outcomes]
    notes = [
        (number, spec, token, note)
        for number, (step, outcome) in enumerate(zip(checked, outcomes, strict=True))
        for spec, token, note in _notes(ctx, step, outcome)
    ]
    noted = await engine.runtime.call_many([note for *_, note in notes], 1.0) if notes else []
    for (number, _, _, _), outcome in zip(notes, noted, strict=True):
        if isinstance(outcome, TooMany):
            for spec, token in checked[number].leases:
                engine.post(spec.primitive(ctx.space).leave(token, 60_000, 0))
            text = (
                f"this client already holds {outcome.already} leases, and its limit is {ctx.who.limits.locks}"
            )
            replies[number] = {"fault": "denied", "text": text, "maybe": False, "final": True}
    return answer({"replies": replies})


def _notes(
    ctx: RequestContext, step: Step, answer: RawReply | Fault
) -> list[tuple[LeaseSpec, str, carrier.Request]]:
    if isinstance(answer, Fault):
        return []
    who, store, outcome = ctx.who, ctx.space.store, answer.outcome
    if step.leaves:
        return [(spec, token, ctx.space.removal(who.id, "", token)) for spec, token in step.leases]
    if not isinstance(outcome, Granted) or not step.ttl_ms:
        return []
    return [
        (
            spec,
            token,
            store.hold(who.id, token, spec.to_json(), "", life_ms=step.ttl_ms, most=who.limits.locks),
        )
        for spec, token in step.leases
    ]


def _reply_of(answer: RawReply | Fault) -> Any:
    if isinstance(answer, Fault):
        error = to_error(answer, None, "a call of a client")
        text = hide_address(error) if isinstance(error, BackendUnavailable) else answer.text
        return {
            "fault": answer.kind.value, "text": text, "maybe": answer.maybe_applied, "final": answer.final
        }  # fmt: skip
    return [_text(word) for word in answer.words]


def _text(word: Any) -> Any:
    if isinstance(word, bytes):
        return word.decode(errors="replace")
    return [_text(one) for one in cast("Iterable[Any]", word)] if isinstance(word, list) else word


@router.post(
    "/calls/wait",
    tags=["pawlock's clients"],
    summary="Wait for a hand-off",
    openapi_extra=schemas.operation(schemas.Wait, gives={"wakeup": "integers?"}),
)
async def wait(request: Request) -> Response:
    """For clients of ``http+pawlock://``: answers when the token was granted something, or after ``timeout`` seconds."""
    ctx = RequestContext(request, "acquire")
    body = await ctx.read(schemas.Wait)

    timeout = min(body.timeout, ctx.who.limits.max_wait)

    async def listen(_: Any) -> dict[str, Any]:
        found = None
        # This instance ends: its client asks another one.
        with suppress(Fault):
            async with ctx.waiting():
                found = await ctx.space.engine.runtime.wait_wakeup(body.token, timeout)
        return {"wakeup": None if found is None else [found.fence, found.expires_ms]}

    return await ctx.once("-", listen)
