"""The history of a run, as the clients saw it, for the checker that judges real runs too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pawlock.primitives.permits import EXCLUSIVE, Permits
from tests.support.history import (
    FencedMutex,
    History,
    Mode,
    Model,
    ReadWrite,
    Rules,
    Semaphore,
    TooManySteps,
    check,
    linearizable,
)

if TYPE_CHECKING:
    from pawlock.core.lease import HeldLease
    from pawlock.core.records import Hold
    from tests.simulator.beliefs import Belief
    from tests.simulator.world import Process, World

__all__ = ["Recorder"]

_MOST_STATES = 20_000
_MOST_OPERATIONS = 120


@dataclass(slots=True)
class _Grant:
    """A lease as the history knows it."""

    hold: Hold
    process: Process
    operation: str
    row: str
    name: str
    open: bool = True


class Recorder:
    """Writes down who was granted what and until when, on true time, and has it judged at the end.

    A lease is told by its grant alone: from when its owner knew of it. What the server did before is not the history's.

    Args:
        world: The run.
    """

    def __init__(self, world: World) -> None:
        self.history: History = History()
        self._world = world
        # By hold, not by lease: who drops a lease must not be kept from it.
        self._grants: dict[tuple[Hold, int], _Grant] = {}
        self._limits: dict[str, int] = {}
        self._rwlocks: set[str] = set()

    def granted(self, name: str, belief: Belief, asked_at: float) -> None:
        """An owner got a lease of a key, for which it asked then."""
        lease = belief.lease
        key = lease.hold, lease.number
        if key in self._grants:
            return
        primitive = lease.hold.primitive
        mode, permits, limit = Mode.EXCLUSIVE, 1, 0
        if isinstance(primitive, Permits):
            if primitive.permits:
                mode, permits, limit = Mode.PERMITS, int(primitive.mode), primitive.permits
                self._limits[name] = limit
            else:
                mode = Mode.EXCLUSIVE if primitive.mode == EXCLUSIVE else Mode.SHARED
                self._rwlocks.add(name)
        process = f"{belief.process.name}:{len(self._grants)}"
        operation = self.history.invoke(
            asked_at, process, "acquire", name, mode=mode, permits=permits, limit=limit
        )
        self.history.ok(self._world.now, operation, fence=lease.fence)
        self._grants[key] = _Grant(lease.hold, belief.process, operation, process, name)

    def downgraded(self, lease: HeldLease) -> None:
        """A writer is a reader from here on."""
        self._end(lease, "downgrade")

    def ended(self, lease: HeldLease) -> None:
        """An owner relies on a lease no more, since it gives it back."""
        self._end(lease, "release")

    def lost(self, lease: HeldLease) -> None:
        """An owner was told of a loss."""
        found = self._grants.get((lease.hold, lease.number))
        if found is not None:
            self._lives(found)
            self.history.lost(self._world.now, found.operation)

    def died(self, process: Process) -> None:
        """A process is dead."""
        for found in self._grants.values():
            if found.process is process and found.open:
                self._lives(found)
                self.history.crash(self._world.now, found.row)
                found.open = False

    def _lives(self, found: _Grant) -> None:
        until = found.process.clock.true(found.hold.valid_until)
        self.history.renewed(self._world.now, found.operation, until)

    def _end(self, lease: HeldLease, action: str) -> None:
        found = self._grants.get((lease.hold, lease.number))
        if found is None or not found.open:
            return
        self._lives(found)
        found.open = action == "downgrade"
        if not found.hold.live or found.process.clock.boot() >= found.hold.valid_until:
            # It ended before by itself; what is said now releases nothing.
            return
        now = self._world.now
        ending = self.history.invoke(now, f"{found.row}/{action}", action, found.name, lease=found.operation)
        self.history.ok(now, ending)

    # The verdict ------------------------------------------------------------------------------------------------

    def judge(self, *, linear: bool) -> str:
        """What is wrong with the history; ``""`` if nothing is.

        Args:
            linear: Whether to search for an order of all operations as well.
        """
        for found in self._grants.values():
            if found.open:
                self._lives(found)
        violations = check(self.history, Rules(overtakes=None))
        if violations:
            return str(violations[0])
        if not linear:
            return ""
        for name in self.history.names:
            operations = list(self.history.of(name, "acquire"))
            model = self._model(name)
            if len(operations) > _MOST_OPERATIONS:
                continue
            try:
                verdict = linearizable(self.history, model, name, most=_MOST_STATES)
            except TooManySteps:
                continue
            if not verdict:
                return str(verdict)
        return ""

    def _model(self, name: str) -> Model:
        if name in self._limits:
            return Semaphore(self._limits[name])
        return ReadWrite(fenced=False) if name in self._rwlocks else FencedMutex()
