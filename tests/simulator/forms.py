"""What a seed may choose from: the primitives in all their forms, and what is done with each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from pawlock.primitives.registry import REGISTRY
from tests.simulator.plan import Operation

__all__ = ["FAMILIES", "Lock", "draw_locks", "draw_step", "families"]

Lock = tuple[str, str, dict[str, Any]]
"""Kind in the registry, name and options."""

_MUTEX: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lock", {}),
    ("lock", {}),
    ("lock", {"handover": 0}),
    ("fair_lock", {}),
    ("lock", {"renew": False}),
    ("lock", {"max_hold": 0.4}),
    ("lock", {"min_hold": 0.05}),
    ("lock", {"max_waiters": 2}),
    ("rlock", {}),
    ("rlock", {"handover": 0}),
)
_PLAIN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lock", {}),
    ("lock", {}),
    ("lock", {"handover": 0}),
    ("lock", {"renew": False}),
    ("lock", {"max_hold": 0.4}),
    ("rlock", {}),
)
"""Those that a majority of masters can keep."""

_PERMITS: tuple[dict[str, Any], ...] = ({}, {}, {}, {"renew": False}, {"max_waiters": 2}, {"min_hold": 0.05})
_RW: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rwlock_read", {}),
    ("rwlock_write", {}),
    ("rwlock_write", {"renew": False}),
)
_ONCE: tuple[dict[str, Any], ...] = ({}, {}, {}, {"renew": False}, {"max_hold": 0.4}, {"max_waiters": 2})
_MULTI: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("multi_lock", "a", {}),
    ("multi_lock", "a", {"renew": False}),
    ("lock", "a", {}),
    ("lock", "a.2", {"handover": 0}),
    ("rlock", "a.2", {}),
)

FAMILIES: dict[str, float] = {
    "mutex": 0.42, "semaphore": 0.14, "rwlock": 0.16, "multi_lock": 0.1, "election": 0.1, "latch": 0.04,
    "barrier": 0.04, "once": 0.06,
}  # fmt: skip
"""What a seed may be about, and how often."""

_DRAWN = frozenset({
    "lock", "rlock", "fair_lock", "semaphore", "rwlock_read", "rwlock_write", "multi_lock", "election",
    "latch", "barrier", "once",
})  # fmt: skip
"""The kinds that these families are made of; any other is a family of its own."""
_REGISTERED = 0.1
"""How often one of those is drawn, beside ``FAMILIES``."""
_FORMS: tuple[dict[str, Any], ...] = ({}, {}, {"renew": False}, {"max_hold": 0.4}, {"max_waiters": 2})


def families() -> dict[str, float]:
    """``FAMILIES``, and each primitive with leases that was registered beside those."""
    more = {one.kind: _REGISTERED for one in REGISTRY.values() if one.kind not in _DRAWN and one.leases}
    return {**FAMILIES, **more}


def draw_locks(rng: Random, family: str, topology: str, ttl: float) -> tuple[Lock, ...]:
    """The primitives of a plan.

    Args:
        rng: Decides.
        family: One of ``families()``.
        topology: What the servers are to each other.
        ttl: The life of every lease.
    """
    count = rng.choice((1, 2, 3))
    names = ["a"] if rng.random() < 0.7 else ["a", "b"]
    forms = _PLAIN if topology.startswith("redlock") else _MUTEX
    locks: list[Lock]
    if family == "mutex":
        locks = [(kind, rng.choice(names), form) for kind, form in (rng.choice(forms) for _ in range(count))]
    elif family == "semaphore":
        permits = rng.choice((1, 2, 3))
        locks = [("semaphore", "a", {"permits": permits, **rng.choice(_PERMITS)}) for _ in range(count)]
    elif family == "rwlock":
        locks = [("rwlock_write", "a", {}), *((k, "a", o) for k, o in (rng.choice(_RW) for _ in range(3)))]
    elif family == "multi_lock":
        locks = [_MULTI[0], *(rng.choice(_MULTI) for _ in range(2))]
    elif family == "election":
        locks = [("election", "a", {}), ("election", "a", rng.choice(({}, {"renew": False})))]
    elif family == "once":
        kept = [{"keep": rng.choice((0.05, 0.3, 2.0)), **rng.choice(_ONCE)} for _ in range(count)]
        locks = [("once", rng.choice(names), form) for form in kept]
    elif family in FAMILIES:
        locks = [(family, "a", {})]
    else:
        locks = [(family, rng.choice(names), rng.choice(_FORMS)) for _ in range(count)]
    return tuple(
        (kind, name, _options(rng, family, topology, {"ttl": ttl, **form})) for kind, name, form in locks
    )


def _options(rng: Random, family: str, topology: str, options: dict[str, Any]) -> dict[str, Any]:
    if family in ("latch", "barrier"):
        return {"ticket_ttl": rng.choice((0.3, 1.0))}
    if rng.random() < 0.1:
        options["ticket_ttl"] = rng.choice((0.1, 0.3))
    if rng.random() < 0.2:
        options["unavailable_after"] = rng.choice((0.2, 3.0))
    if family == "once":
        return options
    if (topology == "pair" and rng.random() < 0.6) or (topology == "cluster" and rng.random() < 0.2):
        options["replicas"] = 1
    return options


def draw_step(rng: Random, locks: Sequence[Lock], pace: float) -> Operation:
    """One step of a worker."""
    number = rng.randrange(len(locks))
    kind, _, options = locks[number]
    if rng.random() < 0.06:
        return Operation(number, "inspect", rest=rng.random() * pace)
    if kind in _OTHERS and (step := _OTHERS[kind](rng, number, pace)) is not None:
        return step
    how = "try" if rng.random() < 0.15 else "acquire"
    timeout = rng.choice((None, None, 5.0, 1.0, 0.2, 0.02)) if how == "acquire" else 0.0
    hold = rng.choice((0.0, 0.001, 0.005, 0.005, 0.02, 0.1, 0.2 * pace))
    if rng.random() < 0.05:
        hold = options["ttl"] * rng.uniform(0.5, 2)
    permits = rng.choice((1, 1, 2, options["permits"])) if kind == "semaphore" else 1
    return Operation(
        number, how, timeout, round(hold, 4), _body(rng, kind, options), _end(rng, kind),
        round(rng.random() ** 2 * pace, 4), min(permits, options.get("permits", 1)),
    )  # fmt: skip


def _body(rng: Random, kind: str, options: dict[str, Any]) -> tuple[str, ...]:
    body: list[str] = []
    if rng.random() < 0.15:
        body.append(f"extend:{options['ttl'] * rng.choice((0.5, 1, 2)):.3g}")
    if kind in ("rlock", "rwlock_read", "rwlock_write") and rng.random() < 0.3:
        body.append("again")
    if kind == "rwlock_write" and rng.random() < 0.4:
        body.append("downgrade")
    if rng.random() < 0.5:
        body.append("blind")
    return tuple(body)


def _end(rng: Random, kind: str) -> str:
    chance = rng.random()
    end = "release" if chance < 0.55 else "block" if chance < 0.86 else "pass_on" if chance < 0.95 else "drop"
    # Only a plain mutex may travel.
    return "block" if end == "pass_on" and kind not in ("lock", "rlock", "fair_lock") else end


def _of_election(rng: Random, number: int, pace: float) -> Operation | None:
    if rng.random() < 0.75:
        return None
    return Operation(
        number, "observe", hold=round(rng.random() * pace, 4), rest=round(rng.random() * pace, 4)
    )


def _of_latch(rng: Random, number: int, pace: float) -> Operation:
    how = rng.choice(("count", "count", "count", "wait", "wait", "wait", "reset"))
    rest = round(rng.random() ** 2 * pace, 4)
    return Operation(number, how, rng.choice((3.0, 1.0, 0.2)), rest=rest, permits=rng.choice((1, 1, 1, 2)))


def _of_barrier(rng: Random, number: int, pace: float) -> Operation:
    return Operation(number, "wait", rng.choice((3.0, 1.0, 0.2)), rest=round(rng.random() ** 2 * pace, 4))


def _of_once(rng: Random, number: int, pace: float) -> Operation:
    rest = round(rng.random() ** 2 * pace, 4)
    if rng.random() < 0.15:
        return Operation(number, "forget", rest=rest)
    hold = rng.choice((0.0, 0.001, 0.005, 0.02, 0.1, 0.2 * pace, pace))
    body = ("blind",) if rng.random() < 0.5 else ()
    if rng.random() < 0.1:
        body = (f"extend:{rng.choice((0.3, 1, 3))}", *body)
    end = rng.choice(("finish", "finish", "finish", "block", "abandon", "abandon", "drop"))
    timeout = rng.choice((None, None, 5.0, 1.0, 0.2, 0.02, 0.0, 0.0))
    return Operation(number, "begin", timeout, round(hold, 4), body, end, rest)


_OTHERS: dict[str, Callable[[Random, int, float], Operation | None]] = {
    "election": _of_election,
    "latch": _of_latch,
    "barrier": _of_barrier,
    "once": _of_once,
}
