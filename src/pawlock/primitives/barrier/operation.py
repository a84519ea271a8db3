"""How parties wait for each other at a barrier: once for both APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pawlock.core.options import LockOptions
from pawlock.core.outcomes import Arrived, Dead, Disagreed, LookAtBarrier, NotArrived, Outcome
from pawlock.core.primitive import TOMB_MS
from pawlock.core.retry import query
from pawlock.core.runtime import Request
from pawlock.errors import LeaseLost
from pawlock.model import LossReason
from pawlock.primitives.gate_wait import GateWait, disagreement, unexpected

if TYPE_CHECKING:
    from pawlock.core.engine import Engine
    from pawlock.primitives.barrier import Barrier

__all__ = ["MAX_PARTIES", "arrived", "wait"]

MAX_PARTIES = 1000
"""The largest number of parties: the last one lets all of them pass in one run of a script."""


async def arrived(engine: Engine, barrier: Barrier, options: LockOptions) -> int:
    """How many parties wait now.

    Raises:
        BackendError: The server could not be reached.
    """
    engine.check_open(barrier.name)
    look: LookAtBarrier = (await query(engine, barrier.inspect(), options, barrier.name, "read barrier"))[0]
    return look.arrived


async def wait(
    engine: Engine, barrier: Barrier, options: LockOptions, timeout: float | None, token: str | None = None
) -> int:
    """Wait until all parties are there.

    Args:
        engine: The client's engine.
        barrier: The barrier.
        options: Its options.
        timeout: Seconds to wait; None: no limit, 0 passes only as the last one.
        token: The arrival, so that another process can go on with it; None: a new one.

    Returns:
        How many were still missing when this one arrived: the last one gets 0.

    Raises:
        AcquireTimeout: Some were still missing at the end of ``timeout``; the arrival was withdrawn.
        LeaseLost: The ticket lapsed and the others passed meanwhile, or the server lost the barrier.
        LimitMismatch: Others wait for another number of parties.
        BackendError: The server could not be reached.
    """
    engine.check_open(barrier.name)
    waiting = _Waiting(engine, barrier, options, timeout, token)
    place = await waiting.within(waiting.run())
    if waiting.noted and waiting.unanswered:
        # A copy of the arrival may still come, after it is forgotten that this one passed.
        engine.post(waiting.leave())
    return place


class _Waiting(GateWait):
    """One wait: it arrives, then sleeps and keeps its place. The message that it passes is sent to its token alone."""

    doing = "wait at barrier"

    def __init__(
        self, engine: Engine, barrier: Barrier, options: LockOptions, timeout: float | None, token: str | None
    ) -> None:
        super().__init__(engine, options, barrier.name, timeout, token)
        self.barrier = barrier
        self.round = 0
        self.missing = barrier.parties

    def leave(self) -> Request:
        return self.barrier.leave(self.token, TOMB_MS if self.unanswered else 0)

    def call(self) -> Request:
        self.noted = True
        return self.barrier.arrive(self.token, self.channel, stay=self.round > 0)

    def state(self) -> str:
        return f"{self.missing} of {self.barrier.parties} still missing"

    def read(self, outcome: Outcome) -> None:
        if isinstance(outcome, Arrived):
            self.missing, self.round = self.barrier.parties - outcome.arrived, outcome.round
        elif isinstance(outcome, Disagreed):
            raise disagreement("barrier", self.name, "parties", outcome.declared, self.barrier.parties)
        elif isinstance(outcome, Dead) or (isinstance(outcome, NotArrived) and outcome.round == self.round):
            # It lapsed while this party was paused, and nobody passed since: it arrives anew.
            self.engine.count("requeued")
            if self.unanswered:
                # A copy of its arrival may still come, and would count as another party.
                self.engine.post(self.leave())
            self.token, self.round = self.engine.runtime.new_token(), 0
            self.noted = self.unanswered = False
        elif isinstance(outcome, NotArrived):
            text = (
                f"{self.doing} {self.name!r}: the ticket expired, and it is unknown whether the others passed"
            )
            raise LeaseLost(text, name=self.name, reason=LossReason.EXPIRED)
        else:
            raise unexpected(outcome, self.doing, self.name)
