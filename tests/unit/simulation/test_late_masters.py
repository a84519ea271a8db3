"""Masters that all answer late from one moment on, on virtual time: they do answer, so nobody is told otherwise."""

from __future__ import annotations

from itertools import product

from tests.simulator import Client, Operation, Plan, run
from tests.simulator.plan import Fault
from tests.simulator.simulation import quiet

_TRIES = tuple(Operation(0, "try", 0.0, 0.01, (), "release", 0.5) for _ in range(4))


def plan_of(kind: str, api: str, seconds: float, seed: int) -> Plan:
    """One client that tries a free name: once as the masters are near, then as they are far."""
    return Plan(
        seed,
        ((kind, "a", {"ttl": 30.0}),),
        (Client(api, 1.0, False, (_TRIES,)),),
        (Fault("all_slow", 0.3, 600.0, amount=seconds),),
        base=0.0002,
        tail=0.0,
        topology="redlock3",
        primitive="mutex",
        fresh=True,
    )


def test_a_free_name_is_granted_however_late_masters_become() -> None:
    kinds = ("lock", "rlock", "multi_lock")
    with quiet():
        for case in product(kinds, ("threads", "tasks"), (0.02, 0.075, 0.3), range(2)):
            result = run(plan_of(*case))
            assert not result.violation, f"{case}: {result.violation}"
            granted = [what for _, *what in result.trace if "granted" in what]
            assert len(granted) == len(_TRIES), f"{case}: one said no"
