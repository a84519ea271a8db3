"""Who relies on what: the leases that owners hold by their own clocks, and which of them must not be held together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pawlock.primitives.permits import EXCLUSIVE, Permits

if TYPE_CHECKING:
    from pawlock.core.lease import HeldLease
    from tests.simulator.world import Process

__all__ = ["Belief", "conflict"]


class Belief(NamedTuple):
    """A lease that somebody relies on.

    Attributes:
        lease: The lease.
        process: Whose clock it follows.
    """

    lease: HeldLease
    process: Process

    def holds(self) -> bool:
        """Whether its owner relies on it now."""
        lease = self.lease
        hold = lease.hold
        return (
            not lease.released
            and hold.live
            and self.process.alive
            and self.process.clock.boot() < hold.valid_until
        )

    @property
    def mode(self) -> str:
        """How it is held at present: ``x`` alone, ``u`` or ``1`` as a reader, a number as so many permits."""
        primitive = self.lease.hold.primitive
        return primitive.mode if isinstance(primitive, Permits) else EXCLUSIVE

    @property
    def exclusive(self) -> bool:
        """Whether it excludes all others."""
        return self.mode == EXCLUSIVE


def conflict(belief: Belief, others: Sequence[Belief]) -> Iterator[str]:
    """What is wrong about a lease beside others that are relied on; nothing if all is well."""
    primitive = belief.lease.hold.primitive
    if isinstance(primitive, Permits) and primitive.permits:
        out = [int(one.mode) for one in (belief, *others)]
        if sum(out) > primitive.permits:
            yield f"permits: {sum(out)} of {primitive.permits} are out"
        return
    for other in others:
        if belief.exclusive or other.exclusive:
            yield "exclusion"
