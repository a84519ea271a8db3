"""One lock as the operations see it, and one acquisition of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pawlock.core.protocol.options import Seconds
    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.protocol.runtime import StopSignal
    from pawlock.core.protocol.terms import Terms
    from pawlock.core.state.local_queue import LocalWaiter
    from pawlock.core.state.records import AnyLocalQueue, LeaseRecord, ServerLease, Waiter

__all__ = ["Attempt", "Plan", "Prepare"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One lock as the operations see it.

    Attributes:
        primitive: What to send.
        options: How it behaves.
        reentrant: Whether its thread or task may take it again, counted in the client.
        counted: Whether each acquisition counts for itself, and is not its thread's: permits, the lock service.
        alone: Whether each acquisition stands in the server's queue by itself (permits, the lock service and strict order).
        queue_key: The key of the local queue, which locks share that may hand over to each other.
        identity: What is shown of its tokens instead of host, process and thread; ``""``: those.
    """

    primitive: Primitive
    options: Terms
    reentrant: bool
    counted: bool
    alone: bool
    queue_key: str
    identity: str = ""

    def shown(self, token: str) -> str:
        """A token as others see it: with the plan's identity, where it has one."""
        return f"{token.partition('@')[0]}@{self.identity}" if self.identity else token


@dataclass(slots=True, eq=False)
class Attempt:
    """One acquisition of a plan.

    Attributes:
        who: The thread or task that wants it.
        began: When it began, on the runtime's clock.
        until: When it gives up; None: never.
        stop: Ends the wait once it is set.
        wait: False to try once, and not queue.
        or_none: Whether it ends with None, and not with an error, where the time is up and somebody else holds it.
        waiter, local_queue: What it asks for, and the local queue in whose turn.
        local_waiter: Its place in a local queue, until it asks.
        server_lease: What it was granted.
        again: A lease of its thread or task that it entered once more.
    """

    who: object
    began: float
    until: float | None
    stop: StopSignal | None
    _: KW_ONLY
    wait: bool
    or_none: bool
    waiter: Waiter | None = None
    local_queue: AnyLocalQueue | None = None
    local_waiter: LocalWaiter | None = None
    server_lease: ServerLease | None = None
    again: LeaseRecord | None = None


Prepare: TypeAlias = "Callable[[Plan, Seconds | None], Plan]"
"""What a client makes of a plan before each call, with the ttl that the call gives."""
