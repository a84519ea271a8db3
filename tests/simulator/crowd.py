"""Crowds: seeds with an operator who takes names away, and waiters that wait in circles.

The seeds of ``drawing`` have few workers in many clients; here most are in one client, so that a grant passes from one
to the next many times, in a local run or in strict order. What the server knows of such a lease by its fence, the
client must know at every place of the run: a circle is found, and an operator's word reaches its holder.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulator.drawing import draw
from tests.simulator.plan import Client, Fault, Operation, Plan

__all__ = ["draw_crowd", "draw_tangle"]

_FORMS: tuple[tuple[str, dict[str, object]], ...] = (
    ("lock", {}),
    ("lock", {}),
    ("lock", {"handover": 64}),
    ("lock", {"handover": 3}),
    ("lock", {"handover": 0}),
    ("fair_lock", {}),
    ("rlock", {}),
)
_LONG = 2.5
"""Seconds of a hold that others wait for long."""

_PATIENT = 8.0
"""Seconds after which a deadlock must have been found."""


def draw_crowd(seed: int) -> Plan:
    """The plan of a seed.

    Args:
        seed: The seed.
    """
    rng = Random(f"crowd of {seed}")
    ttl = rng.choice((30.0, 30.0, 3.0))
    locks = tuple(
        (kind, name, {"ttl": ttl, **form})
        for name, (kind, form) in (("a", rng.choice(_FORMS)), ("b", rng.choice(_FORMS)))
    )
    many, few = rng.choice((6, 18, 24)), rng.choice((0, 1, 3))
    crowd = [_worker(rng) for _ in range(many)]
    rivals = [_worker(rng) for _ in range(few)]
    circles = rng.random() < 0.5
    if circles:
        # Each behind a crowd, so that its grant came out of a run.
        first, second = _circle(rng, 0, 1), _circle(rng, 1, 0)
        crowd.append(first)
        (rivals if rivals and rng.random() < 0.5 else crowd).append(second)
    apis = rng.choice(("tasks", "tasks", "threads")), rng.choice(("tasks", "threads"))
    clients = [Client(apis[0], 1.0, deaf=False, workers=tuple(crowd))]
    if rivals:
        clients.append(Client(apis[1], 1.0, deaf=False, workers=tuple(rivals)))
    clients.append(Client("tasks", 1.0, deaf=False, workers=(_operator(rng),)))
    plain = draw(seed, ["delay"], families=["mutex"], topologies=["single"])
    lone: tuple[Fault, ...] = ()
    if rng.random() < 0.4:
        # One reply is lost, on whichever connection: nothing but its own request may feel it.
        lone = tuple(Fault("one_reply", round(at + rng.random(), 4), client=0) for at in (0.2, 3.5, 6.8))
    return replace(
        plain, locks=locks, clients=tuple(clients), faults=lone, tail=0.0, moving_us=0, deadlock_after=0.2
    )


def draw_tangle(seed: int) -> Plan:
    """The plan of a seed whose workers take locks of every kind in any order, one inside the other.

    Waiters that wait for each other are refused one after the other, and each refusal serves others, among them some
    that are about to be refused as well.

    Args:
        seed: The seed.
    """
    rng = Random(f"tangle of {seed}")
    locks: list[tuple[str, str, dict[str, object]]] = []
    # Each worker takes the names of one group. Those of all groups are looked at, and refused, together.
    groups: list[list[int]] = []
    for group in range(rng.choice((1, 3, 6))):
        groups.append([])
        for number in range(rng.choice((3, 4, 5))):
            # Each has one holder at a time: no other is followed.
            kind = rng.choice(("lock", "rwlock_write", "semaphore"))
            options: dict[str, object] = {"ttl": 30.0, **({"permits": 1} if kind == "semaphore" else {})}
            groups[-1].append(len(locks))
            locks.append((kind, f"{group}.{number}", options))
    clients = tuple(
        Client(
            rng.choice(("tasks", "tasks", "threads")), 1.0, deaf=False,
            workers=tuple(_tangled(rng, group) for group in groups for _ in range(2)),
        )
        for _ in range(rng.choice((2, 3)))
    )  # fmt: skip
    plain = draw(seed, ["delay"], families=["mutex"], topologies=["single"])
    return replace(plain, locks=tuple(locks), clients=clients, faults=(), moving_us=0, deadlock_after=0.2)


def _tangled(rng: Random, group: list[int]) -> tuple[Operation, ...]:
    steps: list[Operation] = []
    for _ in range(3):
        first, *others = rng.sample(group, rng.choice((2, 3)))
        inner = ",".join(f"{lock}*1" for lock in others)
        body = (f"nest:{inner}:{_PATIENT}",)
        rest = round(rng.uniform(0, 0.02), 4)
        steps.append(Operation(first, "acquire", None, 0.0, body, "block", rest, 1))
    return tuple(steps)


def _worker(rng: Random) -> tuple[Operation, ...]:
    """Short holds, and now and then a long one."""
    steps: list[Operation] = []
    for _ in range(rng.randrange(3, 12)):
        hold = _LONG * rng.uniform(0.6, 1.4) if rng.random() < 0.06 else rng.choice((0.0, 0.0, 0.0002, 0.001))
        steps.append(Operation(0 if rng.random() < 0.8 else 1, "acquire", None, round(hold, 4)))
    return tuple(steps)


def _circle(rng: Random, outer: int, inner: int) -> tuple[Operation, ...]:
    """Take one lock and then, inside of it, the other."""
    before = tuple(Operation(outer, "acquire", None) for _ in range(rng.randrange(3)))
    crossing = Operation(outer, "acquire", None, 0.0, (f"cross:{inner}:{_PATIENT}",), "block")
    return (*before, *(crossing,) * 3)


def _operator(rng: Random) -> tuple[Operation, ...]:
    return tuple(
        step
        for _ in range(rng.randrange(4))
        for step in (
            Operation(0, "inspect", rest=round(rng.uniform(0.2, 3.0), 4)),
            Operation(rng.choice((0, 0, 1)), "force"),
        )
    )
