"""What is left to be sent: undo or release of a token, in the background, until each master answered."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from pawl.core.acquire.queue import TOMB_MS
from pawl.core.protocol.quorum import spread
from pawl.core.quorum.votes import Duty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pawl.core.keep.engine import Engine
    from pawl.core.protocol.primitive import Primitive
    from pawl.core.protocol.quorum import QuorumRuntime
    from pawl.core.protocol.runtime import Call

__all__ = ["DEPARTURE_FOR", "duty_of", "post_to_all"]

DEPARTURE_FOR = 60.0
"""Seconds for which a token is tried to be left, at least."""


def duty_of(engine: Engine, primitive: Primitive, token: str, calls: Sequence[Call | None] = ()) -> Duty:
    """What must be sent to several masters about a token, until each has answered.

    Args:
        engine: The client's engine.
        primitive: What the token is of.
        token: The token.
        calls: What is sent to each first; none: nothing has to be sent yet.
    """
    nodes = cast("QuorumRuntime", engine.runtime).nodes
    again = partial(primitive.leave, token, TOMB_MS, 0)
    return Duty(calls or [None] * len(nodes), again, partial(_owe, engine))


def _owe(engine: Engine, duty: Duty) -> None:
    """A master did not answer: ask it again in the background."""
    if duty.posted:
        return
    duty.posted = True
    now = engine.runtime.now()
    most = 0.0 if engine.quorum is None else engine.quorum.max_ttl
    duty.until, duty.due, duty.attempt = now + max(DEPARTURE_FOR, most), now, 0
    engine.departures[duty] = None
    if not engine.closed or engine.upkeep_runs:
        engine.wake_upkeep()


def post_to_all(engine: Engine, call: Call) -> None:
    """Send to all masters: at once where a connection lives, and again until each has answered."""
    nodes = cast("QuorumRuntime", engine.runtime)
    calls = spread(call, len(nodes.nodes))
    duty = Duty(calls, lambda: call, partial(_owe, engine))
    _owe(engine, duty)
    nodes.send(calls, duty)
