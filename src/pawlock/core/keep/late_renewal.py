"""Renewing the leases of an event loop from a thread, while that loop is blocked.

Why that is safe:

1. Whoever renews sends the same script with the same token, which compares the token and only raises the expiry. Two
   renewals of one lease at the same time, in either order, do what one does; one that arrives behind the release finds
   another holder or nobody, and changes nothing.
2. Validity is counted from before this thread sent its question. It only rises, under the client's guard, and only
   while the lease is valid by the local clock: an answer that comes later revives nothing, nor does one that comes
   after ``max_hold``, which bounds what is written here as it bounds the loop.
3. A question without an answer leaves the lease suspect, with the end that it had. A no marks it lost at once, so that
   ``check`` raises in the very body that blocks the loop; all that belongs to the loop (cancelling the body, leaving
   the token, ``on_lost``) is done there as soon as it serves again.
4. Nothing is granted here: no ticket, no vote and no fence is asked for.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pawlock.core.keep.renewal_groups import renewal_call
from pawlock.core.keep.replicas import renew_with_replicas
from pawlock.core.keep.taken import loss_reasons
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.runtime import Fault

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.runtime import Runtime
    from pawlock.core.state.records import ServerLease

__all__ = ["Late", "look_for_late", "renew_late"]

_SHARE = 0.25
"""A renewal is late once this share of the time from when it was due to the end of validity has passed."""

_BATCH = 500
_ASKED_WITHIN = 0.5


class Late:
    """What a look at an engine found.

    Attributes:
        server_leases: The leases whose renewal is late, or due at all while the loop is known to be blocked.
        since: When the first of them was due; infinity without any.
        until: When to look again at the latest, if nobody wakes it.
    """

    __slots__ = ("server_leases", "since", "until")

    def __init__(self, server_leases: list[ServerLease], since: float, until: float) -> None:
        self.server_leases: list[ServerLease] = server_leases
        self.since: float = since
        self.until: float = until


def look_for_late(engine: Engine, *, blocked: bool) -> Late:
    """Find the leases that the loop should have renewed by now.

    Args:
        engine: The engine of the loop.
        blocked: Whether the loop is known to be blocked: then nothing is left for it to do.
    """
    now = engine.runtime.now()
    until, due = engine.leases.schedule.overdue(now)
    late: list[ServerLease] = []
    since = inf
    for server_lease, planned in due:
        if (
            not server_lease.options.given.renew
            or server_lease.is_dropped
            or now >= server_lease.valid_until
            or server_lease.owner.epoch != engine.epoch
            or server_lease.at_limit
        ):
            continue
        # What this thread renewed is not planned anew: that is the loop's.
        first = max(planned, server_lease.heard_at + server_lease.rhythm.every)
        late_at = first if blocked else first + (server_lease.valid_until - first) * _SHARE
        if late_at > now:
            until = min(until, late_at)
        elif len(late) < _BATCH:
            late.append(server_lease)
            since = min(since, first)
    return Late(late, since, until)


async def renew_late(engine: Engine, runtime: Runtime, late: list[ServerLease]) -> bool:
    """Renew leases over another runtime than the engine's.

    Returns:
        False if any of them got no answer, and is to be tried again soon.
    """
    sent_at = engine.runtime.now()
    left = min(server_lease.valid_until - sent_at for server_lease in late)
    patience = max(0.005, min(left / 2, *(server_lease.options.request_timeout for server_lease in late)))
    outcomes = await _ask(runtime, late, patience)
    refused: list[tuple[ServerLease, Outcome]] = []
    answered = True
    for server_lease, outcome in zip(late, outcomes, strict=True):
        if isinstance(outcome, Fault):
            answered = False
            if engine.runtime.now() < server_lease.valid_until:
                engine.suspect(server_lease)
        elif not isinstance(outcome, Granted):
            refused.append((server_lease, outcome))
        elif not engine.apply_renewals(
            [(server_lease, outcome.left_ms, server_lease.rhythm.ttl_ms)], sent_at
        ):
            engine.count("renewed")
            engine.count("renewed_by_thread")
    if refused:
        reasons = await loss_reasons(runtime, refused, _ASKED_WITHIN)
        for (server_lease, _), reason in zip(refused, reasons, strict=True):
            engine.lose(server_lease, reason, afar=True)
    return answered and not refused


async def _ask(runtime: Runtime, late: list[ServerLease], patience: float) -> list[Outcome | Fault]:
    calls = [renewal_call(server_lease) for server_lease in late]
    wanted = [one for one in late if one.options.replicas]
    plain = [call for call, one in zip(calls, late, strict=True) if not one.options.replicas]
    answers = iter(await runtime.call_many(plain, patience) if plain else ())
    waiting = [call for call, one in zip(calls, late, strict=True) if one.options.replicas]
    replicated = iter(await renew_with_replicas(runtime, wanted, waiting, patience))
    return [next(replicated if one.options.replicas else answers) for one in late]
