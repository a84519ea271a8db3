"""How each kind of fault of a plan is done to the world, and taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulator.plan import NETWORK, Fault

if TYPE_CHECKING:
    from tests.simulator.node import Keys, Node, Pair
    from tests.simulator.stage import Stage

__all__ = ["plant", "strike"]

_SERVER_DOWN = 0.3


def _node(sim: Stage, fault: Fault) -> Node:
    return sim.fleet.struck(fault.node)


def strike(sim: Stage, fault: Fault) -> None:
    """Have a fault that was aimed happen soon."""
    world = sim.world
    kept = [_keep(sim, fault)] if fault.kind in ("crash_tail", "failover_lagging") else []
    world.at(world.now + world.random.random() * 4 * sim.plan.base, lambda _: _strike(sim, fault, kept))


def plant(sim: Stage, fault: Fault) -> None:
    """Have a fault happen at its time."""
    world = sim.world
    if fault.aim:
        world.at(fault.at, lambda _: sim.aim(fault))
    elif fault.kind in ("crash_tail", "failover_lagging"):
        kept: list[Any] = []
        if fault.kind == "failover_lagging":
            world.at(max(0.0, fault.at - fault.amount), lambda _: _freeze(sim, fault))
        world.at(max(0.0, fault.at - fault.amount), lambda _: kept.append(_keep(sim, fault)))
        world.at(fault.at, lambda _: _strike(sim, fault, kept))
    else:
        world.at(fault.at, lambda _: _strike(sim, fault, []))


def _freeze(sim: Stage, fault: Fault) -> None:
    pair = _node(sim, fault).pair
    if pair is not None:
        pair.frozen_until = max(pair.frozen_until, sim.world.now + fault.amount)


def _keep(sim: Stage, fault: Fault) -> tuple[Node, Keys]:
    node = _node(sim, fault)
    return node, node.store.snapshot()


def _tail_of(node: Node, kept: list[Any]) -> Keys | None:
    """What a server had a moment before; None, what it has, if its slot had another server by then."""
    whose, keys = kept[0]
    return keys if whose is node or (node.pair is not None and whose.pair is node.pair) else None


def _strike(sim: Stage, fault: Fault, kept: list[Any]) -> None:
    world = sim.world
    world.note("fault", fault.kind, fault.last, -1 if fault.client is None else fault.client, fault.amount)
    sim.strike(fault)
    _note_trouble(sim, fault)
    if fault.kind in NETWORK and fault.kind not in ("delay", "reset"):
        _impair(sim, fault)
    else:
        _DONE[fault.kind](sim, fault, kept)


_ONE_NODE = frozenset(
    {"stall", "crash_keep", "loading", "no_memory", "read_only", "no_scripts", "reset", "slow", "break"}
)
_FORGETS = frozenset(
    {"crash_keep", "crash_empty", "crash_tail", "clock_forward", "clock_back", "flush", "evict"}
)


def _note_trouble(sim: Stage, fault: Fault) -> None:
    """Note what may keep independent masters from doing their work."""
    node = _node(sim, fault)
    if fault.kind in _FORGETS:
        # Clients cannot tell what a master that restarted still knows; and one may forget, or count, by itself.
        sim.liveness.with_tombstone(node, fault.last)
    elif fault.kind == "admin_delete":
        sim.liveness.trouble(1.1 * sim.plan.longest_ttl())
    elif fault.kind not in ("rolling", "all_slow"):
        sim.liveness.trouble(fault.last, node if fault.kind in _ONE_NODE else None)


def _impair(sim: Stage, fault: Fault) -> None:
    whom = "" if fault.client is None else sim.names[fault.client]
    faults = sim.network.faults
    faults.setdefault(fault.kind, {})[whom] = fault.amount

    def heal(_: object) -> None:
        on = faults.get(fault.kind)
        if on is not None:
            on.pop(whom, None)
            if not on:
                del faults[fault.kind]

    sim.world.at(sim.world.now + fault.last, heal)


def _delay(sim: Stage, fault: Fault, _: list[Any]) -> None:
    network, base = sim.network, sim.plan.base
    network.base = base * fault.amount
    sim.world.at(sim.world.now + fault.last, lambda _: setattr(network, "base", base))


def _reset(sim: Stage, fault: Fault, _: list[Any]) -> None:
    whom = None if fault.client is None else sim.names[fault.client]
    links = _node(sim, fault).links
    for channel, link in list(links.items()):
        if whom is None or link.process.name == whom:
            del links[channel]
            link.process.deliver(sim.world.now, link._reset, "reset by peer")
            link.run = -2


def _stall(sim: Stage, fault: Fault, _: list[Any]) -> None:
    node = _node(sim, fault)
    node.stalled_until = max(node.stalled_until, sim.world.now + fault.last)


def _crash_keep(sim: Stage, fault: Fault, _: list[Any]) -> None:
    _down(sim, fault, fault.last, lambda node: node.start(None))


def _crash_tail(sim: Stage, fault: Fault, kept: list[Any]) -> None:
    _down(sim, fault, fault.last, lambda node: node.start(_tail_of(node, kept), noticed=sim.fleet.masters))


def _crash_empty(sim: Stage, fault: Fault, _: list[Any]) -> None:
    _down(sim, fault, fault.last, lambda node: node.start(({}, {}), noticed=sim.fleet.masters))


def _failover_synced(sim: Stage, fault: Fault, _: list[Any]) -> None:
    def promote(node: Node) -> None:
        node.set_clock(fault.amount)
        node.start(None)

    pair = _node(sim, fault).pair
    if pair is not None:
        _switch(sim, pair, fault, arrived=True)
    else:
        _down(sim, fault, fault.last + _SERVER_DOWN, promote)


def _failover_lagging(sim: Stage, fault: Fault, kept: list[Any]) -> None:
    pair = _node(sim, fault).pair
    if pair is not None:
        _switch(sim, pair, fault, arrived=False)
    else:
        _down(sim, fault, fault.last + _SERVER_DOWN, lambda node: node.start(_tail_of(node, kept)))


def _switch(sim: Stage, pair: Pair, fault: Fault, *, arrived: bool) -> None:
    """Make the replica the master; the old one is dead, or goes on beside it for a while."""
    world, old = sim.world, pair.master
    if not old.up or not pair.replica.up or pair.replica.loading:
        return
    # In a cluster a master that is cut off serves nothing any more by the time its replica stands in.
    dies = arrived or sim.fleet.cluster is not None or world.random.random() < 0.5
    if dies:
        _break(sim, old)
        old.crash()
    else:
        pair.frozen_until = world.now + 1e9

    def promote(_: object) -> None:
        if pair.master is not old:
            return
        new = pair.replica
        # That what counts is never lost is promised of a failover to a server that has it. After one failover the only
        # copy may be the master that stands in: a second one to a server that started over, and has nothing of it yet,
        # loses what was acknowledged by the first replica.
        kept = arrived or (sim.fleet.durable and pair.whole)
        pair.promote(arrived=arrived)
        # Ends of leases are times of the server's clock: where the two clocks differ, it jumps here, and not before.
        if new.shift_us != old.shift_us or not kept:
            new.lost_memory_at = world.now
        world.at(world.now + fault.last * world.random.random(), demote)

    def demote(_: object) -> None:
        if old.up:
            _break(sim, old)
            old.crash()
        pair.follow(old)

    world.at(world.now + fault.last + _SERVER_DOWN, promote)


def _break(sim: Stage, node: Node) -> None:
    for link in list(node.links.values()):
        link.process.deliver(sim.world.now + sim.network.delay(), link._reset, "the server ended")


def _down(sim: Stage, fault: Fault, seconds: float, start: Callable[[Node], object]) -> None:
    node = _node(sim, fault)
    if not node.up:
        return
    _break(sim, node)
    node.crash()

    def up(_: object) -> None:
        start(node)
        if sim.fleet.cluster is not None:
            sim.fleet.cluster.started(node)
        sim.oracle.refresh(node)

    sim.world.at(sim.world.now + seconds, up)


def _clock_forward(sim: Stage, fault: Fault, _: list[Any]) -> None:
    node = _node(sim, fault)
    node.set_clock(fault.amount)
    sim.oracle.refresh(node)


def _clock_back(sim: Stage, fault: Fault, _: list[Any]) -> None:
    node = _node(sim, fault)
    node.set_clock(-fault.amount)
    sim.oracle.refresh(node)


def _flag(of: Callable[[Node], object], name: str) -> Callable[[Stage, Fault, list[Any]], None]:
    def strike(sim: Stage, fault: Fault, _: list[Any]) -> None:
        target = of(_node(sim, fault))
        setattr(target, name, True)
        sim.world.at(sim.world.now + fault.last, lambda _: setattr(target, name, False))

    return strike


def _no_scripts(sim: Stage, fault: Fault, _: list[Any]) -> None:
    _node(sim, fault).scripts.clear()


def _flush(sim: Stage, fault: Fault, _: list[Any]) -> None:
    node = _node(sim, fault)
    node.flush()
    sim.oracle.refresh(node)


def _evict(sim: Stage, fault: Fault, _: list[Any]) -> None:
    node = _node(sim, fault)
    keys = sorted(node.store.data)
    if keys:
        node.forget(sim.world.random.choice(keys))
        sim.oracle.refresh(node)


def _admin_delete(sim: Stage, _fault: Fault, _: list[Any]) -> None:
    for node in sim.fleet.nodes:
        for key in sim.main_keys():
            node.forget(key.encode())
        sim.oracle.refresh(node)


def _pause(sim: Stage, fault: Fault, _: list[Any]) -> None:
    sim.process(fault).pause(fault.last)


def _suspend(sim: Stage, fault: Fault, _: list[Any]) -> None:
    sim.process(fault).suspend_machine(fault.last)


def _wall_jump(sim: Stage, fault: Fault, _: list[Any]) -> None:
    sim.process(fault).clock.wall_offset += fault.amount * (1 if sim.world.random.random() < 0.5 else -1)


def _kill(sim: Stage, fault: Fault, _: list[Any]) -> None:
    sim.kill(fault.client or 0, restart_after=fault.last)


def _cancel(sim: Stage, fault: Fault, _: list[Any]) -> None:
    sim.cancel(fault.client or 0, after=int(fault.amount))


def _close(sim: Stage, fault: Fault, _: list[Any]) -> None:
    sim.close(fault.client or 0, restart_after=fault.last)


def _break_off(sim: Stage, fault: Fault, _: list[Any]) -> None:
    """Connections to a master break, before or after what was sent on them was done."""
    node = _node(sim, fault)
    node.breaks = fault.amount
    sim.world.at(sim.world.now + fault.last, lambda _: setattr(node, "breaks", 0.0))


def _slow(sim: Stage, fault: Fault, _: list[Any]) -> None:
    node = _node(sim, fault)
    far = sim.plan.far[sim.fleet.nodes.index(node)] if sim.plan.far else 0.0
    node.far = far + fault.amount
    sim.world.at(sim.world.now + fault.last, lambda _: setattr(node, "far", far))


def _all_slow(sim: Stage, fault: Fault, _: list[Any]) -> None:
    """All masters answer later from now on. They do answer: nobody is excused by that."""

    def become(seconds: float) -> None:
        for number, node in enumerate(sim.fleet.nodes):
            node.far = (sim.plan.far[number] if sim.plan.far else 0.0) + seconds

    become(fault.amount)
    sim.world.at(sim.world.now + fault.last, lambda _: become(0.0))


def _new_threads(sim: Stage, fault: Fault, _: list[Any]) -> None:
    """The threads of a client end, and others go on with their work: with no connection of their own yet."""
    for member in sim.members if fault.client is None else [sim.members[fault.client]]:
        if member.process.alive:
            for runtime in member.runtimes:
                runtime.new_threads()


def _rolling(sim: Stage, fault: Fault, _: list[Any]) -> None:
    """All masters restart without their data, one after the other, as far apart as it has to be."""
    gap = 2.5 * sim.plan.longest_ttl() + 3.0
    for number, node in enumerate(sim.fleet.nodes):
        one = Fault("crash_empty", 0.0, fault.last, node=number)

        def restart(_: object, one: Fault = one, node: Node = node) -> None:
            sim.liveness.with_tombstone(node, one.last)
            _crash_empty(sim, one, [])

        sim.world.at(sim.world.now + number * gap, restart)
    sim.world.at(sim.world.now + len(sim.fleet.nodes) * gap, lambda _: sim.rolled())


def _slot_move(sim: Stage, fault: Fault, _: list[Any]) -> None:
    """A slot is another master's at once, as servers that move slots whole do it."""
    cluster = sim.fleet.cluster
    if cluster is not None and (slot := cluster.depart(fault.node)) >= 0:
        cluster.arrive(slot, fault.last)


