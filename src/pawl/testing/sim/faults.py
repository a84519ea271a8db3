"""How each kind of fault of a plan is done to the world, and taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pawl.testing.sim.plan import NETWORK, Fault

if TYPE_CHECKING:
    from pawl.testing.sim.simulation import Simulation

__all__ = ["plant", "strike"]

_SERVER_DOWN = 0.3


def strike(sim: Simulation, fault: Fault) -> None:
    """Have a fault that was aimed happen soon."""
    world = sim.world
    kept = [sim.node.store.snapshot()] if fault.kind in ("crash_tail", "failover_lagging") else []
    world.at(world.now + world.random.random() * 4 * sim.plan.base, lambda _: _strike(sim, fault, kept))


def plant(sim: Simulation, fault: Fault) -> None:
    """Have a fault happen at its time."""
    world = sim.world
    if fault.aim:
        world.at(fault.at, lambda _: sim.aim(fault))
    elif fault.kind in ("crash_tail", "failover_lagging"):
        kept: list[Any] = []
        world.at(max(0.0, fault.at - fault.amount), lambda _: kept.append(sim.node.store.snapshot()))
        world.at(fault.at, lambda _: _strike(sim, fault, kept))
    else:
        world.at(fault.at, lambda _: _strike(sim, fault, []))


def _strike(sim: Simulation, fault: Fault, kept: list[Any]) -> None:
    world = sim.world
    world.note("fault", fault.kind, fault.last, -1 if fault.client is None else fault.client, fault.amount)
    sim.strike(fault)
    if fault.kind in NETWORK and fault.kind not in ("delay", "reset"):
        _impair(sim, fault)
    else:
        _DONE[fault.kind](sim, fault, kept)


def _impair(sim: Simulation, fault: Fault) -> None:
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


def _delay(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    network, base = sim.network, sim.plan.base
    network.base = base * fault.amount
    sim.world.at(sim.world.now + fault.last, lambda _: setattr(network, "base", base))


def _reset(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    whom = None if fault.client is None else sim.names[fault.client]
    for channel, link in list(sim.node.links.items()):
        if whom is None or link.process.name == whom:
            del sim.node.links[channel]
            link.process.deliver(sim.world.now, link._reset, "reset by peer")
            link.run = -2


def _stall(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.node.stalled_until = max(sim.node.stalled_until, sim.world.now + fault.last)


def _crash_keep(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    _down(sim, fault.last, lambda: sim.node.start(None))


def _crash_tail(sim: Simulation, fault: Fault, kept: list[Any]) -> None:
    _down(sim, fault.last, lambda: sim.node.start(kept[0]))


def _crash_empty(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    _down(sim, fault.last, lambda: sim.node.start(({}, {})))


def _failover_synced(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    def promote() -> None:
        sim.node.set_clock(fault.amount)
        sim.node.start(None)

    _down(sim, fault.last + _SERVER_DOWN, promote)


def _failover_lagging(sim: Simulation, fault: Fault, kept: list[Any]) -> None:
    _down(sim, fault.last + _SERVER_DOWN, lambda: sim.node.start(kept[0]))


def _down(sim: Simulation, seconds: float, start: Callable[[], object]) -> None:
    node = sim.node
    if not node.up:
        return
    for link in list(node.links.values()):
        link.process.deliver(sim.world.now + sim.network.delay(), link._reset, "the server ended")
    node.crash()

    def up(_: object) -> None:
        start()
        sim.refresh()

    sim.world.at(sim.world.now + seconds, up)


def _clock_forward(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.node.set_clock(fault.amount)
    sim.refresh()


def _clock_back(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.node.set_clock(-fault.amount)
    sim.refresh()


def _flag(of: Callable[[Simulation], object], name: str) -> Callable[[Simulation, Fault, list[Any]], None]:
    def strike(sim: Simulation, fault: Fault, _: list[Any]) -> None:
        target = of(sim)
        setattr(target, name, True)
        sim.world.at(sim.world.now + fault.last, lambda _: setattr(target, name, False))

    return strike


def _no_scripts(sim: Simulation, _fault: Fault, _: list[Any]) -> None:
    sim.node.scripts.clear()


def _flush(sim: Simulation, _fault: Fault, _: list[Any]) -> None:
    sim.node.flush()
    sim.refresh()


def _evict(sim: Simulation, _fault: Fault, _: list[Any]) -> None:
    keys = sorted(sim.node.store.data)
    if keys:
        sim.node.forget(sim.world.random.choice(keys))
        sim.refresh()


def _admin_delete(sim: Simulation, _fault: Fault, _: list[Any]) -> None:
    for _kind, name, _options in sim.plan.locks:
        sim.node.forget(sim.key(name).encode())
    sim.refresh()


def _pause(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.process(fault).pause(fault.last)


def _suspend(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.process(fault).suspend_machine(fault.last)


def _wall_jump(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.process(fault).clock.wall_offset += fault.amount * (1 if sim.world.random.random() < 0.5 else -1)


def _kill(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.kill(fault.client or 0, restart_after=fault.last)


def _cancel(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.cancel(fault.client or 0, after=int(fault.amount))


def _close(sim: Simulation, fault: Fault, _: list[Any]) -> None:
    sim.close(fault.client or 0, restart_after=fault.last)


_DONE: dict[str, Callable[[Simulation, Fault, list[Any]], None]] = {
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
    "no_memory": _flag(lambda sim: sim.node.store, "no_memory"),
    "read_only": _flag(lambda sim: sim.node.store, "replica"),
    "loading": _flag(lambda sim: sim.node, "loading"),
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
}
