"""A token on its way to a grant: ask, queue, wait, ask again.

Rules (each guards against an interleaving that was seen to break a lock):

1. A resend carries the same token; the scripts answer it alike.
2. ``valid_until`` of a waiting token is counted from the send of the last answered request, with the ticket's life.
3. A hand-off message counts as HELD only if its expiry is not below that of the last QUEUED reply; otherwise it is a
   hint: ask.
4. A token that the server no longer knows is replaced by a new one; the old one is left behind with a tombstone.
5. Once a leave was sent for a token, no later reply or message for it counts: its claim is gone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pawl.core.acquire.ticket_batch import beat_call, learn, lie_down, sleeps_on
from pawl.core.keep.replicas import ask_durably
from pawl.core.protocol.faults import to_error
from pawl.core.protocol.primitive import TOMB_MS
from pawl.core.protocol.runtime import DEAF, Call, Fault, FaultKind, Reply, Wakeup
from pawl.core.protocol.validity import valid_until
from pawl.core.retry import ENDLESS, STOP_POLL, bear, check_stop, note_endless, patience, rest
from pawl.core.state.strict_handover import enlist, resign
from pawl.errors import ClockDrift, QueueFull, ScriptError
from pawl.model import Grant

if TYPE_CHECKING:
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.options import LockOptions
    from pawl.core.protocol.primitive import Primitive
    from pawl.core.state.records import Claim

__all__ = ["ENDLESS", "ask_once", "read_answer", "win"]

log: logging.Logger = logging.getLogger("pawl.acquire")


_DRIFTED_TRIES = 3
_FOREIGN_POLL = 0.05
_PLAIN_HELD = 5


_DEAF_POLL = 0.05


async def win(
    engine: Engine,
    primitive: Primitive,
    options: LockOptions,
    claim: Claim,
    until: float | None,
    *,
    wait: bool,
) -> Grant | None:
    """Drive a claim to its grant.

    Args:
        engine: The client's engine.
        primitive: What to send.
        options: The lock's options.
        claim: The claim, with ``busy`` False; on None or an error the caller must pass it on or leave it.
        until: When to give up, on the runtime's clock; None never.
        wait: False to try once and not queue.

    Returns:
        The grant, or None if somebody else holds the name and the time is up.
    """
    while True:
        if not claim.fresh:
            reply, sent_at = await _ask(engine, primitive, options, claim, until, wait=wait)
            grant = _read(engine, primitive, options, claim, reply, sent_at)
            if grant is not None:
                return grant
        claim.fresh = False
        if claim.busy:
            return None
        if claim.alarm is not None:
            raise claim.alarm
        if claim.queued:
            grant = await _listen(engine, options, claim, until, primitive.name)
            if grant is not None:
                return grant
            if until is not None and engine.runtime.now() >= until:
                return None


def _next_call(
    engine: Engine, primitive: Primitive, options: LockOptions, claim: Claim, *, wait: bool
) -> Call:
    channel = engine.runtime.channel()
    if claim.queued or claim.drifted:
        if claim.kin and not claim.drifted:
            call = beat_call(engine, primitive, options, claim, channel)
            if call is not None:
                return call
        return primitive.renew(claim.token, options.life_ms, options.ticket_ms, channel)
    if claim.old is not None:
        tomb_ms = TOMB_MS if claim.old_unanswered else 0
        return primitive.swap(
            claim.old, tomb_ms, claim.token, options.life_ms, options.ticket_ms,
            block=options.block, channel=channel, max_waiters=options.max_waiters,
        )  # fmt: skip
    return primitive.acquire(
        claim.token, options.life_ms, options.ticket_ms,
        wait=wait, block=options.block, channel=channel, max_waiters=options.max_waiters,
    )  # fmt: skip


async def ask_once(
    engine: Engine,
    primitive: Primitive,
    options: LockOptions,
    claim: Claim,
    until: float | None,
    *,
    wait: bool,
) -> Grant | None:
    """The first question of a claim, without what only a second one needs: an uncontended lock pays for no more.

    Returns:
        The grant, or None: ``win`` goes on, from ``claim.fresh`` knowing whether there was an answer.
    """
    runtime = engine.runtime
    channel = runtime.channel()
    if not channel or options.durable is not None:
        return None
    claim.sent = True
    sent_at = runtime.now()
    try:
        call = primitive.acquire(
            claim.token, options.life_ms, options.ticket_ms,
            wait=wait, block=options.block, channel=channel, max_waiters=options.max_waiters,
        )  # fmt: skip
        reply = await runtime.call(call, patience(sent_at, options, until))
    except Fault as fault:
        claim.unanswered |= fault.maybe_applied
        return None
    if reply[0] == b"H" and len(reply) == _PLAIN_HELD:
        valid = valid_until(sent_at, reply[3] - options.delay_ms, options.ttl_ms)
        if valid > runtime.now():
            return Grant(reply[2], valid, confirmed=True)
    claim.fresh = True
    return _read(engine, primitive, options, claim, reply, sent_at)


def read_answer(engine: Engine, primitive: Primitive, options: LockOptions, claim: Claim) -> Grant | None:
    """Read the answer that a claim brings along; ``win`` goes on from there if it is no grant."""
    if claim.answer is None:
        return None
    (reply, sent_at), claim.answer = claim.answer, None
    claim.fresh = True
    return _read(engine, primitive, options, claim, reply, sent_at)


async def _ask(
    engine: Engine,
    primitive: Primitive,
    options: LockOptions,
    claim: Claim,
    until: float | None,
    *,
    wait: bool,
) -> tuple[Reply, float]:
    runtime = engine.runtime
    attempt = 0
    while True:
        budget = patience(runtime.now(), options, until)
        try:
            if not runtime.channel():
                await runtime.ready(budget)
            call = _next_call(engine, primitive, options, claim, wait=wait)
            claim.sent = True
            sent_at = runtime.now()
            if claim.asker is not None:
                reply, sent_at = await claim.asker(call, budget)
            elif options.durable is None:
                reply = await runtime.call(call, budget)
            else:
                reply = await ask_durably(engine, primitive, options, claim, call, budget)
        except Fault as fault:
            claim.unanswered |= fault.maybe_applied
            claim.old_unanswered |= fault.maybe_applied
            # Types are looked at before anything is written: there is nothing to take back.
            claim.sent &= fault.kind is not FaultKind.WRONG_KEY or claim.unanswered or claim.queued
            pause = bear(
                engine, fault, options, claim, until, attempt, f"acquire {primitive.kind}", primitive.name
            )
        else:
            claim.failing_since = None
            if claim.company:
                learn(engine, claim, options, reply, sent_at)
            return reply, sent_at
        await rest(engine, pause, primitive.name, "acquire")
        attempt += 1


def _read(
    engine: Engine, primitive: Primitive, options: LockOptions, claim: Claim, reply: Reply, sent_at: float
) -> Grant | None:
    status = reply[0]
    if status == b"H":
        return _held(engine, primitive, options, claim, reply, sent_at)
    if status == b"Q":
        claim.old = None
        if engine.observer is not None and not claim.queued:
            engine.observer.queued(primitive, reply[2])
        claim.queued = True
        claim.rank, claim.holder_ms, claim.expires_ms, claim.foreign = *reply[2:5], bool(reply[6])
        note_endless(engine, primitive, claim)
        ticket_ms = options.ticket_ms
        claim.valid_until = valid_until(sent_at, ticket_ms, ticket_ms)
        return None
    if status == b"B":
        claim.busy = True
        claim.holder_ms, claim.foreign = reply[2], bool(reply[3])
        claim.holder = reply[4].decode(errors="replace") or None
        note_endless(engine, primitive, claim)
        return None
    if status == b"F":
        text = f"acquire {primitive.name!r}: {reply[2]} waiters in the queue, and max_waiters is {options.max_waiters}"
        raise QueueFull(text, name=primitive.name)
    if status in (b"U", b"X"):
        # The ticket lapsed, or the server lost it: a new token at the tail. The old one must never be granted.
        log.info(
            "ticket of %r was dropped, queueing again", primitive.name, extra={"pawl_name": primitive.name}
        )
        engine.count("requeued")
        engine.depart(primitive, claim.token, TOMB_MS if claim.unanswered else 0)
        claim.restart(engine.runtime.new_token())
        return None
    refusal = primitive.refusal(reply)
    if refusal is not None:
        # It stands for nothing on the server.
        claim.sent = claim.unanswered
        raise refusal
    raise ScriptError(f"acquire {primitive.name!r}: a reply that is not from a pawl script: {reply!r:.100}")


def _held(
    engine: Engine, primitive: Primitive, options: LockOptions, claim: Claim, reply: Reply, sent_at: float
) -> Grant | None:
    claim.old = None
    found = reply[3] <= options.ticket_ms or (claim.unanswered and not options.renew)
    if reply[2] <= 0:
        # The grant was made unseen, and its fence went with the server's fence key: nobody may own it.
        engine.depart(primitive, claim.token, TOMB_MS)
        claim.restart(engine.runtime.new_token())
        return None
    if found and reply[3] < options.life_ms and not claim.drifted:
        # An earlier copy was granted, and lives as its ticket, or since then with nobody to renew it: raise it once.
        claim.drifted = 1
        return None
    valid = valid_until(sent_at, reply[3] - options.delay_ms, options.ttl_ms)
    if valid > engine.runtime.now():
        # Permits say in which mode they are held there.
        holds = reply[5] if len(reply) > _PLAIN_HELD and isinstance(reply[5], int) else 1
        return Grant(reply[2], valid, True, holds)
    claim.drifted += 1
    if claim.drifted > _DRIFTED_TRIES:
        told = f"{claim.drifted} grants in a row had expired when they arrived"
        raise ClockDrift(f"acquire {primitive.name!r}: {told}", name=primitive.name)
    return None


async def _listen(
    engine: Engine, options: LockOptions, claim: Claim, until: float | None, name: str
) -> Grant | None:
    lined = enlist(engine, claim)
    try:
        grant = await _hear(engine, options, claim, until, name, lined=lined)
    finally:
        if lined:
            resign(engine, claim)
    tenure = claim.tenure
    return grant if tenure is None else Grant(claim.fence, tenure.valid_until, confirmed=True)


async def _hear(
    engine: Engine, options: LockOptions, claim: Claim, until: float | None, name: str, *, lined: bool
) -> Grant | None:
    runtime = engine.runtime
    timeout = _patience(engine, options, claim)
    if until is not None:
        timeout = min(timeout, max(0.0, until - runtime.now()))
    end = runtime.now() + timeout
    if lined:
        lie_down(engine, claim, end, until)
    while True:
        left = end - runtime.now()
        pause = max(0.0, left if claim.stop is None else min(left, STOP_POLL))
        try:
            wakeup = await runtime.wait_wakeup(claim.token, pause)
        except Fault as fault:
            raise to_error(fault, name, "acquire") from fault
        if wakeup is not None:
            claim.told = True
            return _check(engine, options, claim, wakeup)
        check_stop(claim.stop, name)
        if claim.tenure is not None:
            return None
        if claim.stop is None or left <= STOP_POLL or runtime.channel() == "":
            end = sleeps_on(engine, claim, until) if lined else 0.0
            if not end:
                return None
        if lined:
            # It rings for one sleep.
            runtime.bell(claim.token)


def _check(engine: Engine, options: LockOptions, claim: Claim, wakeup: Wakeup) -> Grant | None:
    if wakeup.expires_ms < claim.expires_ms:
        return None
    margin = (options.ticket_ttl or options.ttl) / 4
    if claim.valid_until <= engine.runtime.now() + margin:
        return None
    claim.behind = wakeup.behind
    # Asking now raises the ticket's short life to the ttl, which without renewal nobody else would.
    return Grant(wakeup.fence, claim.valid_until, False) if not options.confirms else None


def _patience(engine: Engine, options: LockOptions, claim: Claim) -> float:
    """How long to listen before asking: a third of the ticket; the head also wakes when the holder's lease ends."""
    timeout = (options.ticket_ttl or options.ttl) / 3
    if claim.rank == 0 and claim.foreign:
        timeout = min(timeout, _FOREIGN_POLL * (1 + engine.runtime.random()))
    elif claim.rank == 0 and claim.holder_ms >= 0:
        timeout = min(timeout, (claim.holder_ms + 1) / 1000)
    if engine.runtime.channel() == DEAF:
        timeout = min(timeout, _DEAF_POLL * (1 + engine.runtime.random()))
    return timeout
