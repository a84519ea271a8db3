"""Programs that are not pawlock and want the same key: they poll for it, and know nothing of its queue.

A stranger is as well behaved as its library: it writes the key only while it is free, with a life, and deletes it only
while the value is its own; now and then it dies and leaves it. Its commands take no time and are never lost, so what is
judged is pawlock alone:

- A stranger gets the key only while nobody of pawlock relies on it.
- Nobody of pawlock writes over its key, takes it before its end, or raises its life (the invariants of the scripts see its
  value as that of any other holder).
- While pawlock passes the key on among its own clients, a stranger that polls gets a turn in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pawlock.core.key import Key
from pawlock.testing.memory.lua import Interpreter
from tests.simulator.invariants import STRANGER

if TYPE_CHECKING:
    from tests.simulator.node import Node
    from tests.simulator.plan import Visitor
    from tests.simulator.stage import Stage

__all__ = ["Stranger", "key_named"]

_PATIENCE = 2.0
"""Seconds for which a stranger may poll without success, those left out in which nobody of pawlock was granted the key."""


def key_named(wire: str, name: str) -> Key:
    """The key that a name of a plan stands for on a wire."""
    return Key.redisson(name) if wire == "redisson" else Key(name)


class Stranger:
    """One of them.

    Args:
        sim: The run.
        visitor: What the plan says of it.
        number: Which one it is.
    """

    def __init__(self, sim: Stage, visitor: Visitor, number: int) -> None:
        self.sim: Stage = sim
        self.visitor: Visitor = visitor
        self.grants: int = 0
        self._name = f"{STRANGER}{number}"
        self._mine = b""
        self._left = visitor.times
        self._since = -1.0
        self._tried = 0.0
        self._top = 0
        self._interpreter = Interpreter.shared()
        sim.working += 1
        sim.world.at(visitor.start, self._poll)

    @property
    def _node(self) -> Node:
        pair = self.sim.fleet.pair
        return self.sim.fleet.nodes[0] if pair is None else pair.master

    def _away(self, node: Node) -> bool:
        store, stalled = node.store, node.stalled_until > self.sim.world.now
        return not node.up or node.loading or stalled or store.replica or store.no_memory

    def _poll(self, _: object) -> None:
        world, node, visitor = self.sim.world, self._node, self.visitor
        again = visitor.period * (0.9 + 0.2 * world.random.random())
        if self._away(node):
            # It has not been served in the meantime, and nobody else has been.
            self._since = -1.0
            world.at(world.now + again, self._poll)
            return
        if self._since < 0:
            self._since, self._tried = world.now, 0.0
        self.grants += 1
        self._mine = f"{self._name}:{self.grants}".encode()
        if not self._take(node):
            self.grants -= 1
            self._starves(again)
            world.at(world.now + again, self._poll)
            return
        world.counts["stranger"] += 1
        self._alone()
        self._since = -1.0
        self._left -= 1
        if visitor.dies and self._left == 0:
            # It is killed in its section: the key ends by itself.
            self._end(None)
            return
        world.at(world.now + visitor.hold, self._leave)

    def _starves(self, waited: float) -> None:
        """Count the time in which pawlock passed the key on; a long section, or a dead holder, is nobody's fault."""
        top = self.sim.oracle.top.get(self.visitor.key, 0)
        if top != self._top:
            self._top = top
            self._tried += waited
        if self._tried > _PATIENCE:
            self.sim.world.fail(
                f"starved: {self._name} polled {self.visitor.key!r} for {self._tried:.3f} s while pawlock passed it on"
            )

    def _take(self, node: Node) -> bool:
        key, life = self.visitor.key.encode(), int(self.visitor.ttl * 1000)
        node.store.begin(node.us_at(self.sim.world.now))
        if self._ask(node, b"EXISTS", key):
            return False
        if self.visitor.wire == "redisson":
            self._ask(node, b"HSET", key, self._mine, b"1")
            self._ask(node, b"PEXPIREAT", key, b"%d" % (node.store.now_ms + life))
        else:
            self._ask(node, b"SET", key, self._mine, b"PX", b"%d" % life)
        self._changed(node, key)
        return True

    def _leave(self, _: object) -> None:
        world, node, key = self.sim.world, self._node, self.visitor.key.encode()
        if self._away(node):
            world.at(world.now + self.visitor.period, self._leave)
            return
        node.store.begin(node.us_at(world.now))
        mine = (
            self._ask(node, b"HEXISTS", key, self._mine) == 1
            if self.visitor.wire == "redisson"
            else self._ask(node, b"GET", key) == self._mine
        )
        if mine:
            self._ask(node, b"DEL", key)
            self._changed(node, key)
        if self._left > 0:
            world.at(world.now + self.visitor.rest, self._poll)
        else:
            self._end(None)

    def _end(self, _: object) -> None:
        self.sim.working -= 1
        self.sim.settle()

    def _ask(self, node: Node, *words: bytes) -> Any:
        return self._interpreter.command(node.store, *words)

    def _changed(self, node: Node, key: bytes) -> None:
        node.wrote(node, (key,))
        self.sim.oracle.watches[node].written(key)

    def _alone(self) -> None:
        oracle = self.sim.oracle
        if oracle.excused():
            return
        for belief in oracle.beliefs.get(self.visitor.key, ()):
            if belief.holds():
                self.sim.world.fail(
                    f"exclusion: {self._name} has {self.visitor.key!r}, and {belief.lease!r} relies on it"
                )
