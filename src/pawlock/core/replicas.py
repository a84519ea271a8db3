"""Grants and renewals that count only once replicas have them.

Rules:

1. ``WAIT`` goes behind the grant, and behind each batch of renewals, on the connection that wrote them: another one may
   lead to another server by then, whose replicas say nothing of what the former one wrote.
2. A handed-off grant counts only after the waiter's own renewal and ``WAIT``.
3. A renewal counts only when it reached the replicas too: else a promoted one would free the name before its holder
   is notified.
4. Fewer acknowledgements than asked for: the grant is undone by its token, and that is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pawlock.core.faults import or_raise
from pawlock.core.outcomes import Granted, Outcome
from pawlock.core.primitive import TOMB_MS
from pawlock.core.runtime import Fault, FaultKind, Request
from pawlock.errors import NotReplicated

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.local_queue import Waiter
    from pawlock.core.options import LockOptions
    from pawlock.core.primitive import Primitive
    from pawlock.core.records import Hold
    from pawlock.core.runtime import Carrier

__all__ = ["ask_with_replicas", "confirm", "renew_one", "renew_with_replicas"]


async def ask_with_replicas(
    engine: Engine, primitive: Primitive, options: LockOptions, waiter: Waiter, call: Request, budget: float
) -> Outcome:
    """Ask for a waiter; a grant among the answers has reached the replicas.

    Raises:
        NotReplicated: It has not, and was undone.
        Fault: As for ``Runtime.call``.
    """
    ((answer, count),) = await engine.runtime.call_replicated([call], options.replicas, budget)
    outcome = or_raise(answer)
    if not isinstance(outcome, Granted) or count >= options.replicas:
        return outcome
    await _undo(engine, primitive, options, waiter)
    engine.count("not_replicated")
    raise _too_few("acquire", primitive, options, count, "; the grant was released")


async def renew_with_replicas(
    carrier: Carrier, batch: Sequence[Hold], calls: Sequence[Request], timeout: float
) -> list[Outcome | Fault]:
    """Renew leases that have replicas; one that reached too few of them is a fault."""
    most = max(hold.options.replicas for hold in batch)
    try:
        answers = await carrier.call_replicated(calls, most, timeout)
    except Fault as fault:
        return [fault.without_traceback()] * len(batch)
    found: list[Outcome | Fault] = []
    for hold, (outcome, count) in zip(batch, answers, strict=True):
        wanted, answer = hold.options.replicas, outcome
        if isinstance(outcome, Granted) and count < wanted:
            text = f"the renewal reached {count} of {wanted} replicas"
            answer = Fault(FaultKind.NOT_READY, text, maybe_applied=True)
        found.append(answer)
    return found


async def renew_one(engine: Engine, hold: Hold, call: Request) -> Outcome:
    """Send one renewal. Raises ``Fault``."""
    timeout = hold.options.answer_within
    if not hold.options.replicas:
        return await engine.runtime.call(call, timeout)
    return or_raise((await renew_with_replicas(engine.runtime, [hold], [call], timeout))[0])


async def confirm(engine: Engine, primitive: Primitive, options: LockOptions, token: str) -> None:
    """Renew what a token adopted just now, and wait until the replicas have it: on whichever server that is by now.

    Raises:
        NotReplicated: Too few of them do.
        Fault: The server could not be reached, or does not know the token.
    """
    if not options.replicas:
        return
    call = primitive.renew(token, options.ttl_ms, options.ticket_ms, "")
    ((answer, count),) = await engine.runtime.call_replicated([call], options.replicas, options.answer_within)
    if not isinstance(or_raise(answer), Granted):
        text = "another server stands in, which does not have what the former one wrote"
        raise Fault(FaultKind.NOT_READY, text, maybe_applied=True)
    if count < options.replicas:
        raise _too_few("adopt", primitive, options, count)


def _too_few(
    doing: str, primitive: Primitive, options: LockOptions, count: int, and_so: str = ""
) -> NotReplicated:
    text = f"{doing} {primitive.name!r}: {count} of {options.replicas} replicas acknowledged{and_so}"
    return NotReplicated(text, name=primitive.name, acknowledged=count, wanted=options.replicas)


async def _undo(engine: Engine, primitive: Primitive, options: LockOptions, waiter: Waiter) -> None:
    token, tomb_ms = waiter.token, TOMB_MS if waiter.unanswered else 0
    # From here on the token is dead: the waiter goes on with another.
    waiter.restart(engine.runtime.new_token())
    try:
        await engine.runtime.call(primitive.leave(token, tomb_ms, 0), options.answer_within)
    except BaseException as error:
        engine.post(primitive.leave(token, TOMB_MS, 0))
        if not isinstance(error, Fault):
            raise
