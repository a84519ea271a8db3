"""From a seed to a plan.

Each seed takes a few kinds of faults out of all: a run with few kinds at once finds more than one in which everything
breaks all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.simulator import forms
from tests.simulator.forms import Lock, draw_locks, draw_step
from tests.simulator.plan import (
    CLIENT,
    CLUSTER,
    EVERYWHERE,
    NETWORK,
    OPERATIONS,
    Client,
    Fault,
    Operation,
    Plan,
)

__all__ = ["draw", "draw_masters"]

_LEAST = 40
"""Operations of a run, at least."""

_LOSES = 6
"""Of so many seeds one has holders that are away for longer than their leases live."""

_TOPOLOGIES: dict[str, dict[str, float]] = {
    "mutex": {"single": 0.82, "pair": 0.11, "redlock3": 0.05, "redlock5": 0.02},
    "multi_lock": {"single": 0.82, "pair": 0.12, "redlock3": 0.06},
    "semaphore": {"single": 0.85, "pair": 0.15},
    "rwlock": {"single": 0.85, "pair": 0.15},
    "election": {"single": 0.85, "pair": 0.15},
    "once": {"single": 0.85, "pair": 0.15},
}
"""What the servers may be to each other, for each family."""

_ONCE = "once"

_FORGETS = 160.0
"""Seconds after which a latch has forgotten every request."""

_CLUSTERS = 0.12
"""The share of the seeds with one server that have a cluster instead."""

_NOT_MASTERS = frozenset({"failover_synced", "failover_lagging", "message_loss"})
"""Faults that independent masters do not have: they have no replicas, and wake nobody."""


def draw(
    seed: int, only: Sequence[str] = (), *, families: Sequence[str] = (), topologies: Sequence[str] = ()
) -> Plan:
    """The plan of a seed.

    Args:
        seed: The seed.
        only: The kinds of faults to choose from; default: all.
        families: What it may be about, one of the first words of a primitive's kind; default: everything.
        topologies: What the servers may be to each other; default: everything that the family can have.
    """
    rng = Random(seed)
    rng, family = _family(rng, seed, families, chosen=bool(topologies))
    known = _TOPOLOGIES.get(family, {"single": 1.0})
    topology = _pick(rng, {one: known.get(one, 1e-9) for one in topologies or known})
    if topology == "cluster" or (topology == "single" and not topologies):
        # A generator of its own: what the seeds with other servers decide stays as it is.
        own = Random(f"cluster of {seed}")
        if own.random() < _CLUSTERS or topology == "cluster":
            rng, topology = own, "cluster"
    ttl = rng.choice((0.3, 1.0, 1.0, 3.0, 3.0, 3.0))
    many = Random(f"masters of {seed}")
    ttl = many.choice((0.3, 1.0, 3.0, 30.0, 30.0)) if topology.startswith("redlock") else ttl
    locks = draw_locks(rng, family, topology, ttl)
    span = rng.choice((1.0, 3.0, 6.0))
    clients = _clients(rng, locks, span)
    kinds = [kind for kind in _kinds(rng, only, topology) if kind != "all_slow" or ttl >= 1.0] or ["delay"]
    aims = _aims(clients)
    drawn = [
        _fault(rng, rng.choice(kinds), span, len(clients), aims) for _ in range(rng.choice((1, 2, 3, 5)))
    ]
    if topology == "cluster" and not only and not any(fault.kind in CLUSTER for fault in drawn):
        drawn.append(_fault(rng, kinds[0], span, len(clients), aims))
    if seed % _LOSES == _LOSES - 1 and not only and family not in ("latch", "barrier"):
        drawn += _losses(seed, len(clients), ttl, span)
    plan = Plan(
        seed,
        locks,
        clients,
        tuple(sorted(drawn, key=lambda fault: fault.at)),
        base=rng.choice((0.0002, 0.0005, 0.002)),
        tail=rng.choice((0.0, 0.01, 0.05)),
        node_rate=1 + rng.uniform(-0.004, 0.004),
        moving_us=rng.choice((0, 0, 2500)),
        primitive=family,
        topology=topology,
    )
    return _of_topology(many, plan, span, ttl, aims, only)


def _family(rng: Random, seed: int, families: Sequence[str], *, chosen: bool) -> tuple[Random, str]:
    """What a seed is about, and what decides the rest."""
    known = forms.families()
    family = _pick(rng, {one: known[one] for one in families or known if families or one != _ONCE})
    # A generator of its own: what the other seeds decide stays as it is.
    own = Random(f"which of {seed} is once")
    if not families and not chosen and own.random() < known[_ONCE]:
        return own, _ONCE
    return rng, family


def draw_masters(seed: int) -> Plan:
    """The plan of a seed with several independent masters.

    Args:
        seed: The seed.
    """
    return draw(seed, families=("mutex", "multi_lock"), topologies=("redlock3", "redlock5"))


def _of_topology(
    rng: Random, plan: Plan, span: float, ttl: float, aims: Sequence[str], only: Sequence[str]
) -> Plan:
    """What several masters have: distances, loops of one client, faults of their own; or what a cluster has."""
    if not plan.topology.startswith("redlock"):
        return _paused(plan, span)
    count = int(plan.topology.removeprefix("redlock"))
    # A lease that is over before a round trip is of no use to anybody.
    near, far = (0.0,) * count, min(rng.choice((0.02, 0.04, 0.08, 0.2)), ttl / 100)
    drawn = rng.choice((near, near, (far,) * count, tuple(rng.choice((0.0, far)) for _ in range(count))))
    clients = tuple(
        replace(client, loops=client.api == "tasks" and len(client.workers) > 1 and rng.random() < 0.5)
        for client in plan.clients
    )
    own = rng.choices(("break", "slow", "new_threads"), k=rng.choice((0, 1, 2, 3)))
    more = [_fault(rng, kind, span, len(plan.clients), aims) for kind in ([] if only else own)]
    if ttl <= 1.0 and not only and rng.random() < 0.4:
        more.append(Fault("rolling", round(rng.random() * span / 4, 4), 0.05))
    # A generator of its own: what else the seed decides stays as it is.
    late = Random(f"late masters of {plan.seed}")
    clients = tuple(
        replace(client, later=round(late.choice((0.0, 0.3, 1.0)) * span, 4)) if client.loops else client
        for client in clients
    )
    if ttl >= 3.0 and late.random() < 0.2 and (not only or "all_slow" in only):
        more.append(_fault(late, "all_slow", span, len(plan.clients), aims))
    fresh = rng.random() < 0.5
    if fresh or rng.random() < 0.3:
        # Few faults at once: with many, nothing can be said of how long anything takes.
        keep = rng.choice((0, 1))
        plan = replace(plan, faults=plan.faults[:keep] if more else plan.faults[: keep + 1])
    faults = tuple(sorted((*plan.faults, *more), key=lambda fault: fault.at))
    # Too short for masters that are far, at times: then too few answer, and nobody is said to hold the name.
    short = 0.05 if late.random() < 0.1 else 0.0
    drawn = tuple(min(one, 0.02) for one in drawn) if short else drawn
    return replace(plan, clients=clients, far=drawn, fresh=fresh, faults=faults, node_timeout=short)


def _paused(plan: Plan, span: float) -> Plan:
    """In some runs, a time in the middle in which nobody does anything, until what is remembered of requests lapsed."""
    # A generator of its own: what else the seed decides stays as it is.
    rng = Random(f"pause of {plan.seed}")
    if (plan.topology, plan.primitive) != ("cluster", "latch") or rng.random() < 1 / 3:
        return plan
    seconds = round(_FORGETS + rng.random(), 3)
    clients = tuple(
        replace(
            client,
            workers=tuple(
                (*steps[:half], replace(steps[half], rest=seconds + steps[half].rest), *steps[half + 1 :])
                for steps in client.workers
                if (half := rng.randrange(max(1, len(steps) // 2))) < len(steps)
            ),
        )
        for client in plan.clients
    )
    later = [
        replace(fault, at=round(fault.at % 1 * span / 2 + seconds, 4)) if rng.random() < 0.8 else fault
        for fault in plan.faults
    ]
    return replace(plan, clients=clients, faults=tuple(sorted(later, key=lambda fault: fault.at)))


def _kinds(rng: Random, only: Sequence[str], topology: str) -> list[str]:
    """The few kinds of faults of a run."""
    possible = [
        kind for kind in only or EVERYWHERE if not topology.startswith("redlock") or kind not in _NOT_MASTERS
    ]
    if only:
        return possible or ["delay"]
    if topology == "cluster":
        # What only a cluster has, with or without what all have.
        return rng.sample(CLUSTER, rng.choice((1, 1, 2))) + rng.sample(possible, rng.choice((0, 1, 1, 2, 3)))
    return rng.sample(possible, rng.choice((1, 2, 2, 3, 4)))


def _losses(seed: int, clients: int, ttl: float, span: float) -> list[Fault]:
    """Holders that are away for longer than their leases live, so that others take over."""
    # A generator of its own: what else the seed decides stays as it is.
    rng = Random(f"losses of {seed}")
    return [
        Fault(
            rng.choice(("pause", "pause", "suspend", "kill", "cut_out")),
            round(rng.random() * span / 2, 4),
            round(ttl * rng.uniform(1.2, 2.2), 4),
            client,
            1.0,
            "hold" if rng.random() < 0.9 else "",
        )
        for client in rng.sample(range(clients), 2)
    ]


def _pick(rng: Random, chances: dict[str, float]) -> str:
    return rng.choices(list(chances), list(chances.values()))[0]


def _clients(rng: Random, locks: Sequence[Lock], span: float) -> tuple[Client, ...]:
    made = [
        Client(
            rng.choice(("threads", "tasks")), 1 + rng.uniform(-0.004, 0.004), rng.random() < 0.02,
            ((),) * rng.choice((1, 2, 2, 3)),
        )
        for _ in range(rng.choice((3, 3, 4)))
    ]  # fmt: skip
    workers: list[list[list[Operation]]] = [[[] for _ in client.workers] for client in made]
    every = [steps for of_client in workers for steps in of_client]
    pace = span * len(every) / 18
    number = rng.randrange(len(every))
    operations = 0
    while True:
        # In turn, so that all have about as much to do.
        step = draw_step(rng, locks, pace)
        every[number % len(every)].append(step)
        number += 1
        operations += step.weight
        if number % 4 == 0 and operations >= _LEAST:
            return tuple(
                replace(client, workers=tuple(map(tuple, steps)))
                for client, steps in zip(made, workers, strict=True)
            )


def _aims(clients: Sequence[Client]) -> list[str]:
    """The operations that there are to be struck, the rare ones as often as the others."""
    steps = [step for client in clients for worker in client.workers for step in worker]
    found = {step.how for step in steps} | {act.partition(":")[0] for step in steps for act in step.body}
    if {"acquire", "try", "begin"} & found:
        found |= {"hold", "release"}
    if "begin" in found:
        found |= {"acquire", "reset"}
    found |= {step.end for step in steps if step.end == "pass_on"}
    return sorted(found & {*OPERATIONS})


_CHANCES = {
    "loss": 0.3,
    "reply_loss": 0.3,
    "double": 0.5,
    "late_copy": 0.3,
    "message_loss": 0.7,
    "half_open": 0.2,
}


def _fault(rng: Random, kind: str, span: float, clients: int, aims: Sequence[str]) -> Fault:
    at = round(rng.random() * span, 4)
    last = round(rng.choice((0.05, 0.3, 1.0, 2.0)) * rng.uniform(0.5, 1.5), 4)
    client = rng.randrange(clients) if kind in CLIENT or (kind in NETWORK and rng.random() < 0.5) else None
    amount = 1.0
    if kind in _CHANCES:
        amount = round(_CHANCES[kind] * rng.uniform(0.3, 1.7), 3)
    elif kind in ("clock_forward", "clock_back", "wall_jump"):
        amount = round(
            rng.choice((0.05, 0.5, 3.0, 3.0 if kind == "clock_back" else 60.0)) * rng.uniform(0.5, 1.5), 3
        )
    elif kind in ("crash_tail", "failover_lagging"):
        amount = round(rng.uniform(0.001, 0.5), 4)
    elif kind == "delay":
        amount = rng.choice((10.0, 100.0, 1000.0))
    elif kind == "all_slow":
        last, amount = round(60 * last, 4), rng.choice((0.035, 0.075, 0.13))
    elif kind == "slow":
        amount = rng.choice((0.03, 0.1, 0.4))
    elif kind == "break":
        amount = rng.choice((0.3, 1.0))
    elif kind == "cancel":
        amount = float(rng.randrange(6))
    elif kind == "failover_synced":
        amount = round(rng.uniform(-0.05, 0.05), 4)
    aim = rng.choice(aims) if rng.random() < 0.6 else ""
    return Fault(kind, at, last, client, amount, aim, rng.randrange(5))
