"""The outcome of a release that was sent more than once: done, too late, or not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.keep.server_check import must_remember
from pawlock.core.protocol.outcomes import NotRecorded, Outcome
from pawlock.core.protocol.primitive import TOMB_MS
from pawlock.core.state.records import loss_from
from pawlock.errors import BackendUnavailable
from pawlock.model import LossReason, Release

if TYPE_CHECKING:
    from pawlock.core.keep.engine import Engine
    from pawlock.core.state.records import ServerLease

__all__ = ["not_ours"]


async def not_ours(
    engine: Engine, server_lease: ServerLease, outcome: Outcome, *, unanswered: bool, again: bool
) -> Release:
    """The outcome of a release of which the server says that it holds nothing.

    Args:
        engine: The client's engine.
        server_lease: What was given back.
        outcome: What the server said.
        unanswered: Whether an earlier copy of the request got no answer.
        again: Whether an earlier copy was refused or got no answer.

    Raises:
        BackendUnavailable: It is not known.
    """
    # A finish leaves a tombstone, which a later copy would have found: so it was never carried out.
    certain = isinstance(outcome, NotRecorded)
    present: str = getattr(outcome, "present", "none")
    forced: bool | None = getattr(outcome, "forced", None)
    late = engine.runtime.now() >= server_lease.valid_until
    if certain or forced or not (unanswered or (again and late)):
        server_lease.reason = LossReason.TAKEN if forced else loss_from(outcome)
        engine.count_loss(server_lease)
        return Release.LOST
    if unanswered and late:
        return Release.UNKNOWN
    # An earlier copy may have freed it; or it ran out while the server refused to release it, and its owner was done in
    # time. Nobody else can take it before that, but an operator, or from a server that forgot.
    long_ago = late and engine.runtime.now() - server_lease.heard_at > TOMB_MS / 1000
    if present != "none" and (forced is None or long_ago):
        name = server_lease.primitive.name
        text = f"release {name!r}: it is no longer held, and may have been taken before the release"
        raise BackendUnavailable(text, name=name)
    if present != "none" or unanswered:
        await must_remember(engine, server_lease.primitive, server_lease.heard_at)
    return Release.RELEASED
