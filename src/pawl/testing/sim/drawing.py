"""From a seed to a plan.

Each seed takes a few kinds of faults out of all: a run with few kinds at once finds more than one in which everything
breaks all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from pawl.testing.sim.plan import CLIENT, FAULTS, NETWORK, Client, Fault, Operation, Plan, weight

__all__ = ["draw"]


_FORMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lock", {}),
    ("lock", {}),
    ("lock", {"handover": 0}),
    ("fair_lock", {}),
    ("lock", {"renew": False}),
    ("lock", {"max_hold": 0.4}),
    ("lock", {"min_hold": 0.05}),
    ("lock", {"max_waiters": 2}),
    ("rlock", {}),
    ("rlock_owner", {"owner": "x"}),
    ("rlock_owner", {"owner": "y"}),
)


_LEAST = 40
"""Operations of a run, at least."""


def draw(seed: int, only: Sequence[str] = ()) -> Plan:
    """The plan of a seed.

    Args:
        seed: The seed.
        only: The kinds of faults to choose from; default: all.
    """
    rng = Random(seed)  # noqa: S311 - repeatable, on purpose
    names = ["a"] if rng.random() < 0.7 else ["a", "b"]
    ttl = rng.choice((0.3, 1.0, 1.0, 3.0, 3.0, 3.0))
    locks = tuple(_lock(rng, rng.choice(names), ttl) for _ in range(rng.choice((1, 2, 3))))
    span = rng.choice((1.0, 3.0, 6.0))
    clients = tuple(_client(rng, locks, span) for _ in range(rng.choice((3, 3, 4))))
    while sum(map(weight, clients)) < _LEAST:
        client = clients[0]
        more = (*client.workers[0], _step(rng, locks, 0.1))
        clients = (replace(client, workers=(more, *client.workers[1:])), *clients[1:])
    kinds = only or rng.sample(FAULTS, rng.choice((1, 2, 2, 3, 4)))
    drawn = [_fault(rng, rng.choice(kinds), span, len(clients)) for _ in range(rng.choice((1, 2, 3, 5)))]
    return Plan(
        seed,
        locks,
        clients,
        tuple(sorted(drawn, key=lambda fault: fault.at)),
        base=rng.choice((0.0002, 0.0005, 0.002)),
        tail=rng.choice((0.0, 0.01, 0.05)),
        node_rate=1 + rng.uniform(-0.004, 0.004),
        moving_us=rng.choice((0, 0, 2500)),
        primitive=locks[0][0],
    )


def _lock(rng: Random, name: str, ttl: float) -> tuple[str, str, dict[str, Any]]:
    kind, form = rng.choice(_FORMS)
    options: dict[str, Any] = {"ttl": ttl, **form}
    if rng.random() < 0.1:
        options["ticket_ttl"] = rng.choice((0.1, 0.3))
    if rng.random() < 0.2:
        options["unavailable_after"] = rng.choice((0.2, 3.0))
    return kind, name, options


def _client(rng: Random, locks: tuple[Any, ...], span: float) -> Client:
    workers = rng.choice((1, 2, 2, 3))
    steps = -(-7 // workers)
    return Client(
        rng.choice(("threads", "tasks")),
        1 + rng.uniform(-0.004, 0.004),
        rng.random() < 0.02,
        tuple(tuple(_step(rng, locks, span / steps) for _ in range(steps)) for _ in range(workers)),
    )


def _step(rng: Random, locks: tuple[Any, ...], pace: float) -> Operation:
    lock = rng.randrange(len(locks))
    kind, _, options = locks[lock]
    if rng.random() < 0.06:
        return Operation(lock, "inspect", rest=rng.random() * pace)
    how = "try" if rng.random() < 0.15 else "acquire"
    timeout = rng.choice((None, None, 5.0, 1.0, 0.2, 0.02)) if how == "acquire" else 0.0
    hold = rng.choice((0.0, 0.001, 0.005, 0.005, 0.02, 0.1, 0.2 * pace))
    if rng.random() < 0.05:
        hold = options["ttl"] * rng.uniform(0.5, 2)
    body: list[str] = []
    if rng.random() < 0.15:
        body.append(f"extend:{options['ttl'] * rng.choice((0.5, 1, 2)):.3g}")
    if kind == "rlock" and rng.random() < 0.3:
        body.append("again")
    if rng.random() < 0.5:
        body.append("blind")
    chance = rng.random()
    end = "release" if chance < 0.55 else "block" if chance < 0.86 else "pass_on" if chance < 0.95 else "drop"
    if kind == "rlock_owner" and end == "pass_on":
        end = "block"
    return Operation(lock, how, timeout, round(hold, 4), tuple(body), end, round(rng.random() ** 2 * pace, 4))


_AIMS = ("acquire", "try", "hold", "extend", "extend", "release", "inspect", "inspect", "pass_on", "pass_on")
_CHANCES = {
    "loss": 0.3,
    "reply_loss": 0.3,
    "double": 0.5,
    "late_copy": 0.3,
    "message_loss": 0.7,
    "half_open": 0.2,
}


def _fault(rng: Random, kind: str, span: float, clients: int) -> Fault:
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
    elif kind == "cancel":
        amount = float(rng.randrange(6))
    elif kind == "failover_synced":
        amount = round(rng.uniform(-0.05, 0.05), 4)
    aim = rng.choice(_AIMS) if rng.random() < 0.6 else ""
    return Fault(kind, at, last, client, amount, aim)
