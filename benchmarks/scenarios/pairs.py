"""P1, P1t, P2, P3: what acquire and release cost when nobody else wants the name."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

_METRICS = (
    Metric("pairs_per_s", "pairs/s", 0, spread=True),
    Metric("us_per_pair", "us/pair", 1),
    Metric("cpu_us_per_pair", "client CPU us", 1, spread=True),
    Metric("server_us_per_pair", "server CPU us", 1),
    Metric("commands_per_grant", "round trips", 2),
)
_PAWL = Participant("pawl", "pawl")
_REDIS = Participant("redis-py", "redis-py")
_PRL = Participant("python-redis-lock", "python-redis-lock")
_EVALSHA = Participant("floor-evalsha", "floor-evalsha")
_SET = Participant("floor-set", "floor-set")
_SCRIPTS = Participant("floor-scripts", "floor-scripts")


def _faster(must: float, goal: float) -> Bar:
    return Bar("pairs_per_s", "pawl", must, goal, against="redis-py")


SCENARIOS = (
    Scenario(
        name="P1",
        title="one thread, acquire + release of a free name",
        workload="pair-threads",
        workers=1,
        participants=(_PAWL, _REDIS, _PRL, _SCRIPTS, _EVALSHA, _SET),
        metrics=_METRICS,
        bars=(
            _faster(1.8, 2.2),
            Bar("cpu_us_per_pair", "pawl", 1.4, 1.2, against="floor-evalsha", better="lower", binding=False),
            Bar("us_per_pair", "pawl", 1.4, 1.2, against="floor-evalsha", better="lower", binding=False),
            Bar("commands_per_grant", "pawl", 2.02, 2.0, better="lower"),
        ),
        slices=4,
        seconds=0.15,
    ),
    Scenario(
        name="P1t",
        title="16 threads of one process, each on a name of its own",
        workload="pair-threads",
        workers=16,
        participants=(_PAWL, _REDIS, _SCRIPTS),
        metrics=_METRICS,
        bars=(_faster(2.2, 5.0),),
        slices=3,
        seconds=0.25,
    ),
    Scenario(
        name="P2",
        title="one asyncio task, acquire + release of a free name",
        workload="pair-tasks",
        workers=1,
        participants=(_PAWL, _REDIS),
        metrics=_METRICS,
        bars=(_faster(1.8, 2.4),),
        slices=4,
        seconds=0.15,
        notes=("redis-py here is redis.asyncio.lock.Lock",),
    ),
    Scenario(
        name="P3",
        title="100 asyncio tasks of one loop, each on a name of its own",
        workload="pair-tasks",
        workers=100,
        participants=(_PAWL, _REDIS),
        metrics=_METRICS,
        bars=(_faster(5.0, 8.0),),
        slices=3,
        seconds=0.25,
        notes=("redis-py here is redis.asyncio.lock.Lock",),
    ),
)
