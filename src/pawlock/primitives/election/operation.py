"""How a leader is elected, resigns and is observed: once for both APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from weakref import ref

from pawlock.core import acquire
from pawlock.core.lease import HeldLease, release_or_raise
from pawlock.core.outcomes import Full, Leading, Outcome
from pawlock.core.retry import query
from pawlock.core.runtime import Request, StopSignal
from pawlock.errors import ClientClosed, NotHeld, QueueFull
from pawlock.model import Leader, LeaseState
from pawlock.primitives.gate_wait import GateWait, unexpected

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.core.plan import Plan
    from pawlock.primitives.election import Ballot

__all__ = ["ENDED", "Ended", "Leadership", "Watch", "campaign", "check_after", "leader", "resign"]


class Leadership:
    """Which lease an election object of this process leads with; kept alive by the campaigner, not by this."""

    __slots__ = ("_lease", "name")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self._lease: ref[HeldLease] | None = None

    def take(self, lease: HeldLease) -> None:
        """Lead with a lease from here on."""
        self._lease = ref(lease)

    def lease(self) -> HeldLease | None:
        """The lease, while it is good by the local clock."""
        lease = self._lease() if self._lease is not None else None
        return lease if lease is not None and lease.is_held() else None

    def leading(self) -> HeldLease:
        """The lease.

        Raises:
            NotHeld: This object does not lead.
        """
        lease = self.lease()
        if lease is None:
            raise NotHeld(f"election {self.name!r}: not the leader", name=self.name, operation="lead")
        return lease


async def campaign(
    engine: Engine, plan: Plan, leadership: Leadership, timeout: float | None, stop: StopSignal | None
) -> HeldLease:
    """Stand for election until elected; see ``acquire.acquire``."""
    lease = await acquire.acquire(engine, plan, timeout, stop)
    leadership.take(lease)
    return lease


async def resign(leadership: Leadership) -> None:
    """Resign; the next candidate leads immediately.

    Raises:
        NotHeld: This object does not lead.
        BackendUnavailable: The server did not answer; the TTL ends the leadership at the latest.
    """
    lease = leadership.leading()
    await release_or_raise(lease.engine, lease)


async def check_after(lease: HeldLease, error: BaseException | None) -> None:
    """Report a loss at the end of a call that only the leader may make; the lease goes on otherwise.

    Raises:
        LeaseLost: Leadership was lost meanwhile, and the call did not raise.
    """
    if lease.state is not LeaseState.LOST:
        return
    lost = lease.lost_error()
    if error is None:
        raise lost
    error.add_note(str(lost))


async def leader(engine: Engine, plan: Plan) -> Leader | None:
    """Who leads now; None if nobody.

    Raises:
        BackendError: The server could not be reached.
    """
    engine.check_open(plan.primitive.name)
    ballot = cast("Ballot", plan.primitive)
    outcome, _ = await query(engine, ballot.observe("-", 0, "-", ""), plan.options, ballot.name, "ask")
    return _read(outcome, ballot.name)


def _read(outcome: Outcome, name: str) -> Leader | None:
    if isinstance(outcome, Full):
        raise QueueFull(f"observe election {name!r}: {outcome.waiters} clients observe it already", name=name)
    if not isinstance(outcome, Leading):
        raise unexpected(outcome, "observe election", name)
    return Leader(outcome.leader, outcome.fence) if outcome.leader else None


class Ended:
    """What an observation gives when it is over."""


ENDED: Ended = Ended()


class Watch(GateWait):
    """One observation: it asks who leads, reports it if it is news, and else sleeps until a message comes.

    Args:
        engine: The client's engine.
        plan: The election.
    """

    doing = "observe election"

    def __init__(self, engine: Engine, plan: Plan) -> None:
        super().__init__(engine, plan.options, plan.primitive.name, None)
        # As a lease does: the client lives as long as somebody observes.
        self._client = engine.client()
        self._ballot: Ballot = cast("Ballot", plan.primitive)
        self._reported: Leader | Ended | None = ENDED
        self._closed = False

    async def next(self) -> Leader | Ended | None:
        """The next leader; None if nobody leads; ``ENDED`` once this or the client is closed.

        Raises:
            QueueFull: More than ``max_waiters`` observe.
            BackendError: The server could not be reached for too long.
        """
        try:
            return await self.within(self._next())
        except ClientClosed:
            return ENDED

    def close(self) -> None:
        """End it, also for a thread or task that waits in ``next``."""
        self._closed = True
        if self.noted and not self.engine.closed:
            self.engine.post(self.leave())

    async def _next(self) -> Leader | Ended | None:
        while not (self._closed or self.engine.closed):
            outcome = await self.ask()
            found = _read(outcome, self.name)
            if found != self._reported:
                self._reported = found
                return found
            # A leader that dies notifies nobody: its lease says when to look.
            await self.listen(None if found is None or outcome.left_ms < 0 else (outcome.left_ms + 1) / 1000)
        return ENDED

    def call(self) -> Request:
        """What asks who leads, and is woken when that changes."""
        self.noted = True
        return self._ballot.observe(self.token, self.options.ticket_ms, self.channel, self.former)

    def leave(self) -> Request:
        """What ends it on the server."""
        return self._ballot.unobserve(self.token, self.channel)
