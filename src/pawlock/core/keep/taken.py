"""What an operator took away from its holders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pawlock.core.protocol.outcomes import Tags
from pawlock.core.protocol.runtime import Runtime

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine

__all__ = ["tags_taken"]


async def tags_taken(engine: Engine, runtime: Runtime, patience: float) -> Sequence[str]:
    """Which grants an operator took away: to a renewal they look like any that the server does not know."""
    if engine.reports.publisher is None:
        return ()
    (outcome,) = await runtime.call_many([engine.reports.publisher.setup.calls.taken()], patience)
    return outcome.tags if isinstance(outcome, Tags) else ()
