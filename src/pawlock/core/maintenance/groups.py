"""Which renewals go together in one script, and what its answer says of each.

All keys of a script must lie on one server, and in a cluster in one slot: there each lease is renewed by itself.
Whatever is more than raising a life also is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pawlock.core.protocol.carrier import Request
from pawlock.core.protocol.outcomes import Granted, Outcome
from pawlock.core.protocol.runtime import Fault, FaultKind
from pawlock.model import LeaseState

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.protocol.primitive import TogetherPrimitive
    from pawlock.core.state.records import ServerLease

__all__ = ["each_of", "may_share", "renewal_call", "share", "shared_call"]

_TOGETHER = 16
"""So many in one script: it stops the server for no longer than a few single ones do."""

_LEAST = 2

_OF_ALL = frozenset(
    {FaultKind.UNREACHABLE, FaultKind.UNANSWERED, FaultKind.NOT_READY, FaultKind.READ_ONLY, FaultKind.CLOSED}
)
"""Faults that say nothing of any one name."""


def may_share(engine: Engine) -> bool:
    """Whether several names may be keys of one script here."""
    return engine.reports.observer is None and not engine.background.several


def share(batch: Sequence[ServerLease]) -> tuple[list[list[ServerLease]], list[ServerLease]]:
    """Divide what is due into groups, each for one script, and the rest."""
    plain: list[ServerLease] = []
    rest: list[ServerLease] = []
    for server_lease in batch:
        options = server_lease.options
        if (
            getattr(server_lease.primitive, "renews_together", False)
            and server_lease.state is LeaseState.HELD
            and server_lease.rhythm is options.renewed
            and not options.replicas
        ):
            plain.append(server_lease)
        else:
            rest.append(server_lease)
    groups = [plain[at : at + _TOGETHER] for at in range(0, len(plain), _TOGETHER)]
    if groups and len(groups[-1]) < _LEAST:
        rest += groups.pop()
    return groups, rest


def shared_call(group: Sequence[ServerLease]) -> Request:
    """The call that renews a group."""
    first = cast("TogetherPrimitive", group[0].primitive)
    return first.renew_all(
        [(server_lease.primitive, server_lease.token, server_lease.options.ttl_ms) for server_lease in group]
    )


def each_of(group: Sequence[ServerLease], outcome: Outcome | Fault) -> list[Outcome | Fault | None]:
    """What the answer for a group says of each; None: it is to be asked for by itself."""
    if isinstance(outcome, Fault):
        return [outcome if outcome.kind in _OF_ALL else None] * len(group)
    return [Granted(0, left_ms, outcome.clock) if left_ms > 0 else None for left_ms in outcome.lefts_ms]


def renewal_call(server_lease: ServerLease) -> Request:
    """The call that renews one lease."""
    options = server_lease.options
    if server_lease.rhythm is options.renewed:
        return server_lease.primitive.renew(server_lease.token, options.ttl_ms, options.ticket_ms, "")
    # What is only to be confirmed is asked for one millisecond, which raises nothing.
    confirmed = server_lease.at_limit or not options.renew
    ttl_ms = 1 if confirmed else server_lease.rhythm.ttl_ms
    ticket_ms = min(options.ticket_ms, server_lease.rhythm.ttl_ms)
    return server_lease.primitive.renew(server_lease.token, ttl_ms, ticket_ms, "")
