"""P1, P1c, P1t, P2, P2c, P3: what acquire and release cost when nobody else wants the name."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

_METRICS = (
    Metric("pairs_per_s", "pairs/s", 0, spread=True),
    Metric("us_per_pair", "us/pair", 1),
    Metric("cpu_us_per_pair", "client CPU us", 1, spread=True),
    Metric("server_us_per_pair", "server CPU us", 1),
    Metric("commands_per_grant", "round trips", 2),
    Metric("acquire_p50_us", "acquire p50 us", 0),
    Metric("acquire_p99_us", "p99 us", 0),
    Metric("jain", "Jain", 3),
)
_PAWLOCK = Participant("pawlock", "pawlock")
_ANEW = Participant("pawlock-anew", "pawlock", {"anew": 1})
_UVLOOP = Participant("pawlock-uvloop", "pawlock", {"uvloop": 1})
_REDIS = Participant("redis-py", "redis-py")
_REDIS_BEST = Participant("redis-py-best", "redis-py", {"best": 1})
_PRL = Participant("python-redis-lock", "python-redis-lock")
_SHERLOCK = Participant("sherlock", "sherlock")
_NG = Participant("redlock-ng", "redlock-ng")
_POTTERY = Participant("pottery", "pottery")
_AIO = Participant("aioredlock", "aioredlock")
_NODE = Participant("node-redlock", "node-redlock")
_NODE_BEST = Participant("node-redlock-best", "node-redlock", {"best": 1})
_REDSYNC = Participant("redsync", "redsync")
_BSM = Participant("bsm-redislock", "bsm-redislock")
_RUEIDIS = Participant("rueidislock", "rueidislock")
_RUEIDIS_BEST = Participant("rueidislock-best", "rueidislock", {"best": 1})
_REDISSON = Participant("redisson", "redisson")
_EVALSHA = Participant("floor-evalsha", "floor-evalsha")
_SET = Participant("floor-set", "floor-set")
_SCRIPTS = Participant("floor-scripts", "floor-scripts")
_MUX = Participant("floor-mux", "floor-mux")
_SERVER = Participant("server-benchmark", "server-benchmark")
_FOREIGN = ("redsync", "bsm-redislock", "rueidislock-best", "redisson")


def _faster(must: float, goal: float | None, against: str = "redis-py") -> Bar:
    return Bar("pairs_per_s", "pawlock", must, goal, against=against)


def _cpu(must: float, goal: float, against: str) -> Bar:
    return Bar("cpu_us_per_pair", "pawlock", must, goal, against=against, better="lower")


_ANEW_BARS = (
    Bar("cpu_us_per_pair", "pawlock-anew", 1.05, None, against="pawlock", better="lower"),
    Bar("cpu_us_per_pair", "redis-py", 1.8, None, against="pawlock-anew"),
)
"""A lock that is made for each section costs little more than one that is kept, and less than others' that are kept."""

SCENARIOS = (
    Scenario(
        name="P1",
        title="one thread, acquire + release of a free name",
        workload="pair-threads",
        workers=1,
        participants=(
            *(_PAWLOCK, _ANEW, _REDIS, _REDIS_BEST, _PRL, _SHERLOCK, _NG, _POTTERY),
            *(_NODE, _REDSYNC, _BSM, _RUEIDIS, _RUEIDIS_BEST, _REDISSON),
            *(_SCRIPTS, _EVALSHA, _SET, _SERVER),
        ),
        metrics=_METRICS,
        bars=(
            _cpu(1.5, 1.3, "floor-evalsha"),
            _faster(1.8, 2.2),
            _faster(1.0, None, "redlock-ng"),
            _faster(1.0, None, "node-redlock"),
            Bar("commands_per_grant", "pawlock", 2.02, 2.0, better="lower"),
            *(_cpu(3.0, 2.0, against) for against in _FOREIGN),
            *_ANEW_BARS,
        ),
        slices=3,
        seconds=0.15,
    ),
    Scenario(
        name="P1c",
        title="the same with client and server on one CPU: without the waking of another",
        workload="pair-threads",
        workers=1,
        participants=(_PAWLOCK, _REDIS, _REDIS_BEST, _PRL, _SHERLOCK, _NG, _SCRIPTS, _EVALSHA),
        metrics=_METRICS,
        bars=(_cpu(1.5, 1.3, "floor-evalsha"), _faster(1.8, 2.2)),
        slices=3,
        seconds=0.15,
        pinned=True,
    ),
    Scenario(
        name="P1t",
        title="16 threads of one process, each on a name of its own",
        workload="pair-threads",
        workers=16,
        participants=(
            _PAWLOCK,
            _REDIS,
            _PRL,
            _SHERLOCK,
            _NG,
            _REDSYNC,
            _RUEIDIS_BEST,
            _REDISSON,
            _SCRIPTS,
            _SERVER,
        ),
        metrics=_METRICS,
        bars=(_faster(2.5, 5.0),),
        slices=2,
        seconds=0.25,
    ),
    Scenario(
        name="P2",
        title="one asyncio task, acquire + release of a free name",
        workload="pair-tasks",
        workers=1,
        participants=(_PAWLOCK, _ANEW, _UVLOOP, _REDIS, _REDIS_BEST, _NG, _AIO, _NODE, _MUX),
        metrics=_METRICS,
        bars=(_faster(2.0, 2.5), *_ANEW_BARS),
        slices=3,
        seconds=0.15,
        notes=("redis-py here is redis.asyncio.lock.Lock",),
    ),
    Scenario(
        name="P2c",
        title="the same with client and server on one CPU",
        workload="pair-tasks",
        workers=1,
        participants=(_PAWLOCK, _UVLOOP, _REDIS, _REDIS_BEST, _NG, _MUX),
        metrics=_METRICS,
        bars=(_faster(2.0, 2.5),),
        slices=3,
        seconds=0.15,
        pinned=True,
        notes=("redis-py here is redis.asyncio.lock.Lock",),
    ),
    Scenario(
        name="P3",
        title="100 asyncio tasks of one loop, each on a name of its own",
        workload="pair-tasks",
        workers=100,
        participants=(_PAWLOCK, _UVLOOP, _REDIS, _REDIS_BEST, _NG, _AIO, _NODE, _NODE_BEST, _REDSYNC, _MUX),
        metrics=_METRICS,
        bars=(_faster(5.5, 8.0), _faster(1.0, None, "node-redlock"), _faster(0.75, 0.9, "floor-mux")),
        slices=2,
        seconds=0.25,
        notes=("redis-py here is redis.asyncio.lock.Lock",),
    ),
)
