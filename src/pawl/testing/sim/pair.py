"""A master and its replica: what the one writes reaches the other a little later, and in order.

What a failover loses is what was still under way. The old master may go on for a while beside the new one, for those
who are connected to it; then it is told, breaks all connections, and starts over as the other's replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pawl.testing.sim.node import Keys, Node

if TYPE_CHECKING:
    from pawl.testing.sim.network import Network
    from pawl.testing.sim.world import World

__all__ = ["Pair"]

Part = dict[bytes, tuple[Any, int | None]]


class Pair:
    """The stream from a master to its replica.

    Args:
        world: The run.
        nodes: Both.

    Attributes:
        network: What the stream runs through; set before the first write.
        master: The one that clients are sent to.
        replica: The other one.
        frozen_until: Nothing gets through before this.
        follows: Whether the replica follows; a former master does not, until it is told.
        promoted: Told of a failover.
    """

    def __init__(self, world: World, nodes: list[Node]) -> None:
        self.world = world
        master, replica = nodes
        self.master: Node = master
        self.replica: Node = replica
        self.network: Network | None = None
        self.frozen_until: float = 0.0
        self.offset: int = 0
        self.acknowledged: int = 0
        self.promoted: Callable[[Node], object] = lambda _: None
        self.follows: bool = True
        self._age = 0
        self._there_at = 0.0
        self._waiting: list[tuple[int, Callable[[int], object]]] = []
        self.replica.store.replica = True
        for node in nodes:
            node.wrote = self._wrote

    def _wrote(self, node: Node, keys: tuple[bytes, ...] | None) -> None:
        """Send what was written to the replica; None: everything."""
        if node is not self.master:
            return
        store = node.store
        self.offset += 1
        if not self.follows:
            return
        part: Part = {
            key: (_copy(store.data.get(key)), store.expires.get(key))
            for key in (keys if keys is not None else {*store.data, *self.replica.store.data})
        }
        self._there_at = max(self._there_at, self.world.now + self._delay(), self.frozen_until)
        self.world.at(self._there_at, self._arrived, (self._age, self.offset, part))

    def _delay(self) -> float:
        return 0.0 if self.network is None else self.network.delay()

    def _arrived(self, item: tuple[int, int, Part]) -> None:
        age, offset, part = item
        if age != self._age:
            return
        store = self.replica.store
        for key, (value, expiry) in part.items():
            if value is None:
                store.drop(key)
            else:
                store.put(key, value, expiry)
        self.world.at(self.world.now + self._delay(), self._told, (age, offset))

    def _told(self, item: tuple[int, int]) -> None:
        age, offset = item
        if age == self._age:
            self.acknowledged = max(self.acknowledged, offset)
            for waiting in [one for one in self._waiting if one[0] <= offset]:
                self._waiting.remove(waiting)
                waiting[1](1)

    def wait(self, node: Node, offset: int, seconds: float, answer: Callable[[int], object]) -> None:
        """``WAIT``: answer with how many replicas have a write, as soon as it is enough or the time is up."""
        if node is not self.master:
            # It is a master no more, or was one that has no replica any more.
            self.world.at(self.world.now + seconds, lambda _: answer(0))
        elif self.acknowledged >= offset:
            answer(1)
        else:
            waiting = offset, answer
            self._waiting.append(waiting)

            def over(_: object) -> None:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                    answer(0)

            self.world.at(self.world.now + seconds, over)

    def promote(self, *, arrived: bool) -> Node:
        """Make the replica the master.

        Args:
            arrived: Whether what was under way reached it before.

        Returns:
            The former master, which knows nothing of it yet.
        """
        old, new = self.master, self.replica
        if arrived:
            new.store.restore(old.store.snapshot())
        # What the old one had lost, the new one does not have either.
        new.lost_memory_at = max(new.lost_memory_at, old.lost_memory_at)
        self._age += 1
        self.follows = False
        self.offset = self.acknowledged = 0
        self._there_at = self.frozen_until = 0.0
        for _, answer in self._waiting:
            self.world.at(self.world.now + 1.0, lambda _, answer=answer: answer(0))  # type: ignore[misc]
        self._waiting = []
        self.master, self.replica = new, old
        new.store.replica = False
        self.promoted(new)
        return old

    def follow(self, old: Node) -> None:
        """Have the former master start over as the replica."""
        if not old.up:
            forgot_at = old.lost_memory_at
            old.start(_none())
            # Nobody relies on what a replica has: it gets all from its master.
            old.lost_memory_at = forgot_at
        old.store.restore(_none())
        old.store.replica = True
        if old is self.replica:
            self.follows = True
            self._wrote(self.master, None)


def _none() -> Keys:
    return {}, {}


def _copy(value: Any) -> Any:
    return value if value is None or isinstance(value, bytes) else value.copy()
