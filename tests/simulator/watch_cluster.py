"""What looks at the nodes of a cluster after each script: as at one server, since a name may move from node to node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pawlock.core.runtime import Call, Reply
from pawlock.topology.cluster import slot_of
from tests.simulator.watch import Believed, Watch

if TYPE_CHECKING:
    from pawlock.testing.memory.store import Store
    from tests.simulator.cluster import Cluster
    from tests.simulator.node import Node
    from tests.simulator.world import World

__all__ = ["ClusterWatch"]


class ClusterWatch(Watch):
    """See ``Watch``: what is known of a name goes with it from node to node.

    Args:
        world: The run.
        node: The node.
        believed: Called with every name after a script that concerned it.
        cluster: Where the names are.
        others: What looks at the other nodes.
    """

    _at_home: bool = False

    def __init__(
        self,
        world: World,
        node: Node,
        believed: Believed,
        cluster: Cluster,
        others: Sequence[Watch],
    ) -> None:
        super().__init__(world, node, believed, masters=False)
        self._cluster = cluster
        for other in others[:1]:
            # Not copies: there is one history of each name.
            self._mutexes, self._permits, self._votes = other._mutexes, other._permits, other._votes
            self._gone = other._gone
            self.freed: set[str] = other.freed

    def ran(self, call: Call, words: list[bytes], reply: Reply, *, changed: bool) -> None:
        """See ``Watch``. Of a slot between two clocks nothing can be said before it has arrived."""
        if self._cluster.moving and self._cluster.skewed(slot_of(words[0])):
            self.refresh()
        else:
            super().ran(call, words, reply, changed=changed)

    def refresh(self) -> None:
        """See ``Watch``."""
        for shard in self._cluster.shards:
            shard.master.store.begin(shard.master.us_at(self.world.now))
        super().refresh()

    def _store_of(self, name: bytes) -> Store:
        return self._cluster.store_of(name)
