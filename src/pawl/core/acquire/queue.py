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
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pawl.core.acquire.ticket_batch import beat_call, learn, lie_down, sleeps_on
from pawl.core.keep.replicas import ask_durably
from pawl.core.protocol.faults import to_error
from pawl.core.protocol.runtime import DEAF, Call, Fault, FaultKind, Reply, Wakeup
from pawl.core.protocol.validity import valid_until
from pawl.core.retry import ENDLESS, bear, note_endless, rest
from pawl.core.state.strict_handover import enlist, resign
from pawl.errors import ClockDrift, NotAcquired, PawlError, QueueFull, ScriptError
from pawl.model import Grant

if TYPE_CHECKING:
    from weakref import ref

    from pawl.core.keep.engine import Engine
    from pawl.core.lease.base import BaseLease
    from pawl.core.protocol.options import LockOptions
    from pawl.core.protocol.primitive import Primitive
    from pawl.core.quorum.ballot import Granted
    from pawl.core.state.records import Tenure

__all__ = [
    "ENDLESS",
    "STOP_POLL",
    "TOMB_MS",
    "Asker",
    "Claim",
    "StopSignal",
    "ask_once",
    "check_stop",
    "patience",
    "read_answer",
    "win",
]

log: logging.Logger = logging.getLogger("pawl.acquire")

TOMB_MS = 60_000
"""Life of a tombstone in ms: how late a copy of a request may arrive and still find its token dead."""

_DRIFTED_TRIES = 3
_FOREIGN_POLL = 0.05
_LEAST_BUDGET = 0.02
_PLAIN_HELD = 5

STOP_POLL = 0.05
"""Seconds within which a waiter notices that it was asked to stop."""


class StopSignal(Protocol):
    """An event, of threading or asyncio: set, it ends a wait."""

    def is_set(self) -> bool:
        """True once the wait is to end."""
        ...


_DEAF_POLL = 0.05


Asker: TypeAlias = Callable[[Call, float], Awaitable[tuple[Reply, float]]]
"""Sends a question with a budget of seconds: its reply, and when it was sent. Raises ``Fault``."""


_KEPT = (
    *("old", "old_unanswered", "failing_since", "holder", "stop", "met", "asker", "spot"),
    *("old_votes", "turn", "spoken", "kin"),
)


class Claim:
    """A token that wants a name.

    Attributes:
        token: The server token; a new one after each restart.
        old: A token of this client that holds the name and is to be left in the same script, or None.
        old_votes: How several masters voted for ``old``; None with one.
        sent: True once anything was sent for the token.
        unanswered: True once a request of the token got no reply: its leave then needs a tombstone.
        answer: A reply that is still to be read, and when its question was sent.
        busy: True once the server said that somebody else holds the name, and nothing was queued.
        fresh: True if the server's last answer is still to be acted on.
        queued: True while the server knows the token as a waiter.
        stop: Ends the wait once it is set, or None.
        channel: On which the one that waits with it hears hand-offs.
        alarm: Ends the wait with this error, or None.
        failing_since: Since when the server gives no answer, or None.
        met: True if somebody of the same client was in the way.
        asker: How its questions are sent; None: by the runtime, and nothing beside them.
        told: True once a hand-off message came.
        spot: Which claims may serve each other in a run (see ``strict_handover``); ``""``: none.
        kin: Which claims may speak for each other (see ``ticket_batch``); ``""``: none.
        beat_at: Until when it need not ask by itself, while it sleeps; 0: nobody may speak for it.
        latest: Until when it may sleep on without looking around.
        unsettled: True while a question that took it along is not answered.
        in_a_row: How often others spoke for it since it asked by itself.
        company: Whom its present question takes along.
        behind: Who stands directly behind it, once it was served.
        ring: Ends its sleep, while a run may serve it.
        tenure: What a run served it with; it must be owned or passed on.
        number: Which of the tenure's owners it is.
        fence: The fence that came with that.
        lease: What it will hold, made beforehand; or None.
        asleep: The key that it wants, while it sleeps with its answer unread (see ``strict_handover``); else ``""``.
        turn: Which turn of the local queue it speaks in.
        spoken: True once its caller asks for it, and then gives it back by itself if that fails.
    """

    # As attributes of the class, so that an uncontended acquisition sets only what differs.
    old: str | None = None
    old_unanswered: bool = False
    old_votes: Granted | None = None
    failing_since: float | None = None
    holder: str | None = None
    outcomes: dict[str, str] | None = None
    stop: StopSignal | None = None
    channel: str = ""
    alarm: PawlError | None = None
    answer: tuple[Reply, float] | None = None
    busy: bool = False
    fresh: bool = False
    drifted: int = 0
    sent: bool = False
    unanswered: bool = False
    queued: bool = False
    expires_ms: int = 0
    valid_until: float = 0.0
    rank: int | None = None
    holder_ms: int = -1
    foreign: bool = False
    endless: bool = False
    met: bool = False
    asker: Asker | None = None
    told: bool = False
    spot: str = ""
    kin: str = ""
    beat_at: float = 0.0
    latest: float = 0.0
    unsettled: bool = False
    in_a_row: int = 0
    company: Sequence[tuple[str, Claim]] = ()
    behind: tuple[str, ...] = ()
    tenure: Tenure | None = None
    number: int = 0
    fence: int = 0
    lease: ref[BaseLease] | None = None
    asleep: str = ""
    ring: Callable[[], object]
    turn: int = 0
    spoken: bool = False

    @property
    def contended(self) -> bool:
        """Whether anybody was seen to be in the way."""
        return self.met or self.rank is not None or self.holder is not None

    def __init__(self, token: str, old: str | None = None, *, old_unanswered: bool = False) -> None:
        self.token: str = token
        if old is not None:
            self.old = old
            self.old_unanswered = old_unanswered

    def restart(self, token: str) -> None:
        """Begin anew with a fresh token; only what concerns the wait as a whole is kept, and who is shown to wait."""
        secret, _, _ = token.partition("@")
        _, at, shown = self.token.partition("@")
        if at:
            token = f"{secret}@{shown}"
        kept = {name: getattr(self, name) for name in _KEPT}
        self.__dict__.clear()
        self.__dict__.update(kept, token=token)

    def heir(self) -> Claim:
        """The same claim for the next speaker; what the speaker of before has of it stays as it is."""
        heir = Claim(self.token)
        heir.__dict__.update(self.__dict__, spoken=False)
        return heir

    def doubt(self, error: BaseException) -> None:
        """What was sent last may still be on its way if ``error`` is no word of the server, but a cancel or Ctrl-C."""
        if not isinstance(error, PawlError):
            self.unanswered |= self.sent
            self.old_unanswered |= self.sent


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


def patience(now: float, options: LockOptions, until: float | None) -> float:
    """How long one question may wait for its answer, in seconds: no longer than the caller wants to wait in all."""
    if until is None:
        return options.request_timeout
    return min(options.request_timeout, max(_LEAST_BUDGET, until - now))


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


def check_stop(stop: StopSignal | None, name: str) -> None:
    """End a wait whose caller was asked to stop."""
    if stop is not None and stop.is_set():
        raise NotAcquired(f"acquire {name!r}: stopped while waiting", name=name)


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
