"""Why leases were lost that the server does not know any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.state.records import loss_from
from pawlock.model import LossReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawlock.core.protocol.outcomes import Outcome
    from pawlock.core.protocol.runtime import Runtime
    from pawlock.core.state.records import ServerLease

__all__ = ["loss_reasons"]


async def loss_reasons(
    runtime: Runtime, refused: Sequence[tuple[ServerLease, Outcome]], patience: float
) -> list[LossReason]:
    """The reason for each lease whose renewal was refused: an operator leaves a mark that leaving the token finds."""
    reasons = [loss_from(outcome) for _, outcome in refused]
    calls = [server_lease.primitive.leave(server_lease.token, TOMB_MS, 0) for server_lease, _ in refused]
    for index, outcome in enumerate(await runtime.call_many(calls, patience)):
        if getattr(outcome, "forced", False):
            reasons[index] = LossReason.TAKEN
    return reasons
