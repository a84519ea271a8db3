"""What a waiter is told whose time is up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pawl.core.claim import ENDLESS
from pawl.core.runtime import Fault
from pawl.errors import AcquireTimeout

if TYPE_CHECKING:
    from pawl.core.claim import Claim
    from pawl.core.engine import Engine
    from pawl.core.operations import Plan

__all__ = ["timed_out"]

log: logging.Logger = logging.getLogger("pawl.acquire")

_HOLDER_PATIENCE = 0.1


async def timed_out(engine: Engine, plan: Plan, began: float, claim: Claim | None) -> AcquireTimeout:
    """The error of who waited in vain since ``began``, with who holds it and the place in the queue."""
    holder = claim.holder if claim is not None else None
    waited = engine.runtime.now() - began
    if holder is None:
        # Asked only now, when somebody wants to know: a waiter is told of its place, not of the holder.
        try:
            reply = await engine.runtime.call(
                plan.primitive.inspect(0), min(_HOLDER_PATIENCE, plan.options.request_timeout)
            )
            holder = reply[2].decode(errors="replace") or None
        except Fault as fault:
            log.debug("the holder of %r could not be asked for: %s", plan.primitive.name, fault.text)
    engine.count("timeouts")
    name = plan.primitive.name
    text = f"acquire {name!r}: still held after {waited:.3g} s" + (f" by {holder}" if holder else "")
    if claim is not None and claim.endless:
        text += f"{',' if holder else ' by'} {ENDLESS}"
    return AcquireTimeout(
        text,
        name=name,
        holder=holder,
        waited=waited,
        position=claim.rank if claim is not None else None,
        outcomes=claim.outcomes if claim is not None else None,
    )
