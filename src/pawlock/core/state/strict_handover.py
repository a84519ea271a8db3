"""Strict order inside one client without a round trip for each grant.

Where order is strict (``handover=0``, ``fair_lock``) each waiter has its own ticket on the server. The message of a
hand-off names the tickets that stand directly behind the one that was served, as far as they are of the same process.
As nobody can come between two tickets, the next grant is known: when the owner is done, and the waiter of the next
ticket sleeps in this client, the server lease passes to it with the next fence of the block, and no request is made.
Each such grant is the one that the server would make.

Safety: the name stays under the token of the first, whose ``valid_until`` counts for all who follow it. The tickets
that were served here stay queued, untouched, until the script that leaves that token takes them out as well. If the
client dies meanwhile, they are tickets of dead waiters, as they would be without a run.

A run ends where the next ticket is not one of a waiter asleep here, when the block of fences is used up, and when the
lease has less than half of a ticket's life left.

A turn passes in one guarded step, see ``Engine.guard``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pawlock.core.state.records import StrictRun
from pawlock.model import LeaseState

if TYPE_CHECKING:
    from pawlock.core.state.client import ClientState
    from pawlock.core.state.records import ServerLease, Waiter

__all__ = ["begin", "enlist", "pass_on", "resign"]


def begin(server_lease: ServerLease, waiter: Waiter) -> None:
    """Take note of who stands behind a waiter that was served."""
    server_lease.follow_key = waiter.strict.follow_key
    if waiter.strict.behind:
        server_lease.run = StrictRun(deque(waiter.strict.behind))


def enlist(engine: ClientState, waiter: Waiter) -> bool:
    """Let a run serve a waiter that is about to sleep, and others renew its ticket; False if it would see neither."""
    # Who waits alone has nobody before it in this client.
    if not waiter.batch.batch_key or waiter.unanswered or len(engine.queues.waits) <= 1:
        return False
    wake = engine.runtime.waker(waiter.token)
    if wake is None:
        return False
    waiter.strict.wake = wake
    engine.queues.followers[waiter.token] = waiter
    return True


def resign(engine: ClientState, waiter: Waiter) -> None:
    """The waiter sleeps no more: from here on it is either served by a run or never will be."""
    # Guarded: a thread that found it there serves it in the same step.
    with engine.guard:
        if waiter.token in engine.queues.followers:
            del engine.queues.followers[waiter.token]


def pass_on(engine: ClientState, server_lease: ServerLease, now: float, number: int | None = None) -> bool:
    """Pass a server lease whose owner is done with it to the next in strict order; False if there is none here.

    Args:
        engine: The client's engine.
        server_lease: What is passed on.
        now: The present.
        number: Which of its owners passes it on; None if that is sure.
    """
    run, followers, used = server_lease.run, engine.queues.followers, server_lease.used
    behind = None if run is None else run.behind
    token = behind[0] if behind else ""
    may, served = token and _may_follow(server_lease, now), [token]
    waiter: Waiter | None = None
    try:
        with engine.guard:
            if server_lease.used != (used if number is None else number):
                return True
            # Only who passes it on takes one out, and then another number is in use.
            mine = may and not server_lease.owner.shown and server_lease.used == used
            if not mine or run is None or not behind or behind is not run.behind:
                return False
            if (
                server_lease.state is not LeaseState.HELD
                or token not in followers
                or followers[token].strict.follow_key != server_lease.follow_key
            ):
                # Who is next asks right now, or gave up, or belongs to another client: the server knows.
                run.behind = None
                return False
            waiter = followers[token]
            run.spent = run.spent + served if run.spent else served
            del behind[0]
            del followers[token]
            server_lease.used = waiter.strict.number = used + 1
            # Nobody's, until the one that is woken takes it: the last holder may wait for something else by then.
            server_lease.owner.granted_at, server_lease.owner.who = now, None
            waiter.strict.fence = server_lease.fence + server_lease.used
            waiter.strict.server_lease = server_lease
        waiter.strict.wake()
    except BaseException:
        if waiter is not None:
            waiter.strict.wake()
        raise
    return True


def _may_follow(server_lease: ServerLease, now: float) -> bool:
    """Whether the rules allow the next to follow the present owner; only its state can change while it is the owner."""
    options = server_lease.options
    return (
        server_lease.used + 1 < options.block
        and not server_lease.failures
        and not server_lease.unanswered
        and server_lease.valid_until - now >= options.ticket_ttl / 2
    )
