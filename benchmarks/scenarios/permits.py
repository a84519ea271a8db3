"""S1, S2: what a permit, a read and a write cost beside the mutex, when nobody else wants the name."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

_METRICS = (
    Metric("pairs_per_s", "pairs/s", 0, spread=True),
    Metric("us_per_pair", "us/pair", 1),
    Metric("cpu_us_per_pair", "client CPU us", 1, spread=True),
    Metric("server_us_per_pair", "server CPU us", 1),
    Metric("commands_per_grant", "round trips", 2),
)
_KINDS = ("pawl-semaphore", "pawl-read", "pawl-write")
_TOOK_PART = (Participant("pawl", "pawl"), *(Participant(kind, kind) for kind in _KINDS))


def _bars() -> tuple[Bar, ...]:
    cost = (Bar("cpu_us_per_pair", kind, 2.0, 1.3, against="pawl", better="lower") for kind in _KINDS)
    trips = (Bar("commands_per_grant", kind, 2.02, 2.0, better="lower") for kind in _KINDS)
    return (*cost, *trips)


SCENARIOS = (
    Scenario(
        name="S1",
        title="one thread, a permit, a read and a write of a free name, beside the mutex",
        workload="pair-threads",
        workers=1,
        participants=_TOOK_PART,
        metrics=_METRICS,
        bars=_bars(),
        slices=4,
        seconds=0.15,
    ),
    Scenario(
        name="S2",
        title="the same with one asyncio task",
        workload="pair-tasks",
        workers=1,
        participants=_TOOK_PART,
        metrics=_METRICS,
        bars=_bars(),
        slices=4,
        seconds=0.15,
    ),
)