def _slot_half(sim: Stage, fault: Fault, _: list[Any]) -> None:
    """A slot is on its way for a while, key by key; then it is there, or was called back."""
    cluster, world = sim.fleet.cluster, sim.world
    slot = -1 if cluster is None else cluster.depart(fault.node)
    if cluster is None or slot < 0:
        return
    for _step in range(world.random.randrange(4)):
        when = world.now + fault.last * world.random.random()
        world.at(when, lambda _: cluster.carry(slot, world.random.random()))
    back = world.random.random() < 0.25
    world.at(world.now + fault.last, lambda _: cluster.arrive(slot, fault.last, back=back))


def _shard_failover(sim: Stage, fault: Fault, _: list[Any]) -> None:
    """``CLUSTER FAILOVER``: master and replica change places, with nothing lost and all connections kept."""
    world, old = sim.world, _node(sim, fault)
    pair = old.pair
    if pair is None or sim.fleet.cluster is None or not old.up or not pair.replica.up or not pair.follows:
        return
    pause = min(fault.last, _SERVER_DOWN) * world.random.random()
    old.stalled_until = max(old.stalled_until, world.now + pause)

    def change(_: object) -> None:
        new = pair.replica
        if pair.master is old and old.up and new.up and pair.follows:
            pair.promote(arrived=True)
            if new.shift_us != old.shift_us:
                new.lost_memory_at = world.now
            pair.follow(old)

    world.at(world.now + pause, change)


