"""The simulation, as its members and its faults know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulator.fleet import Fleet
    from tests.simulator.liveness import Liveness
    from tests.simulator.network import Network
    from tests.simulator.oracle import Oracle
    from tests.simulator.plan import Fault, Plan
    from tests.simulator.record import Recorder
    from tests.simulator.world import Process, World

__all__ = ["Stage"]


class Stage(Protocol):
    """See ``Simulation``."""

    plan: Plan
    world: World
    network: Network
    fleet: Fleet
    oracle: Oracle
    liveness: Liveness
    recorder: Recorder
    only_moves: bool
    names: list[str]
    working: int
    tickets: list[tuple[str, int]]
    loose: set[str]
    killed: set[str]

    @property
    def members(self) -> Sequence[Any]:
        """The clients."""
        ...

    def main_keys(self) -> list[str]:
        """The key of each name that is locked."""
        ...

    def process(self, fault: Fault) -> Process:
        """The process that a fault concerns."""
        ...

    def strike(self, fault: Fault) -> None:
        """Note what a fault finds going on."""
        ...

    def rolled(self) -> None:
        """A restart of all masters is over."""
        ...

    def healed_at(self) -> float:
        """When all is well again."""
        ...

    def aim(self, fault: Fault) -> None:
        """Have a fault strike once an operation of its kind has begun."""
        ...

    def began(self, process: Process, doing: str) -> None:
        """Note that an operation begins."""
        ...

    def kill(self, number: int, *, restart_after: float) -> None:
        """Kill a process."""
        ...

    def cancel(self, number: int, *, after: int) -> None:
        """Cancel a task."""
        ...

    def close(self, number: int, *, restart_after: float) -> None:
        """Close a client."""
        ...

    def settle(self) -> None:
        """End the run once everything is done."""
        ...
