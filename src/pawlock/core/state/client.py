"""The state of a client, as those know it who are a part of it or stand below ``Engine``."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pawlock.core.protocol.carrier import Request

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pawlock.core.protocol.primitive import Primitive
    from pawlock.core.state.local_queue import LocalQueue
    from pawlock.core.state.records import Attempt, LeaseRecord, ServerLease
    from pawlock.core.state.schedule import Schedule

__all__ = ["Activity", "Leases", "Outbox", "OutboxEntry", "Queues"]


class OutboxEntry:
    """A token to be left, or another call to be made, in the background until the server answers or it is too late."""

    __slots__ = ("attempt", "call", "due", "until")

    def __init__(self, call: Request, until: float) -> None:
        self.call: Request = call
        self.until: float = until
        self.due: float = 0.0
        self.attempt: int = 0


class Leases:
    """The leases of a client. Changed by ``acquire``, ``release`` and ``keep``.

    Attributes:
        schedule: When each is due.
        held: Which server lease a thread or task holds under a key, for re-entry and self-deadlock.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule: Schedule = schedule
        self.held: dict[tuple[object, str], ServerLease] = {}


class Queues:
    """Who waits. Changed by ``acquire``, and by the steps of ``state``.

    Attributes:
        local: The local queues, by the key that the locks of one share.
        waits: What each acquisition waits for; the thread or task, and since when.
    """

    def __init__(self) -> None:
        self.local: dict[Hashable, LocalQueue] = {}
        self.waits: dict[Attempt, tuple[Primitive, object, float]] = {}


class Outbox:
    """What is to be given back in the background. Filled by everybody, emptied by the maintenance.

    Attributes:
        entries: Tokens to be left, in the order in which they came; each stays until it is left or given up, so that
            the end of the client sees it at every moment.
        abandoned: Server leases whose lease object was garbage-collected; appended by finalisers, which may do no more.
        levels: Leases of which a block that is gone had a level, which is to end; appended by finalisers as well.
    """

    def __init__(self) -> None:
        self.levels: deque[LeaseRecord] = deque()
        self.entries: dict[OutboxEntry, None] = {}
        self.abandoned: deque[ServerLease] = deque()


class Activity:
    """What goes on now. Changed by each operation at its beginning and end, and by the end of the client.

    Attributes:
        calls: The acquisitions, releases and waits that go on, and whose thread or task each is: the end waits for them.
        closed: Whether the client was closed.
        maintenance_runs: Whether the maintenance was started.
    """

    def __init__(self) -> None:
        self.calls: dict[object, object] = {}
        self.closed: bool = False
        self.maintenance_runs: bool = False