def _cluster_down(sim: Stage, fault: Fault, _: list[Any]) -> None:
    cluster = sim.fleet.cluster
    if cluster is not None:
        cluster.down_until = max(cluster.down_until, sim.world.now + fault.last)


def _one_reply(sim: Stage, fault: Fault, _: list[Any]) -> None:
    name = sim.names[fault.client or 0]
    sim.network.swallow[name] = sim.network.swallow.get(name, 0) + 1


_DONE: dict[str, Callable[[Stage, Fault, list[Any]], None]] = {
    "one_reply": _one_reply,
    "delay": _delay,
    "reset": _reset,
    "stall": _stall,
    "crash_keep": _crash_keep,
    "crash_tail": _crash_tail,
    "crash_empty": _crash_empty,
    "failover_synced": _failover_synced,
    "failover_lagging": _failover_lagging,
    "clock_forward": _clock_forward,
    "clock_back": _clock_back,
    "no_memory": _flag(lambda node: node.store, "no_memory"),
    "read_only": _flag(lambda node: node.store, "replica"),
    "loading": _flag(lambda node: node, "loading"),
    "no_scripts": _no_scripts,
    "flush": _flush,
    "evict": _evict,
    "admin_delete": _admin_delete,
    "pause": _pause,
    "suspend": _suspend,
    "wall_jump": _wall_jump,
    "kill": _kill,
    "cancel": _cancel,
    "close": _close,
    "break": _break_off,
    "slow": _slow,
    "all_slow": _all_slow,
    "new_threads": _new_threads,
    "rolling": _rolling,
    "slot_move": _slot_move,
    "slot_half": _slot_half,
    "shard_failover": _shard_failover,
    "cluster_down": _cluster_down,
}
