"""P4, P5: 32 workers of one process on one name, nothing done while it is held."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

_METRICS = (
    Metric("handoffs_per_s", "hand-offs/s", 0, spread=True),
    Metric("acquisitions_per_s", "acquired/s", 0),
    Metric("jain", "Jain", 3),
    Metric("most_to_least", "most/least", 2),
    Metric("commands_per_grant", "round trips", 2),
    Metric("wait_p50_ms", "wait p50 ms", 2),
    Metric("wait_p99_ms", "p99", 1),
    Metric("wait_max_ms", "max", 0),
    Metric("cpu_us_per_pair", "client CPU us", 1),
)
_STRICT = Participant("pawl-strict", "pawl", {"handover": 0})
_DEFAULT = Participant("pawl", "pawl")
_PRL = Participant("python-redis-lock", "python-redis-lock", workload="contended-threads")
_REDIS = Participant("redis-py", "redis-py")

_BARS = (
    Bar("handoffs_per_s", "pawl-strict", 4.0, 5.0, against="python-redis-lock"),
    Bar("handoffs_per_s", "pawl", 15.0, 25.0, against="python-redis-lock"),
    Bar("jain", "pawl-strict", 0.99, None),
    Bar("jain", "pawl", 0.99, None),
    Bar("most_to_least", "pawl-strict", 1.1, None, better="lower"),
    Bar("most_to_least", "pawl", 1.1, None, better="lower", binding=False),
    Bar("commands_per_grant", "pawl-strict", 2.1, 2.0, better="lower"),
    Bar("commands_per_grant", "pawl", 0.2, 0.15, better="lower"),
)
_NOTES = (
    "a hand-off is a grant whose owner is another worker than the one before; acquired/s counts every grant",
    "round trips: commands the client sent for one grant, from the server's own count",
)

SCENARIOS = (
    Scenario(
        name="P4",
        title="32 threads of one process on one name, empty section",
        workload="contended-threads",
        workers=32,
        participants=(_STRICT, _DEFAULT, _PRL, _REDIS),
        metrics=_METRICS,
        bars=_BARS,
        seconds=1.0,
        notes=_NOTES,
    ),
    Scenario(
        name="P5",
        title="32 asyncio tasks of one loop on one name, empty section",
        workload="contended-tasks",
        workers=32,
        participants=(_STRICT, _DEFAULT, _PRL),
        metrics=_METRICS,
        bars=_BARS,
        seconds=1.0,
        notes=(*_NOTES, "python-redis-lock has no asyncio colour: it runs 32 threads in the same rounds"),
    ),
)
