"""P7: how long after a release a waiter in another process holds the lock."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

SCENARIOS = (
    Scenario(
        name="P7",
        title="one waiter in another process; ms from just before release() to acquire() returned",
        workload="turns",
        workers=1,
        participants=(
            Participant("pawlock", "pawlock"),
            Participant("python-redis-lock", "python-redis-lock"),
            Participant("redis-py-best", "redis-py", {"best": 1}),
            Participant("node-redlock-best", "node-redlock", {"best": 1}),
            Participant("redsync-best", "redsync", {"best": 1}),
            Participant("rueidislock-best", "rueidislock", {"best": 1}),
            Participant("redisson", "redisson"),
        ),
        metrics=(
            Metric("wake_p50_ms", "p50 ms", 3, spread=True),
            Metric("wake_p90_ms", "p90 ms", 3),
            Metric("wake_p99_ms", "p99 ms", 3, spread=True),
            Metric("wake_min_ms", "min ms", 3),
            Metric("commands_per_grant", "commands", 1),
            Metric("wakes", "wakes", 0),
        ),
        bars=(
            Bar("wake_p50_ms", "pawlock", 0.6, 0.4, against="python-redis-lock", better="lower"),
            Bar("wake_p99_ms", "pawlock", 0.7, 0.5, against="python-redis-lock", better="lower"),
            *(
                Bar("wake_p99_ms", "pawlock", 1.0, None, against=other, better="lower")
                for other in ("redsync-best", "rueidislock-best", "redisson")
            ),
        ),
        # `seconds` counts turns here: each participant plays `slices` times so many in a round.
        slices=1,
        seconds=20,
        notes=("the holder keeps the lock for 60 to 260 ms, so the waiter sleeps when it is woken",),
    ),
)
