"""What a lease of several masters needs once it is granted: its renewals, its release, and what is still to send."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from pawlock.core.keep.outbox import leave_votes
from pawlock.core.keep.replicas import renew_with_replicas
from pawlock.core.protocol.backoff import full_jitter
from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.faults import or_raise
from pawlock.core.protocol.outcomes import Outcome
from pawlock.core.protocol.quorum import spread
from pawlock.core.protocol.runtime import Fault
from pawlock.core.quorum.votes import Delivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.quorum import QuorumRuntime
    from pawlock.core.state.records import ServerLease

__all__ = ["ask_to_leave", "redeliver", "renew_one", "renewal_patience"]

log: logging.Logger = logging.getLogger("pawlock.redlock")

_RESENT_PER_SECOND = 1000
"""How many deliveries are sent again in a second, at most about: each costs some 30 us of a client's CPU."""

_RESEND_WITHIN = 0.5
"""Seconds after which, at most, a request that one of several masters did not answer is sent again."""

_HEARD_WITHIN = 0.5
"""Seconds for which the maintenance waits for the answers to such requests at most: a lease that is granted meanwhile
may end soon. An answer that comes later counts all the same."""


async def ask_to_leave(engine: Engine, server_lease: ServerLease, call: Request) -> Outcome:
    """Send a release, and hear what became of it. Raises ``Fault``."""
    timeout = server_lease.options.request_timeout
    if engine.quorum is None:
        return await engine.runtime.call(call, timeout)
    nodes = cast("QuorumRuntime", engine.runtime)
    votes = leave_votes(engine, server_lease)
    await nodes.ask([(spread(call, votes.nodes), votes)], max(timeout, nodes.node_timeout))
    return votes.outcome()


def renewal_patience(engine: Engine, server_lease: ServerLease, now: float) -> float:
    """How long the answers to a renewal are waited for; of several masters half of what is left, if that is more."""
    if engine.quorum is None:
        return server_lease.options.request_timeout
    nodes = cast("QuorumRuntime", engine.runtime)
    return max(nodes.node_timeout, min(nodes.patience, (server_lease.valid_until - now) / 2))


async def renew_one(engine: Engine, server_lease: ServerLease, call: Request) -> Outcome:
    """Send one renewal. Raises ``Fault``."""
    if engine.quorum is None:
        timeout = server_lease.options.request_timeout
        if not server_lease.options.replicas:
            return await engine.runtime.call(call, timeout)
        return or_raise((await renew_with_replicas(engine.runtime, [server_lease], [call], timeout))[0])
    return await engine.runtime.call(call, renewal_patience(engine, server_lease, engine.runtime.now()))


async def redeliver(engine: Engine, leaving: Sequence[object], most: float) -> None:
    """Send each of several masters what it has not answered yet, within ``most`` seconds."""
    deliveries = [delivery for delivery in leaving if isinstance(delivery, Delivery)]
    runtime = engine.runtime
    nodes = cast("QuorumRuntime", runtime)
    try:
        questions = [(list(delivery.calls), delivery) for delivery in deliveries if not delivery.done]
        await nodes.ask(questions, min(nodes.node_timeout, most, _HEARD_WITHIN))
    except Fault as fault:
        log.debug("masters could not be reached: %s", fault.text)
    now = runtime.now()
    for delivery in deliveries:
        if not delivery.done and now < delivery.until:
            delivery.attempt += 1
            pause = full_jitter(delivery.attempt, runtime.random(), cap=_RESEND_WITHIN)
            # Many requests may wait for a hung node: what is left of a CPU is for those who work.
            delivery.due = now + 0.01 + pause + len(engine.outbox.entries) / _RESENT_PER_SECOND
            continue
        engine.count("departed" if delivery.done else "departure_given_up")
        engine.outbox.entries.pop(delivery, None)
        # In this order: a node that is added from now on is posted again, and one added before is seen here.
        delivery.posted = False
        if not delivery.done and now < delivery.until:
            delivery.posted = True
            engine.outbox.entries[delivery] = None
