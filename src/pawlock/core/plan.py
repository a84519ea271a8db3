"""One lock as the operations see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pawlock.core.options import LockOptions
    from pawlock.core.primitive import Primitive

__all__ = ["ASKERS", "Plan"]

ASKERS = 100
"""How many callers of a client ask the server at once for a name that is not handed over; the others sleep behind them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One lock as the operations see it.

    Attributes:
        primitive: What to send.
        options: How it behaves.
        reentrant: Whether its thread or task may take it again, counted in the client.
        counted: Whether each acquisition counts for itself, and is not its thread's: permits, the lock service.
        capacity: How many of its callers ask at once: 1 where grants are handed over inside the client.
        queue_key: The key of the local queue, which locks share of which one waiter may go on for another.
        identity: What is shown of its tokens instead of host, process and thread; ``""``: those.
    """

    primitive: Primitive
    options: LockOptions
    reentrant: bool
    counted: bool
    capacity: int
    queue_key: str
    identity: str = ""

    def shown(self, token: str) -> str:
        """A token as others see it: with the plan's identity, where it has one."""
        return f"{token.partition('@')[0]}@{self.identity}" if self.identity else token
