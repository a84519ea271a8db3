"""P6: several processes with several workers each, one name, a section that takes a millisecond."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

METRICS = (
    Metric("share_of_ceiling", "share of ceiling", 3, spread=True),
    Metric("handoffs_per_s", "hand-offs/s", 0),
    Metric("acquisitions_per_s", "acquired/s", 0),
    Metric("section_ms", "section ms", 3),
    Metric("wait_p50_ms", "wait p50 ms", 1),
    Metric("wait_p99_ms", "p99", 1),
    Metric("wait_max_ms", "max", 0),
    Metric("wait_p99_to_ideal", "p99/ideal", 2),
    Metric("jain", "Jain", 3),
    Metric("commands_per_grant", "round trips", 2),
    Metric("commands_per_s", "commands/s", 0),
    Metric("cpu_us_per_pair", "client CPU us", 0),
    Metric("server_us_per_pair", "server CPU us", 1),
)
_AHEAD_OF = ("redsync-best", "rueidislock-best", "redisson")
_NOTES = (
    "the ceiling is 1 / the measured section; the ideal wait is the sum of all workers' sections",
    "acquired/s counts every grant, hand-offs/s those to a different worker than the previous one",
    (
        "rueidislock sometimes fails to notify a waiter of a release, and a round did not finish; "
        "here its waiters ask again after 1 s"
    ),
)

SCENARIOS = (
    Scenario(
        name="P6",
        title="4 processes of 8 threads on one name, inside for 1 ms",
        workload="crowd",
        workers=8,
        processes=4,
        section_ms=1.0,
        participants=(
            Participant("pawlock-strict", "pawlock", {"handover": 0}),
            Participant("pawlock", "pawlock"),
            Participant("pawlock-asyncio-strict", "pawlock", {"handover": 0}, workload="crowd-tasks"),
            Participant("pawlock-asyncio", "pawlock", workload="crowd-tasks"),
            Participant("python-redis-lock", "python-redis-lock"),
            Participant("redis-py", "redis-py"),
            Participant("redis-py-best", "redis-py", {"best": 1}),
            Participant("node-redlock", "node-redlock"),
            Participant("redsync-best", "redsync", {"best": 1}),
            Participant("rueidislock-best", "rueidislock", {"best": 1}),
            Participant("redisson", "redisson"),
        ),
        metrics=METRICS,
        bars=(
            Bar("share_of_ceiling", "pawlock-strict", 0.85, 0.92),
            Bar("share_of_ceiling", "pawlock", 0.93, 0.97),
            Bar("share_of_ceiling", "pawlock-asyncio-strict", 0.85, 0.92),
            Bar("share_of_ceiling", "pawlock-asyncio", 0.93, 0.97),
            Bar("wait_p99_to_ideal", "pawlock-strict", 1.6, 1.3, better="lower"),
            Bar("wait_p99_to_ideal", "pawlock", 1.6, 1.3, better="lower"),
            Bar("commands_per_s", "pawlock", 400, None, better="lower"),
            Bar("commands_per_s", "pawlock-asyncio", 400, None, better="lower"),
            *(Bar("handoffs_per_s", "pawlock", 1.0, None, against=other) for other in _AHEAD_OF),
            *(
                Bar("commands_per_grant", "pawlock", 1.0, None, against=other, better="lower")
                for other in _AHEAD_OF
            ),
        ),
        seconds=1.5,
        notes=_NOTES,
    ),
)
