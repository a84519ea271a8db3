"""The servers of a run: one, a master with a replica, several independent masters, or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulator.cluster import Cluster
from tests.simulator.node import Node, Pair
from tests.simulator.plan import MOVES

if TYPE_CHECKING:
    from tests.simulator.plan import Plan
    from tests.simulator.world import World

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
        pair: The stream to the replica, if there is one master and one replica.
        cluster: The same servers as a cluster, if they are one.
        durable: Whether every lease counts only once the replica has it.
        asks_replicas: Whether any does.
    """

    def __init__(self, world: World, plan: Plan, edit: Callable[[str, bytes], bytes] | None) -> None:
        self.masters: bool = plan.topology.startswith("redlock")
        self.cluster: Cluster | None = Cluster(world, plan, edit) if plan.topology == "cluster" else None
        count = int(plan.topology.removeprefix("redlock")) if self.masters else 1 + (plan.topology == "pair")
        self.nodes: list[Node] = [] if self.cluster is None else [*self.cluster.nodes]
        for number in range(1, 1 if self.nodes else count + 1):
            rate = 1 + (plan.node_rate - 1) * (-1) ** number
            self.nodes.append(Node(world, f"n{number}", rate=rate, moving_us=plan.moving_us))
        for number, node in enumerate(self.nodes):
            node.edit = edit
            if self.masters:
                # They keep no common time, and differ by less than any quarantine.
                node.shift_us += 7_000.0 * number
                node.far = plan.far[number] if plan.far else 0.0
            else:
                node.rate = plan.node_rate
        self.pair: Pair | None = Pair(world, self.nodes) if plan.topology == "pair" else None
        # What the replica has when it counts is never lost by a failover.
        wanted = [options.get("replicas") for _, _, options in plan.locks]
        self.durable: bool = all(wanted)
        self.asks_replicas: bool = any(wanted)
        if self.cluster is not None:
            # Of the keys that came with a slot nobody knows whether the replicas have them.
            self.durable &= not any(fault.kind in MOVES for fault in plan.faults)
            return
        for node in self.nodes:
            node.pair = self.pair

    @property
    def master(self) -> Node:
        """The server that clients are sent to, where there is one."""
        return self.nodes[0] if self.pair is None else self.pair.master

    def rules(self, node: Node) -> bool:
        """Whether what this server says counts at present."""
        return self.masters or (node is self.master if self.cluster is None else self.cluster.rules(node))

    def forgot_at(self) -> float:
        """When one of them last lost keys or time so that nobody could know it; below 0: never."""
        if len(self.nodes) == 1:
            return self.nodes[0].lost_memory_at
        return max([node.lost_memory_at for node in self.nodes])

    def struck(self, number: int) -> Node:
        """The server that a fault of this number concerns."""
        if self.cluster is not None:
            return self.cluster.struck(number)
        return self.nodes[number % len(self.nodes)] if self.masters else self.master
