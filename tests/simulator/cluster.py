"""A cluster: masters that share the slots, each with a replica where one may have to stand in for it.

The nodes answer as the specification says: by what each of them knows, ``MOVED``; of a slot on its way ``ASK`` and
``TRYAGAIN``; ``CLUSTERDOWN``; and ``CROSSSLOT`` for keys that lie apart. What one of them publishes reaches all. Not
all hear of a change at once, and ``CLUSTER SLOTS`` tells what the asked node has heard.

Facts: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pawlock.core.runtime import Call, Reply
from pawlock.testing.memory.store import Store
from pawlock.topology.cluster import SLOTS, Address, first_key, slot_of
from pawlock.topology.endpoint import ClusterNodes, Endpoint
from pawlock.transport.routing import Asking
from tests.simulator.node import Node, Pair

if TYPE_CHECKING:
    from tests.simulator.network import Link, Network
    from tests.simulator.plan import Plan
    from tests.simulator.world import World

__all__ = ["Cluster", "ClusterNode", "Shard"]

PORT = 6379
LEAVES, ARRIVES = 1, 2
_SHARDS = 3
_FAILOVERS = frozenset({"failover_synced", "failover_lagging", "shard_failover"})
_RETRY = 0.05

_slot_of = lru_cache(maxsize=4096)(slot_of)


class ClusterNode(Node):
    """One node: it runs what it may run, and sends the rest elsewhere."""

    def __init__(self, cluster: Cluster, name: str, plan: Plan) -> None:
        super().__init__(cluster.world, name, rate=plan.node_rate, moving_us=plan.moving_us)
        self.cluster: Cluster = cluster

    def execute(self, who: str, call: Call, rid: int, *, by_text: bool) -> Reply | str:
        """See ``Node``."""
        refusal = self.cluster.refusal(self, call)
        if refusal:
            self.changed = False
            self.world.note(self.name, who, call.script.name, refusal)
            return refusal
        self.store.moving = self.cluster.way_of(self, call)
        try:
            return super().execute(who, call, rid, by_text=by_text)
        finally:
            self.store.moving = 0

    def _publish(self, channel: bytes, text: bytes) -> int:
        got = super()._publish(channel, text)
        if not got:
            self.cluster.pass_on(channel.decode(), text)
        return got


class Shard:
    """A master and, in some runs, its replica.

    Attributes:
        nodes: Both.
        pair: The stream between them, or None.
    """

    def __init__(self, world: World, nodes: list[ClusterNode]) -> None:
        self.nodes: list[ClusterNode] = nodes
        self.pair: Pair | None = Pair(world, [*nodes]) if len(nodes) > 1 else None
        for node in nodes:
            node.pair = self.pair

    @property
    def master(self) -> Node:
        """The one that serves the slots."""
        return self.nodes[0] if self.pair is None else self.pair.master


class _View(NamedTuple):
    """What a node has heard: the master of each shard, and which shard has the slots that have moved."""

    masters: tuple[str, ...]
    placed: dict[int, int]


class Cluster:
    """The nodes of a plan, and which of them serves which slot.

    Args:
        world: The run.
        plan: The plan.
        edit: Changes the text of a script, for mutants.

    Attributes:
        shards: The masters with their replicas.
        nodes: All nodes.
        by_address: The same, by where clients find them.
        target: What a client is given.
        moving: Slots on their way: from which shard to which.
        down_until: True time until which the nodes serve nothing.
        jumped: Called with a node that got keys whose times are those of another clock.
    """

    def __init__(self, world: World, plan: Plan, edit: Callable[[str, bytes], bytes] | None) -> None:
        self.world = world
        replicated = any(fault.kind in _FAILOVERS for fault in plan.faults)
        replicated |= any("replicas" in options for _, _, options in plan.locks)
        self.shards: list[Shard] = [
            Shard(
                world,
                [ClusterNode(self, f"n{number}{part}", plan) for part in ("ab" if replicated else "a")],
            )
            for number in range(1, _SHARDS + 1)
        ]
        self.nodes: list[ClusterNode] = [node for shard in self.shards for node in shard.nodes]
        for node in self.nodes:
            node.edit = edit
        self.by_address: dict[Address, ClusterNode] = {(node.name, PORT): node for node in self.nodes}
        self.target: ClusterNodes = _target(tuple(shard.nodes[0].name for shard in self.shards))
        self.network: Network | None = None
        self.jumped: Callable[[Node], object] = lambda _: None
        self.moving: dict[int, tuple[int, int]] = {}
        self.down_until: float = -1.0
        self._slots = sorted({_slot_of(f"sim:{name}".encode()) for _, name, _ in plan.locks})
        # Names of one plan lie on one shard in some runs, on two or three in others.
        self._width = 1000 * (1 + plan.seed % 2)
        self._turn = plan.seed // 2 % _SHARDS
        self._placed: dict[int, int] = {}
        self._views: dict[Node, _View] = dict.fromkeys(self.nodes, self._truth())

    def connect(self, network: Network, refresh: Callable[[Node], object]) -> None:
        """Say what the streams to the replicas run through, and who is told when one of them stands in."""
        self.network, self.jumped = network, refresh

        def promoted(node: Node) -> None:
            refresh(node)
            self.spread(0.5, node)

        for shard in self.shards:
            if shard.pair is not None:
                shard.pair.network, shard.pair.promoted = network, promoted

    # Who serves what --------------------------------------------------------------------------------------------

    def shard_of(self, slot: int) -> int:
        """Which shard has a slot."""
        return self._placed.get(slot, (slot // self._width + self._turn) % _SHARDS)

    def rules(self, node: Node) -> bool:
        """Whether a node is the master of its shard."""
        return any(shard.master is node for shard in self.shards)

    def used(self) -> list[int]:
        """The slots that have keys, or would have some."""
        found = {_slot_of(key) for shard in self.shards for key in shard.master.store.data}
        return sorted(found) or self._slots

    def struck(self, number: int) -> Node:
        """The master that a fault of this number concerns: one that serves names of the plan."""
        return self.shards[self.shard_of(self._slots[number % len(self._slots)])].master

    def store_of(self, name: bytes) -> Store:
        """The keys of the node that has a name; of both nodes, while it is on its way."""
        slot = _slot_of(name)
        ends = self.moving.get(slot)
        if ends is None:
            return self.shards[self.shard_of(slot)].master.store
        source, target = (self.shards[end].master.store for end in ends)
        both = Store(source.random, source.published)
        both.now_ms = source.now_ms
        both.data = {**source.data, **target.data}
        both.expires = {**source.expires, **target.expires}
        return both

    # What a node says -------------------------------------------------------------------------------------------

    def refusal(self, node: Node, call: Call) -> str:
        """What a node says instead of running a script; ``""``: it runs it."""
        keys = call.body.split(b"\r\n")[1 : 2 * call.script.numkeys : 2]
        slot = _slot_of(keys[0])
        for key in keys:
            if _slot_of(key) != slot:
                return "CROSSSLOT Keys in request don't hash to the same slot"
        if self.world.now < self.down_until:
            return "CLUSTERDOWN The cluster is down"
        ends = self.moving.get(slot)
        if ends is not None:
            source, target = (self.shards[end].master for end in ends)
            if node is source or (node is target and isinstance(call, Asking)):
                return self._half(node, keys, slot, target)
        elif self.shards[self.shard_of(slot)].master is node:
            return ""
        return f"MOVED {slot} {self._reported_master(node, slot)}:{PORT}"

    def way_of(self, node: Node, call: Call) -> int:
        """Whether the slot of a call that a node serves leaves it (1), arrives there (2), or neither (0)."""
        ends = self.moving.get(_slot_of(first_key(call.body)))
        if ends is None:
            return 0
        return LEAVES if node is self.shards[ends[0]].master else ARRIVES

    def _half(self, node: Node, keys: Sequence[bytes], slot: int, target: Node) -> str:
        store = node.store
        store.begin(node.us_at(self.world.now))
        now = store.now_ms
        missing = sum([key not in store.data or store.expires.get(key, now) < now for key in keys])
        if not missing or (node is target and len(keys) == 1):
            return ""
        if node is target or missing < len(keys):
            return "TRYAGAIN Multiple keys request during rehashing of slot"
        return f"ASK {slot} {target.name}:{PORT}"

    def _reported_master(self, node: Node, slot: int) -> str:
        """Who serves a slot, for all that a node has heard."""
        masters, placed = self._views[node]
        known = masters[placed.get(slot, (slot // self._width + self._turn) % _SHARDS)]
        return self.shards[self.shard_of(slot)].master.name if known == node.name else known

    def slots(self, node: Node) -> list[Any]:
        """What a node answers to ``CLUSTER SLOTS``."""
        masters, placed = self._views[node]
        found: list[Any] = []
        for first, last, shard in self._ranges(placed):
            found.append([first, last, [masters[shard].encode(), PORT]])
        return found

    def _ranges(self, placed: dict[int, int]) -> Iterator[tuple[int, int, int]]:
        moved = sorted(placed)
        for first in range(0, SLOTS, self._width):
            at, last = first, min(first + self._width, SLOTS) - 1
            shard = (first // self._width + self._turn) % _SHARDS
            for slot in [slot for slot in moved if first <= slot <= last]:
                if at < slot:
                    yield at, slot - 1, shard
                yield slot, slot, placed[slot]
                at = slot + 1
            if at <= last:
                yield at, last, shard

    def pass_on(self, channel: str, text: bytes) -> None:
        """Bring what a node published to whoever listens on another."""
        for node in self.nodes:
            link = node.links.get(channel)
            if link is not None and self.network is not None:
                self.world.at(self.world.now + self.network.delay(), _push, (link, text))
                return

    # What happens to it -----------------------------------------------------------------------------------------

    def _truth(self) -> _View:
        return _View(tuple(shard.master.name for shard in self.shards), dict(self._placed))

    def spread(self, within: float, *first: Node) -> None:
        """Have all hear of who serves what: some at once, the others after a while."""
        for node in self.nodes:
            if node in first:
                self._hear(node)
            else:
                self.world.at(self.world.now + self.world.random.random() * within, self._hear, node)

    def _hear(self, node: Node) -> None:
        self._views[node] = self._truth()

    def depart(self, number: int) -> int:
        """Put a slot on its way to another shard; the slot, or -1: it cannot go."""
        used = self.used()
        slot = used[number % len(used)]
        source = self.shard_of(slot)
        others = [at for at, shard in enumerate(self.shards) if at != source and shard.master.up]
        if slot in self.moving or not others or not self.shards[source].master.up:
            return -1
        self.moving[slot] = source, self.world.random.choice(others)
        return slot

    def carry(self, slot: int, share: float = 1.0, *, back: bool = False) -> None:
        """Carry some of the keys of a slot that is on its way, or carry them back."""
        ends = self.moving[slot]
        giver, taker = (self.shards[end].master for end in (reversed(ends) if back else ends))
        if not (giver.up and taker.up):
            return
        random = self.world.random.random
        keys = [key for key in sorted(giver.store.data) if _slot_of(key) == slot and random() < share]
        if not keys:
            return
        now_ms = giver.us_at(self.world.now) // 1000
        for key in keys:
            # What has run out stays behind, and is gone.
            if key not in taker.store.data and giver.store.expires.get(key, now_ms) >= now_ms:
                taker.store.put(key, giver.store.data[key], giver.store.expires.get(key))
            giver.store.drop(key)
        for node in (giver, taker):
            node.wrote(node, tuple(keys))
        taker.lost_memory_at = max(taker.lost_memory_at, giver.lost_memory_at)

    def arrive(self, slot: int, lag: float, *, back: bool = False) -> None:
        """End the way of a slot, once both nodes are there."""
        source, target = (self.shards[end].master for end in self.moving[slot])
        if not (source.up and target.up):
            self.world.at(self.world.now + _RETRY, lambda _: self.arrive(slot, lag, back=back))
            return
        self.carry(slot, back=back)
        skewed = self.skewed(slot)
        ends = self.moving.pop(slot)
        if not back:
            self._placed[slot] = ends[1]
            self.spread(lag, source, target)
        if skewed:
            # Ends of leases are times of the server's clock: where the two differ, it jumps for these names.
            target.lost_memory_at = self.world.now
            self.jumped(target)

    def skewed(self, slot: int) -> bool:
        """Whether a slot is on its way between nodes whose clocks differ."""
        ends = self.moving.get(slot)
        if ends is None:
            return False
        source, target = (self.shards[end].master for end in ends)
        return source.shift_us != target.shift_us

    def started(self, node: Node) -> None:
        """A node that starts drops the keys of slots that others serve by now."""
        for key in [key for key in node.store.data if node is not self._home(key)]:
            node.store.drop(key)

    def _home(self, key: bytes) -> Node:
        slot = _slot_of(key)
        ends = self.moving.get(slot, (self.shard_of(slot),))
        homes = [self.shards[end].master for end in ends]
        return next((home for home in homes if key in home.store.data), homes[0])

    def astray(self) -> list[str]:
        """Keys that lie where nobody looks for them."""
        return [
            f"{key.decode()} on {shard.master.name}"
            for shard in self.shards
            for key in shard.master.store.data
            if self._home(key) is not shard.master
        ]


def _push(item: tuple[Link, bytes]) -> None:
    link, text = item
    if link.node.up and link.run == link.node.run:
        link.push(text)


@lru_cache(maxsize=16)
def _target(names: tuple[str, ...]) -> ClusterNodes:
    model = Endpoint("redis", "", {}, "cluster", fixed=False)
    return ClusterNodes(tuple(model.at(name, PORT) for name in names), "redis+cluster://sim")
