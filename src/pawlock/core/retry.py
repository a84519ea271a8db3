"""How long a caller retries an unreachable server, waits for one answer, and notices that it is to stop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pawlock.core.faults import is_transient, to_error
from pawlock.core.local_queue import Retry
from pawlock.core.outcomes import Outcome
from pawlock.core.runtime import Fault, FaultKind, Request
from pawlock.errors import NotAcquired

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.local_queue import Waiter
    from pawlock.core.options import LockOptions
    from pawlock.core.primitive import Primitive
    from pawlock.core.runtime import StopSignal

__all__ = [
    "ENDLESS",
    "NO_SIGN_WITHIN",
    "STOP_POLL",
    "check_stop",
    "explained",
    "full_jitter",
    "note_endless",
    "note_failure",
    "patience",
    "pause_after",
    "query",
    "rest",
]


def full_jitter(attempt: int, random: float, *, base: float = 0.02, cap: float = 1.0) -> float:
    """The pause before try number ``attempt`` + 1, in seconds.

    Full jitter (a uniform draw below the exponential bound) spreads clients best after a common failure; see
    "Exponential Backoff And Jitter" in the AWS Architecture Blog.

    Args:
        attempt: How many tries failed so far, from 0.
        random: A number in [0, 1).
        base: The bound of the first pause, in seconds.
        cap: The largest bound, in seconds: a server that is back is noticed within this time.
    """
    bound = min(cap, base * (1 << min(attempt, 16)))
    return bound * random


log: logging.Logger = logging.getLogger("pawlock.acquire")

_HOLDERS_CAP = 0.1
"""The longest pause, in seconds, between tries to release, extend or downgrade where the server is not ready."""

ENDLESS = "a key without a TTL, which never expires: delete it once its owner is gone"

STOP_POLL = 0.05
"""Seconds within which a waiter notices that it was asked to stop."""

NO_SIGN_WITHIN = 0.1
"""Seconds: a connection that breaks sooner, or a caller that has no more, is no sign that the server is down."""

_LEAST_BUDGET = 0.02
_LOOK_WITHIN = 0.5


async def rest(engine: Engine, seconds: float, name: str, doing: str) -> None:
    """Pause before another try.

    Raises:
        ClientClosed: The client was closed meanwhile.
    """
    try:
        await engine.runtime.sleep(seconds)
    except Fault as fault:
        raise to_error(fault, name, doing) from fault


def note_failure(engine: Engine, fault: Fault, sent_at: float, until: float | None = None) -> float:
    """Since when the server has given no answer, now that a try of ``sent_at`` got none either.

    Args:
        engine: The client's engine.
        fault: What it met.
        sent_at: When it began.
        until: When its caller's own time is over; None: never.
    """
    now = engine.runtime.now()
    broke = fault.kind is FaultKind.UNANSWERED and now - sent_at < NO_SIGN_WITHIN
    impatient = until is not None and until - sent_at < engine.within(NO_SIGN_WITHIN)
    # Else it says nothing about the server.
    return now if broke or impatient else engine.health.failed(sent_at, now)


def pause_after(
    engine: Engine,
    fault: Fault,
    retry: Retry,
    options: LockOptions,
    until: float | None,
    doing: str,
    name: str,
    sent_at: float,
) -> float:
    """How long to pause before the next try after ``fault``.

    Args:
        engine: The client's engine.
        fault: What the last try met.
        retry: What failed before; this try is added.
        options: The lock's options.
        until: When the caller's own time is over; None: never.
        doing: What is being done, for the error.
        name: The lock's name.
        sent_at: When the last try began.

    Raises:
        PawlockError: Another try cannot help, or the time for retries is over.
    """
    if fault.final or not is_transient(fault.kind):
        raise to_error(fault, name, doing) from fault
    now, attempt = engine.runtime.now(), retry.attempt
    retry.attempt += 1
    # A holder has its own time; a waiter shares the client's, so that a server that is down costs it one try.
    down_since = now if retry.holds else note_failure(engine, fault, sent_at, until)
    retry.since = down_since if retry.since is None else min(retry.since, down_since)
    limit = retry.since + options.unavailable_after
    if until is not None and until < limit:
        limit = until
    # The first failure is often a connection that died while idle: a new one serves at once.
    lost_link = fault.kind in (FaultKind.UNREACHABLE, FaultKind.UNANSWERED)
    # While slots move one after the other, the keys of one are together for moments only.
    cap = _HOLDERS_CAP if retry.holds and fault.kind is FaultKind.NOT_READY else 1.0
    pause = 0.0 if attempt == 0 and lost_link else full_jitter(attempt, engine.runtime.random(), cap=cap)
    # However long the server has been down: what broke at once may have been this one connection.
    at_once = attempt == 0 and lost_link and now - sent_at < NO_SIGN_WITHIN and (until is None or now < until)
    if now + pause >= limit and not at_once:
        if fault.kind is not FaultKind.READ_ONLY:
            engine.report_outage(str(to_error(fault, name, doing)))
        raise to_error(fault, name, doing) from fault
    more = {"pawlock_name": name, "pawlock_fault": fault.kind}
    log.debug("%s %r: %s; retrying", doing, name, fault.kind, extra=more)
    fault.without_traceback()
    return pause


def note_endless(engine: Engine, primitive: Primitive, waiter: Waiter) -> None:
    """Log once a holder that nothing ends: another program's key without a ttl, or one whose ttl was taken off."""
    if waiter.holder_ms == -1 and not waiter.endless:
        waiter.endless = True
        engine.count("endless")
        name = primitive.name
        log.warning("%r is held by %s", name, ENDLESS, extra={"pawlock_name": name})


def patience(now: float, most: float, until: float | None) -> float:
    """How long one question may wait, if it may for ``most`` seconds: no longer than the caller wants to wait in all."""
    return most if until is None else min(most, max(_LEAST_BUDGET, until - now))


def check_stop(stop: StopSignal | None, name: str) -> None:
    """End a wait whose caller was asked to stop."""
    if stop is not None and stop.is_set():
        raise NotAcquired(f"acquire {name!r}: stopped while waiting", name=name)


async def explained(engine: Engine, call: Request, fault: Fault) -> Fault:
    """The fault of a call; of a key with a value that is not pawlock's, with what that is."""
    if fault.kind is not FaultKind.WRONG_KEY or engine.health.explain_keys is None:
        return fault
    for look, words_for in engine.health.explain_keys(call):
        (outcome,) = await engine.runtime.call_many([look], engine.within(_LOOK_WITHIN))
        text = "" if isinstance(outcome, Fault) else words_for(outcome)
        if text:
            return Fault(FaultKind.WRONG_KEY, text, final=fault.final)
    return fault


async def query(
    engine: Engine, call: Request, options: LockOptions, name: str, doing: str
) -> tuple[Outcome, float]:
    """Run an idempotent call, again after transient faults, for at most ``unavailable_after``.

    Returns:
        The reply, and when its request was sent.
    """
    runtime, retry = engine.runtime, Retry()
    while True:
        sent_at = runtime.now()
        try:
            outcome = await runtime.call(call, options.answer_within)
        except Fault as fault:
            why = await explained(engine, call, fault)
            pause = pause_after(engine, why, retry, options, None, doing, name, sent_at)
        else:
            engine.note_answer()
            return outcome, sent_at
        await rest(engine, pause, name, doing)
