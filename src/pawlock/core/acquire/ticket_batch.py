"""Waiters of one client renew their tickets together.

Each ticket is a lease and must be renewed, three times in its life. Ten thousand waiters that ask one by one would send
ten thousand requests in a third of a ticket's life, and the server would have little time for anything else. So one
that asks takes along others that sleep here and wait for the same name: those whose turn it would be next. One script
raises their tickets and says of each where it stands (``beat.lua``).

Safety: of the others only the expiry of a ticket that stands is raised. One that is first in the queue by now, or no
longer in it (it was granted the name, and the message was lost; or it was dropped), is woken and asks by itself, as it
would have done without this. So does one that was taken along by a request that got no answer, half a rhythm later:
nobody is taken along again before that is settled. A waiter with a connection of its own uses it now and then,
so that it learns of one that is dead.

A client that dies renews nothing, and all of its tickets run out. A waiter that went away is not among those that
sleep; a copy of a request that comes late finds no ticket of it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, cast

from pawlock.core.protocol.outcomes import Outcome, Queued
from pawlock.core.protocol.runtime import DEAF
from pawlock.core.protocol.validity import valid_until

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.carrier import Request
    from pawlock.core.protocol.primitive import BeatingPrimitive, Primitive
    from pawlock.core.protocol.terms import Terms
    from pawlock.core.state.records import Waiter

__all__ = ["apply_reply", "batch_call", "begin_sleep", "keep_sleeping"]

TOGETHER = 100
"""So many tickets in one script: it stops the server for about half a millisecond."""

_SEARCHED = 500
"""Waiters that are checked, of all names: the one that went to sleep first comes first, and is due first."""

_IN_A_ROW = 30
"""How often a waiter with a connection of its own lets another renew its ticket: nothing else would keep the connection
in use, and notice that it is dead."""

_MORE = 1.2
"""Rhythms that a waiter sleeps whose ticket another renewed. That one asks again after one rhythm, and takes it along:
so only few wake up."""

_SOON = 0.001


def begin_sleep(engine: Engine, waiter: Waiter, end: float, until: float | None) -> None:
    """A waiter sleeps from now on, and would ask by itself at ``end``; others may renew its ticket if it is enlisted.

    Args:
        engine: The client's engine.
        waiter: The waiter.
        end: When it would ask.
        until: When its caller gives up; None never.
    """
    waiter.batch.channel = engine.runtime.channel()
    waiter.batch.unsettled, waiter.batch.in_a_row = False, 0
    # The head looks at the holder's end, and who hears nothing must ask in any case.
    waiter.batch.beat_at = end if waiter.rank and waiter.batch.channel not in ("", DEAF) else 0.0
    waiter.batch.latest = 0.0 if waiter.stop is not None else inf if until is None else until


def keep_sleeping(engine: Engine, waiter: Waiter, until: float | None) -> float:
    """Until when a waiter that woke up may go on sleeping, because others renewed its ticket; 0: it is to ask."""
    runtime = engine.runtime
    if not waiter.batch.beat_at or waiter.wait_error is not None or waiter.strict.server_lease is not None:
        return 0.0
    end = waiter.batch.beat_at if until is None else min(waiter.batch.beat_at, until)
    if runtime.channel() != waiter.batch.channel or end - runtime.now() < _SOON:
        return 0.0
    return end


def batch_call(
    engine: Engine, primitive: Primitive, options: Terms, waiter: Waiter, channel: str
) -> Request | None:
    """The question of a waiter that takes others along; None if there is nobody."""
    taken = _take_along(engine, waiter, options.ticket_ttl / 6)
    # Also of nobody: the question before this one may have been given up.
    waiter.batch.taken_along = taken
    if not taken:
        return None
    beating, others = cast("BeatingPrimitive", primitive), [token for token, _ in taken]
    return beating.beat(waiter.token, options.life_ms, options.ticket_ms, channel, others)


def _take_along(engine: Engine, waiter: Waiter, half: float) -> list[tuple[str, Waiter]]:
    batch_key, followers, runtime = waiter.batch.batch_key, engine.queues.followers, engine.runtime
    if not batch_key or not followers:
        return []
    found: list[tuple[str, Waiter]] = []
    due = runtime.now() + half
    # Other threads come meanwhile: a list of keys is made in one step, with nothing allocated that could set off the
    # garbage collection, and with it a finaliser, in between.
    near = list(followers)[:_SEARCHED]
    for token in near:
        other = followers.get(token)
        if (
            other is None
            or other.batch.batch_key != batch_key
            or not other.batch.beat_at
            or other.batch.unsettled
        ):
            continue
        apart = other.batch.channel != waiter.batch.channel
        if apart and other.batch.in_a_row >= _IN_A_ROW:
            continue
        with engine.guard:
            if token not in followers or followers[token] is not other or other.batch.unsettled:
                continue
            # It is due after all others now.
            del followers[token]
            followers[token] = other
            other.batch.in_a_row += apart
            other.batch.unsettled = True
            if other.batch.beat_at < due:  # noqa: PLR1730 - max() is a call
                other.batch.beat_at = due
        found.append((token, other))
        if len(found) == TOGETHER:
            break
    return found


def apply_reply(engine: Engine, waiter: Waiter, options: Terms, outcome: Outcome, sent_at: float) -> None:
    """Take into account what the answer to a waiter's question says of those that it took along."""
    taken, waiter.batch.taken_along = waiter.batch.taken_along, ()
    ranks = outcome.ranks if isinstance(outcome, Queued) else ()
    runtime, ticket_ms = engine.runtime, options.ticket_ms
    beat_at = sent_at + _MORE * ticket_ms / 3000
    pause = beat_at - runtime.now()
    until = valid_until(sent_at, ticket_ms, ticket_ms)
    followers = engine.queues.followers
    for index, (token, other) in enumerate(taken):
        rank = ranks[index] if ranks else None
        expires_ms = outcome.now_ms + ticket_ms if ranks else 0
        with engine.guard:
            # Who woke up asks by itself, and may stand for another token by now.
            if token not in followers or followers[token] is not other:
                continue
            batch, ticket = other.batch, other.ticket
            batch.unsettled = False
            if rank is None or ticket is None:
                continue
            ticket.rank = rank
            if rank <= 0:
                batch.beat_at = 0.0
            else:
                if ticket.valid_until < until:  # noqa: PLR1730 - max() is a call
                    ticket.valid_until = until
                if ticket.expires_ms < expires_ms:  # noqa: PLR1730 - max() is a call
                    ticket.expires_ms = expires_ms
                if batch.beat_at < beat_at:  # noqa: PLR1730 - max() is a call
                    batch.beat_at = beat_at
        if rank <= 0:
            other.strict.wake()
        elif beat_at <= batch.latest:
            runtime.extend_wait(token, pause)
