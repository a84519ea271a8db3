"""From a seed to a plan of keys that are shared with programs that are not pawlock."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulator.drawing import draw
from tests.simulator.forms import Lock
from tests.simulator.plan import Plan, Visitor

__all__ = ["draw_plain", "draw_redisson"]

_POLLS = (0.01, 0.1)


def draw_plain(seed: int) -> Plan:
    """The plan of a seed with keys that others hold as a string.

    Args:
        seed: The seed.
    """
    return _shared(seed, "plain")


def draw_redisson(seed: int) -> Plan:
    """The plan of a seed with keys that others hold as Redisson does.

    Args:
        seed: The seed.
    """
    return _shared(seed, "redisson")


def _shared(seed: int, wire: str) -> Plan:
    """That of a mutex, with what a key takes, and one to three strangers beside."""
    plan = draw(seed, families=("mutex",), topologies=("single", "single", "single", "pair"))
    # A generator of its own: what else the seed decides is as it is for a name.
    rng = Random(f"{wire} strangers of {seed}")
    locks = tuple(_lock(lock, wire) for lock in plan.locks)
    names = sorted({name for _, name, _ in locks})
    span = max((fault.at for fault in plan.faults), default=1.0)
    visitors = tuple(_visitor(rng, rng.choice(names), wire, span) for _ in range(rng.choice((1, 1, 2, 3))))
    return replace(plan, locks=locks, visitors=visitors, primitive="key")


def _lock(lock: Lock, wire: str) -> Lock:
    kind, name, options = lock
    if kind == "fair_lock":
        kind, options = "lock", {**options, "handover": 0}
    return kind, name, {**options, "wire": wire}


def _visitor(rng: Random, key: str, wire: str, span: float) -> Visitor:
    return Visitor(
        key,
        wire,
        start=round(rng.random() * span / 2, 4),
        period=round(rng.uniform(*_POLLS), 4),
        hold=rng.choice((0.0, 0.001, 0.02)),
        rest=rng.choice((0.0, 0.01, 0.1)),
        times=rng.choice((3, 10, 20)),
        ttl=rng.choice((0.3, 1.0)),
        dies=rng.random() < 0.3,
    )
