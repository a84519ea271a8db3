"""The first request of an acquisition: a lock that nobody in this client holds is usually free, and granted at once.

Most of this code runs once per acquisition and is cold when it does, so the number of functions that it passes through
is what an uncontended lock costs. After every answer but a plain grant its caller goes on as a waiter (``acquire``),
with all that is known by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.lease.factory import make_lease
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.runtime import Fault
from pawlock.core.retry import note_failure, patience
from pawlock.core.state.local_queue import LocalQueue
from pawlock.core.state.records import ServerLease, Waiter
from pawlock.model import LeaseState

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from pawlock.core.keep.engine import Engine
    from pawlock.core.lease.record import HeldLease
    from pawlock.core.state.plan import Plan

__all__ = ["ask", "begin", "own_if_granted", "waiter_of"]


def begin(engine: Engine, plan: Plan) -> ServerLease | None:
    """Open the local queue of a name that nobody of this client holds or waits for.

    Returns:
        The server lease to ask for, which holds nothing yet; None if it cannot be requested this way: nothing was done.
    """
    queue_key, local_queues = plan.queue_key, engine.queues.local.by_key
    if queue_key in local_queues and not plan.alone:
        return None
    who, token = engine.runtime.caller_and_token()
    primitive = plan.primitive
    if engine.activity.closed or (not plan.counted and (who, primitive.key) in engine.leases.held):
        return None
    if plan.identity:
        token = plan.shown(token)
    server_lease = ServerLease(primitive, plan.options, token, 0, 0.0, 0.0)
    server_lease.owner.who = who
    if not plan.alone:
        # The server lease lives as long as this call of the caller, and so shows that somebody has the turn. As
        # ``LocalQueues.join`` does it: one step under the interpreter's lock, so two callers cannot both open the
        # place.
        local_queue = server_lease.local_queue = LocalQueue(
            queue_key, engine.guard, local_queues, server_lease
        )
        try:
            if local_queues.setdefault(queue_key, local_queue) is not local_queue:
                return None
        except BaseException:
            # A signal handler raised: nobody gets the turn, however long the traceback keeps the server lease.
            server_lease.state = LeaseState.LOST
            raise
    return server_lease


def ask(
    engine: Engine, server_lease: ServerLease, sent_at: float, until: float | None, *, wait: bool
) -> Outcome | Awaitable[Outcome] | None:
    """Send the first request for a server lease that is registered as in progress.

    Returns:
        The answer, or what brings it; None if nothing was sent: there is no connection yet, or the grant must reach
        ``replicas``.
    """
    options, runtime = server_lease.options, engine.runtime
    connection = runtime.connection()
    # None does not mean that there is no connection: in a cluster, or with observers, ``call`` finds it.
    channel = runtime.channel() if connection is None else connection.channel
    if not channel or options.replicas:
        return None
    call = server_lease.primitive.acquire(
        server_lease.token, options.ttl_ms, options.ticket_ms,
        wait=wait, block=options.block, channel=channel, max_waiters=options.max_waiters,
    )  # fmt: skip
    timeout = options.request_timeout if until is None else patience(sent_at, options, until)
    return runtime.call(call, timeout) if connection is None else connection.ask(call, timeout)


def own_if_granted(
    engine: Engine, plan: Plan, server_lease: ServerLease, outcome: Outcome, sent_at: float
) -> HeldLease | None:
    """Own what a plain grant gives; None for every other answer."""
    if not isinstance(outcome, Granted) or outcome.fence <= 0:
        return None
    options = server_lease.options
    now = engine.runtime.now()
    until = engine.validity(sent_at, outcome.left_ms, options.ttl_ms)
    if until <= now:
        return None
    server_lease.fence = outcome.fence
    server_lease.quorum = outcome.quorum
    server_lease.valid_until = until
    server_lease.owner.granted_at = now
    if options.max_hold is not None:
        server_lease.limit_hold(now + options.max_hold)
    return make_lease(engine, server_lease, sent_at, counted=plan.counted)


def waiter_of(
    engine: Engine, server_lease: ServerLease, answer: Outcome | Fault | None, sent_at: float
) -> Waiter:
    """What goes on as a waiter: the token, and what became of its first request.

    Args:
        engine: The client's engine.
        server_lease: What was asked for.
        answer: The answer; the fault; or None if it is not known whether the question ever went out.
        sent_at: When it was asked.
    """
    waiter = Waiter(server_lease.token)
    waiter.asks()
    if answer is None or isinstance(answer, Fault):
        waiter.unanswered = answer is None or answer.maybe_applied
        if answer is not None:
            # ``unavailable_after`` counts from here: this is the first of the tries that failed.
            waiter.failing().since = note_failure(engine, answer, sent_at)
    else:
        waiter.answer = answer, sent_at
    return waiter
