"""What the steps of a lock need of its options: worked out once, when the lock is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from pawlock.core.protocol.options import FENCE_MS, LockOptions
from pawlock.core.protocol.validity import to_ms

__all__ = ["Rhythm", "Terms"]


class Rhythm(NamedTuple):
    """When a lease is renewed, and for how long; of a lease that was extended it is another than its lock's."""

    ttl: float
    """Seconds asked for at each renewal."""
    every: float
    """Seconds between renewals."""
    hold_limit: float | None = None
    """When ``max_hold`` ends it, or None."""

    @property
    def ttl_ms(self) -> int:
        """The ttl in whole milliseconds."""
        return to_ms(self.ttl)


@dataclass(frozen=True, slots=True)
class Terms:
    """The options of a lock as its steps read them.

    What nearly every acquisition reads stands here, each value found at once; what is read where something has gone
    wrong is left in ``given``.

    Args:
        given: What the user gave, checked.
        fence_ms: How long the server keeps a fence after its last use: the client's ``fence_ttl``.

    Attributes:
        timeout, max_waiters, max_hold, min_hold, handover, ticket_ttl: As the user gave them.
        ttl_ms: The ttl in whole milliseconds.
        ticket_ms: The life of a ticket in whole milliseconds.
        request_timeout: Seconds that one question may take.
        rhythm: When a lease is renewed.
        renewed: The same of a lease whose renewals are plain: it is renewed, with the lock's own ttl, and without an
            end; else None.
        block: How many fences a grant reserves.
        replicas: How many replicas must have a write before it counts.
        queue_group: All that must be the same for one waiter to go on for another; text, because its hash is worked out
            once.
    """

    given: LockOptions
    fence_ms: int = FENCE_MS
    timeout: float | None = field(init=False, repr=False, compare=False)
    max_waiters: int = field(init=False, repr=False, compare=False)
    max_hold: float | None = field(init=False, repr=False, compare=False)
    min_hold: float = field(init=False, repr=False, compare=False)
    handover: int = field(init=False, repr=False, compare=False)
    ticket_ttl: float = field(init=False, repr=False, compare=False)
    ttl_ms: int = field(init=False, repr=False, compare=False)
    ticket_ms: int = field(init=False, repr=False, compare=False)
    request_timeout: float = field(init=False, repr=False, compare=False)
    rhythm: Rhythm = field(init=False, repr=False, compare=False)
    renewed: Rhythm | None = field(init=False, repr=False, compare=False)
    block: int = field(init=False, repr=False, compare=False)
    replicas: int = field(init=False, repr=False, compare=False)
    queue_group: str = field(init=False, repr=False, compare=False)

    hand_over_for: ClassVar[float] = 0.02
    """Seconds that a run of local grants may last, so that other clients wait no longer than that."""

    def __post_init__(self) -> None:
        put, given = object.__setattr__, self.given
        for name in ("timeout", "max_waiters", "max_hold", "min_hold", "handover", "replicas"):
            put(self, name, getattr(given, name))
        ticket_ttl = given.ticket_ttl or given.ttl
        put(self, "ticket_ttl", ticket_ttl)
        put(self, "ttl_ms", to_ms(given.ttl))
        put(self, "ticket_ms", to_ms(ticket_ttl))
        # A third of the ticket's life, so that two tries fit in it.
        put(self, "request_timeout", min(1.0, ticket_ttl / 3))
        put(self, "rhythm", Rhythm(given.ttl, given.interval))
        put(self, "renewed", self.rhythm if given.renew else None)
        put(self, "block", self.handover + 1 if self.hands_over else 1)
        put(self, "queue_group", self._queue_group(given))

    @property
    def ttl(self) -> float:
        """TTL of a lease, in seconds."""
        return self.given.ttl

    @property
    def confirms(self) -> bool:
        """Whether a lease that was handed on by another client is asked for once more before it counts."""
        # A hand-off lives on its ticket's expiry, on one server: too little where more was asked for.
        return not self.given.renew or self.replicas > 0

    @property
    def hands_over(self) -> bool:
        """Whether grants may pass from waiter to waiter inside the client.

        Not without renewal and not with ``min_hold``: there the lease belongs to one holder alone.
        """
        return self.handover > 0 and bool(self.given.renew) and self.min_hold == 0

    def _queue_group(self, o: LockOptions) -> str:
        # The callback's id cannot come again while its lock is alive.
        behaviour = (
            f"{id(o.on_lost)} {o.renew} {o.interval} {o.min_hold} {o.on_exit} {o.on_unavailable} {o.replicas}"
        )
        return f"{o.ttl} {o.max_hold} {o.handover} {o.ticket_ttl} {behaviour}"

    def but(self, **changes: Any) -> Terms:
        """The terms of these options with some changed; see ``LockOptions.but``."""
        return Terms(self.given.but(**changes), self.fence_ms) if changes else self
