"""How long a caller retries an unreachable server, what a fault becomes, and a holder that nothing ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pawl.core.protocol.backoff import full_jitter
from pawl.core.protocol.faults import passes, to_error
from pawl.core.protocol.runtime import Fault, FaultKind

if TYPE_CHECKING:
    from pawl.core.acquire.queue import Claim
    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.options import LockOptions
    from pawl.core.protocol.primitive import Primitive

__all__ = ["ENDLESS", "bear", "note_endless", "rest"]

log: logging.Logger = logging.getLogger("pawl.acquire")

_HOLDERS_CAP = 0.1
"""The longest pause, in seconds, between tries to release, extend or downgrade where the server is not ready."""

ENDLESS = "a key without a TTL, which never expires: delete it once its owner is gone"


async def rest(engine: Engine, seconds: float, name: str, doing: str) -> None:
    """Pause before another try.

    Raises:
        ClientClosed: The client was closed meanwhile.
    """
    try:
        await engine.runtime.sleep(seconds)
    except Fault as fault:
        raise to_error(fault, name, doing) from fault


def bear(
    engine: Engine,
    fault: Fault,
    options: LockOptions,
    claim: Claim,
    until: float | None,
    attempt: int,
    doing: str,
    name: str,
    *,
    holds: bool = False,
) -> float:
    """How long to pause before the next try after ``fault``.

    Args:
        engine: The client's engine.
        fault: What the last try met.
        options: The lock's options.
        claim: What is retried; it keeps since when it fails.
        until: When the caller's own time is over; None: never.
        attempt: How many tries failed before.
        doing: What is being done, for the error.
        name: The lock's name.
        holds: Whether the caller holds the lock, so that it alone asks, and soon again.

    Raises:
        PawlError: Another try cannot help, or the time for retries is over.
    """
    if fault.final or not passes(fault.kind):
        raise to_error(fault, name, doing) from fault
    now = engine.runtime.now()
    if claim.failing_since is None:
        claim.failing_since = now
    limit = claim.failing_since + options.unavailable_after
    if until is not None and until < limit:
        limit = until
    # The first failure is often a connection that died while idle: a new one serves at once.
    lost_link = fault.kind in (FaultKind.UNREACHABLE, FaultKind.UNANSWERED)
    # While slots move one after the other, the keys of one are together for moments only.
    cap = _HOLDERS_CAP if holds and fault.kind is FaultKind.NOT_READY else 1.0
    pause = 0.0 if attempt == 0 and lost_link else full_jitter(attempt, engine.runtime.random(), cap=cap)
    if now + pause >= limit:
        raise to_error(fault, name, doing) from fault
    log.debug(
        "%s %r: %s; retrying",
        doing,
        name,
        fault.kind,
        extra={"pawl_name": name, "pawl_fault": fault.kind},
    )
    return pause


def note_endless(engine: Engine, primitive: Primitive, claim: Claim) -> None:
    """Log once a holder that nothing ends: another program's key without a ttl, or one whose ttl was taken off."""
    if claim.holder_ms == -1 and not claim.endless:
        claim.endless = True
        engine.count("endless")
        name = primitive.name
        log.warning("%r is held by %s", name, ENDLESS, extra={"pawl_name": name})
