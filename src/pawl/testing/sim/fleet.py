"""The servers of a run: one, a master with a replica, or several independent masters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pawl.testing.sim.node import Node
from pawl.testing.sim.pair import Pair

if TYPE_CHECKING:
    from pawl.testing.sim.plan import Plan
    from pawl.testing.sim.world import World

__all__ = ["Fleet"]


class Fleet:
    """The servers of a plan.

    Args:
        world: The run.
        plan: The plan.
        edit: Changes the text of a script, for mutants.

    Attributes:
        nodes: All servers.
        masters: Whether they are independent masters that vote.
        pair: The stream to the replica, if there is one.
        durable: Whether every lease counts only once the replica has it.
        asks_replicas: Whether any does.
    """

    def __init__(self, world: World, plan: Plan, edit: Callable[[str, bytes], bytes] | None) -> None:
        self.masters: bool = plan.topology.startswith("redlock")
        count = int(plan.topology.removeprefix("redlock")) if self.masters else 1 + (plan.topology == "pair")
        self.nodes: list[Node] = [
            Node(
                world, f"n{number}", rate=1 + (plan.node_rate - 1) * (-1) ** number, moving_us=plan.moving_us
            )
            for number in range(1, count + 1)
        ]
        for number, node in enumerate(self.nodes):
            node.edit = edit
            if self.masters:
                # They keep no common time, and differ by less than any quarantine.
                node.shift_us += 7_000.0 * number
            else:
                node.rate = plan.node_rate
        self.pair: Pair | None = Pair(world, self.nodes) if plan.topology == "pair" else None
        # What the replica has when it counts is never lost by a failover.
        wanted = [options.get("replicas") for _, _, options in plan.locks]
        self.durable: bool = all(wanted)
        self.asks_replicas: bool = any(wanted)
        for node in self.nodes:
            node.pair = self.pair

    @property
    def master(self) -> Node:
        """The server that clients are sent to, where there is one."""
        return self.nodes[0] if self.pair is None else self.pair.master

    def rules(self, node: Node) -> bool:
        """Whether what this server says counts at present."""
        return self.masters or node is self.master

    def forgot_at(self) -> float:
        """When one of them last lost keys or time so that nobody could know it; below 0: never."""
        if len(self.nodes) == 1:
            return self.nodes[0].lost_memory_at
        return max([node.lost_memory_at for node in self.nodes])

    def struck(self, number: int) -> Node:
        """The server that a fault of this number concerns."""
        return self.nodes[number % len(self.nodes)] if self.masters else self.master
