"""P4, P4c, P5: 32 workers of one process on one name, nothing done while it is held."""

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
    Metric("server_us_per_pair", "server CPU us", 1),
)
_STRICT = Participant("pawlock-strict", "pawlock", {"handover": 0})
_DEFAULT = Participant("pawlock", "pawlock")
_PRL = Participant("python-redis-lock", "python-redis-lock", workload="contended-threads")
_REDIS = Participant("redis-py", "redis-py")
_REDIS_BEST = Participant("redis-py-best", "redis-py", {"best": 1})
_OTHERS = (Participant("sherlock", "sherlock", {"best": 1}), Participant("redlock-ng", "redlock-ng"))
_TASKS = (Participant("redlock-ng", "redlock-ng"), Participant("aioredlock", "aioredlock"))
_NODE = (
    Participant("node-redlock", "node-redlock", workload="crowd"),
    Participant("node-redlock-best", "node-redlock", {"best": 1}, workload="crowd"),
)
_FOREIGN = (
    *_NODE,
    Participant("redsync", "redsync", workload="crowd"),
    Participant("redsync-best", "redsync", {"best": 1}, workload="crowd"),
    Participant("bsm-redislock-best", "bsm-redislock", {"best": 1}, workload="crowd"),
    Participant("rueidislock", "rueidislock", workload="crowd"),
    Participant("rueidislock-best", "rueidislock", {"best": 1}, workload="crowd"),
    Participant("redisson", "redisson", workload="crowd"),
    Participant("redisson-fair", "redisson", {"fair": 1}, workload="crowd"),
)
_AHEAD_OF = ("redsync-best", "rueidislock-best", "redisson", "redisson-fair")


def _bars(ahead_of: tuple[str, ...], strict: float = 3.0) -> tuple[Bar, ...]:
    return (
        Bar("handoffs_per_s", "pawlock-strict", strict, 6.0, against="python-redis-lock"),
        Bar("handoffs_per_s", "pawlock", 8.0, 15.0, against="python-redis-lock"),
        Bar("jain", "pawlock-strict", 0.99, None),
        Bar("jain", "pawlock", 0.99, None),
        Bar("most_to_least", "pawlock-strict", 1.1, None, better="lower"),
        Bar("most_to_least", "pawlock", 1.1, None, better="lower"),
        Bar("commands_per_grant", "pawlock-strict", 2.02, 2.0, better="lower"),
        Bar("commands_per_grant", "pawlock", 0.15, None, better="lower"),
        *(Bar("handoffs_per_s", "pawlock", 1.0, None, against=other) for other in ahead_of),
        *(
            Bar("commands_per_grant", "pawlock", 1.0, None, against=other, better="lower")
            for other in ahead_of
        ),
    )


_NOTES = (
    "a hand-off is a grant to a different worker than the previous one; acquired/s counts every grant",
    "round trips: commands the client sent for one grant, from the server's own count",
)

SCENARIOS = (
    Scenario(
        name="P4",
        title="32 threads of one process on one name, empty section",
        workload="contended-threads",
        workers=32,
        participants=(_STRICT, _DEFAULT, _PRL, _REDIS, _REDIS_BEST, *_OTHERS, *_FOREIGN),
        metrics=_METRICS,
        bars=_bars(_AHEAD_OF),
        seconds=0.8,
        notes=_NOTES,
    ),
    Scenario(
        name="P4c",
        title="the same with the threads on one CPU and the server on another",
        workload="contended-threads",
        workers=32,
        participants=(_STRICT, _DEFAULT, _PRL, _REDIS, _REDIS_BEST),
        metrics=_METRICS,
        bars=_bars(()),
        seconds=0.8,
        pinned=True,
        notes=_NOTES,
    ),
    Scenario(
        name="P5",
        title="32 asyncio tasks of one loop on one name, empty section",
        workload="contended-tasks",
        workers=32,
        participants=(_STRICT, _DEFAULT, _PRL, _REDIS, _REDIS_BEST, *_TASKS, *_NODE),
        metrics=_METRICS,
        bars=_bars((), 4.0),
        seconds=0.8,
        notes=(*_NOTES, "python-redis-lock has no asyncio API: it runs 32 threads in the same rounds"),
    ),
)
