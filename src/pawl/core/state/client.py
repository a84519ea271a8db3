"""The state of a client, as those know it who are a part of it or stand below ``Engine``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pawl.core.protocol.runtime import Call

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pawl.core.protocol.primitive import Primitive
    from pawl.core.protocol.redlock_options import RedlockOptions
    from pawl.core.protocol.runtime import Runtime
    from pawl.core.quorum.votes import Duty
    from pawl.core.state.local_queue import LocalWaiter
    from pawl.core.state.records import ServerLease, Waiter
    from pawl.core.state.schedule import Schedule

__all__ = ["ClientState", "OutboxEntry"]


class OutboxEntry:
    """A token to be left, or another call to be made, in the background until the server answers or it is too late."""

    __slots__ = ("attempt", "call", "due", "until")

    def __init__(self, call: Call, until: float) -> None:
        self.call: Call = call
        self.until: float = until
        self.due: float = 0.0
        self.attempt: int = 0


class ClientState(Protocol):
    """What ``Engine`` keeps, and what it does when it is asked to; its attributes are described there."""

    runtime: Runtime
    guard: AbstractContextManager[object]
    schedule: Schedule
    waits: dict[Waiter | LocalWaiter, tuple[Primitive, object, float]]
    followers: dict[str, Waiter]
    rows: dict[str, ServerLease]
    quorum: RedlockOptions | None
    outbox: dict[OutboxEntry | Duty, None]
    closed: bool
    maintenance_runs: bool

    @property
    def history(self) -> object | None:
        """What is to be written of the grants that ended, if the client keeps histories."""
        ...

    def wake_maintenance(self) -> None:
        """Have the maintenance look for what is due."""
        ...

    def post(self, call: Call, seconds: float = ...) -> None:
        """Send a call in the background, until it is answered."""
        ...

    def take_away(self, taken: list[str]) -> None:
        """Lose the leases that the server says were taken from this client."""
        ...
