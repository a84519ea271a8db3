"""The wait in strict order with the answer unread; see ``strict_handover``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawl.core.protocol.runtime import Fault
from pawl.model import LeaseState

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.runtime import Fetch, Parker
    from pawl.core.state.plan import Plan
    from pawl.core.state.records import Waiter

__all__ = ["UNREAD_FOR", "line_up", "may_defer", "read_unread"]


UNREAD_FOR = 0.02
"""Seconds for which an answer is left unread."""


def may_defer(engine: Engine, plan: Plan) -> bool:
    """Whether who comes now may leave its answer unread: whether a run goes on, and somebody is known to be next."""
    row = engine.queues.unread_behind.get(plan.primitive.key)
    return (
        row is not None
        and row.follow_key == plan.run
        and row.run is not None
        and bool(row.run.behind)
        and row.state is LeaseState.HELD
        and not engine.activity.closed
    )


def line_up(engine: Engine, plan: Plan, waiter: Waiter, parker: Parker) -> Fetch | None:
    """Queue a waiter behind others of this client, and let a run serve it; None if it was not sent, or failed."""
    options, line = plan.options, engine.runtime.line()
    if line is None:
        return None
    strict = waiter.strict
    strict.follow_key, waiter.batch.channel = plan.run, line.channel
    strict.wake, strict.unread_key = parker.unpark, plan.primitive.key
    # Before it is sent: a hand-off message may name it at once, and a run that does not find it ends.
    engine.queues.followers[waiter.token] = waiter
    call = plan.primitive.acquire(
        waiter.token, options.life_ms, options.ticket_ms,
        wait=True, block=options.block, channel=line.channel, max_waiters=options.max_waiters,
    )  # fmt: skip
    waiter.asks()
    try:
        return line.defer(call, options.request_timeout)
    except Fault as fault:
        waiter.unanswered = fault.maybe_applied
        return None


async def read_unread(waiter: Waiter, fetch: Fetch, sent_at: float) -> None:
    """Have a waiter bring along the answer to a request that was sent then, and whose reply nobody read yet."""
    try:
        answer = fetch()
        if answer is not None and not isinstance(answer, list):
            answer = await answer
    except Fault as fault:
        waiter.unanswered |= fault.maybe_applied
        return
    if answer is None:
        # Something else used the connection meanwhile, and dropped it.
        waiter.unanswered = True
    else:
        waiter.answer = answer, sent_at
