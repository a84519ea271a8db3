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

The answer to the request by which somebody queues is "queued", nearly always, and needs a wake-up of its thread. So
who comes while a run is on, and the message of its hand-off named as many tickets as it could hold, sends the request
and leaves the answer unread (``line_up``): it sleeps on a bell alone, and listens to no connection. Why that is right:

- Nothing follows from the answer for who is served by a run: that its ticket is queued is known from the message that
  named it. What comes with the answer is for who listens: its rank, and the least expiry of a message that counts,
  which for a ticket that was never renewed is that of any message.
- No message is for it while it sleeps so: the owner of the run on which it relies is before it. When that run ends
  (``disperse``) the ticket that comes next is known, and its waiter is woken to listen; it is woken before that where
  the block is used up, with the last grant, so that nobody waits for it. Where the next one is not known, all are.
- One that is woken unserved, or slept for ``UNREAD_FOR``, reads its answer and goes on in the general path, in which
  the answer may be any: a grant, since all others left or died; a refusal; none, as the connection broke. So whatever
  happens to those before it, it is noticed within that time; and its ticket lives at least as long.
- An interrupted request may have queued, so its token is left with a tombstone, as any other. The answer is dropped by
  the next request of that connection, and cannot be taken for another: it has an id, or is read in its order.

A turn passes in one guarded step, see ``Engine.guard``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pawl.core.state.records import StrictRun
from pawl.model import LeaseState

if TYPE_CHECKING:
    from pawl.core.state.client import ClientState
    from pawl.core.state.records import LeaseRecord, ServerLease, Waiter

__all__ = ["begin", "disperse", "enlist", "pass_on", "resign"]


def begin(engine: ClientState, server_lease: ServerLease, waiter: Waiter) -> None:
    """Take note of who stands behind a waiter that was served."""
    server_lease.follow_key = waiter.strict.follow_key
    if waiter.strict.behind:
        server_lease.run = StrictRun(deque(waiter.strict.behind))
        line = engine.runtime.line()
        unasked = (
            engine.reports.history is None and engine.quorum is None and line is not None and line.defers
        )
        if unasked and len(waiter.strict.behind) >= server_lease.options.block:
            engine.queues.unread_behind[server_lease.primitive.key] = server_lease


def disperse(engine: ClientState, server_lease: ServerLease) -> None:
    """A run ends: have the next in strict order listen, or all who might be, since nobody here is before them now."""
    key = server_lease.primitive.key
    if key not in engine.queues.unread_behind:
        return
    # A list first, in one step: other threads come meanwhile.
    asleep = [waiter for waiter in list(engine.queues.followers.values()) if waiter.strict.unread_key == key]
    if not asleep:
        engine.queues.unread_behind.pop(key, None)
    run = server_lease.run
    first = engine.queues.followers.get(run.behind[0]) if run is not None and run.behind else None
    for waiter in asleep if first is None else (first,):
        if waiter.strict.unread_key:
            waiter.strict.wake()


def enlist(engine: ClientState, waiter: Waiter) -> bool:
    """Let a run serve a waiter that is about to sleep, and others speak for it; False if neither could be noticed."""
    # Who waits alone has nobody before it in this client.
    if not waiter.batch.batch_key or waiter.unanswered or len(engine.queues.waits) <= 1:
        return False
    ring = engine.runtime.bell(waiter.token)
    if ring is None:
        return False
    waiter.strict.wake = ring
    engine.queues.followers[waiter.token] = waiter
    return True


def resign(engine: ClientState, waiter: Waiter) -> None:
    """The waiter sleeps no more: from here on it is either served by a run or never will be."""
    # Guarded: a thread that found it there serves it in the same step.
    with engine.guard:
        if waiter.token in engine.queues.followers:
            del engine.queues.followers[waiter.token]


def pass_on(
    engine: ClientState, server_lease: ServerLease, now: float, number: int | None = None,
    lease: LeaseRecord | None = None,
) -> bool:  # fmt: skip
    """Pass a server lease whose owner has done with it to the next in strict order; False if there is none here.

    Args:
        engine: The client's engine.
        server_lease: What is passed on.
        now: The present.
        number: Which of its owners passes it on; None if that is sure.
        lease: What ends in the same step; then nothing at all is done unless it is passed on.
    """
    run, followers, used = server_lease.run, engine.queues.followers, server_lease.used
    behind = None if run is None else run.behind
    token = behind[0] if behind else ""
    may, served = token and _may_follow(server_lease, now), [token]
    waiter: Waiter | None = None
    try:
        with engine.guard:
            if server_lease.used != (used if number is None else number):
                return lease is None
            ended = lease is not None and (lease.released or lease.levels != 1)
            # Only who passes it on takes one out, and then another number is in use.
            mine = not ended and may and not server_lease.owner.shown and server_lease.used == used
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
            if lease is not None:
                lease.released, server_lease.owner.watchers = True, None
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
        if used + 2 >= server_lease.options.block:
            disperse(engine, server_lease)
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
        and server_lease.valid_until - now >= (options.ticket_ttl or options.ttl) / 2
    )
