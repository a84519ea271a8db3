"""The scenarios, by the names of the command line, each with what it promises."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

__all__ = ["SCENARIOS"]

_PAIRS = (
    Metric("pairs_per_s", "pairs/s", 0, spread=True),
    Metric("us_per_pair", "us/pair", 1),
    Metric("cpu_us_per_pair", "client CPU us", 1, spread=True),
    Metric("server_us_per_pair", "server CPU us", 1),
    Metric("commands_per_grant", "round trips", 2),
    Metric("acquire_p50_us", "acquire p50 us", 0),
    Metric("acquire_p99_us", "p99 us", 0),
)
_CROWD = (
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
_SECTION = (
    Metric("share_of_ceiling", "share of ceiling", 3, spread=True),
    Metric("section_ms", "section ms", 3),
    Metric("wait_p99_to_ideal", "p99/ideal", 2),
    Metric("commands_per_s", "commands/s", 0),
    *_CROWD,
)
_WAKE = (
    Metric("wake_p50_ms", "p50 ms", 3, spread=True),
    Metric("wake_p90_ms", "p90 ms", 3),
    Metric("wake_p99_ms", "p99 ms", 3, spread=True),
    Metric("wake_min_ms", "min ms", 3),
    Metric("commands_per_grant", "commands", 1),
)
_LEASES = (
    Metric("core_share", "client cores", 4, spread=True),
    Metric("server_core_share", "server cores", 4),
    Metric("cpu_us_per_renewal", "client CPU us/lease in 10 s", 1),
    Metric("server_us_per_renewal", "server us", 1),
    Metric("commands_per_s", "commands/s", 0),
    Metric("client_bytes", "client bytes/lease", 0),
    Metric("server_bytes", "server bytes", 0),
)
_WAITERS = (
    Metric("commands_per_release", "commands/release", 2, spread=True),
    Metric("server_us_per_release", "server CPU us", 1, spread=True),
    Metric("cpu_us_per_release", "client CPU us", 1),
    Metric("us_per_release", "us", 1),
    Metric("idle_commands_per_s", "commands/s, none served", 0),
    Metric("client_bytes", "client bytes/waiter", 0),
)
_HAND_OFF = "a hand-off is a grant to a different worker than the previous one; acquired/s counts every grant"


def _who(peer: str, key: str = "", *, tasks: bool | None = None, **options: float) -> Participant:
    return Participant(key or "-".join([peer, *options]), peer, options, tasks)


def _at_most(must: float, metric: str, *subjects: str, against: str = "") -> tuple[Bar, ...]:
    return tuple(Bar(metric, subject, must, against, "lower") for subject in subjects)


def _faster(
    must: float, *against: str, what: str = "pairs_per_s", subject: str = "pawlock"
) -> tuple[Bar, ...]:
    return tuple(Bar(what, subject, must, other) for other in against)


_PAWLOCK = _who("pawlock")
_STRICT = _who("pawlock", "pawlock-strict", handover=0)
_ANEW = _who("pawlock", anew=1)
_UVLOOP = _who("pawlock", uvloop=1)
_REDIS, _REDIS_BEST = _who("redis-py"), _who("redis-py", best=1)
_PRL, _PRL_THREADS = _who("python-redis-lock"), _who("python-redis-lock", tasks=False)
_NG, _POTTERY, _AIO = _who("redlock-ng"), _who("pottery"), _who("aioredlock")
_NODE, _NODE_BEST = _who("node-redlock"), _who("node-redlock", best=1)
_REDSYNC, _REDSYNC_BEST = _who("redsync"), _who("redsync", best=1)
_BSM, _BSM_BEST = _who("bsm-redislock"), _who("bsm-redislock", best=1)
_RUEIDIS, _RUEIDIS_BEST = _who("rueidislock"), _who("rueidislock", best=1)
_REDISSON, _REDISSON_FAIR = _who("redisson"), _who("redisson", fair=1)
_SCRIPTS, _EVALSHA, _MUX = _who("floor-scripts"), _who("floor-evalsha"), _who("floor-mux")
_COMPILED = ("redsync-best", "rueidislock-best", "redisson")

# A lock that is made for each section costs little more than one that is kept, and less than others' that are kept.
_ANEW_BARS = (
    *_at_most(1.05, "cpu_us_per_pair", "pawlock-anew", against="pawlock"),
    *_faster(1.8, "pawlock-anew", what="cpu_us_per_pair", subject="redis-py"),
)


def _contended(*ahead_of: str) -> tuple[Bar, ...]:
    return (
        *_faster(1.0, "python-redis-lock", what="handoffs_per_s", subject="pawlock-strict"),
        *_faster(8.0, "python-redis-lock", what="handoffs_per_s"),
        *(Bar("jain", kind, 0.99) for kind in ("pawlock-strict", "pawlock")),
        *_at_most(1.1, "most_to_least", "pawlock-strict", "pawlock"),
        *_at_most(2.02, "commands_per_grant", "pawlock-strict"),
        *_at_most(0.15, "commands_per_grant", "pawlock"),
        *_faster(1.0, *ahead_of, what="handoffs_per_s"),
        *(bar for other in ahead_of for bar in _at_most(1.0, "commands_per_grant", "pawlock", against=other)),
    )


_P1 = Scenario(
    "P1",
    "one thread, acquire + release of a free name",
    "pairs",
    (
        *(_PAWLOCK, _ANEW, _REDIS, _REDIS_BEST, _PRL, _NG, _POTTERY, _NODE, _REDSYNC, _BSM),
        *(_RUEIDIS, _RUEIDIS_BEST, _REDISSON, _SCRIPTS, _EVALSHA),
    ),
    _PAIRS,
    (
        *_at_most(1.5, "cpu_us_per_pair", "pawlock", against="floor-evalsha"),
        *_faster(1.8, "redis-py"),
        *_faster(1.0, "redlock-ng", "node-redlock"),
        *_at_most(2.02, "commands_per_grant", "pawlock"),
        *(
            bar
            for other in ("redsync", "bsm-redislock", "rueidislock-best", "redisson")
            for bar in _at_most(3.0, "cpu_us_per_pair", "pawlock", against=other)
        ),
        *_ANEW_BARS,
    ),
    slices=3,
    seconds=0.15,
)
_P1T = Scenario(
    "P1t",
    "16 threads of one process, each on a name of its own",
    "pairs",
    (_PAWLOCK, _REDIS, _PRL, _NG, _REDSYNC, _RUEIDIS_BEST, _REDISSON, _SCRIPTS),
    _PAIRS,
    _faster(2.5, "redis-py"),
    workers=16,
    slices=2,
    seconds=0.25,
)
_P2 = Scenario(
    "P2",
    "one asyncio task, acquire + release of a free name",
    "pairs",
    (_PAWLOCK, _ANEW, _UVLOOP, _REDIS, _REDIS_BEST, _NG, _AIO, _NODE, _MUX),
    _PAIRS,
    (*_faster(2.0, "redis-py"), *_ANEW_BARS),
    tasks=True,
    slices=3,
    seconds=0.15,
    notes=("redis-py here is redis.asyncio.lock.Lock",),
)
_P3 = Scenario(
    "P3",
    "100 asyncio tasks of one loop, each on a name of its own",
    "pairs",
    (_PAWLOCK, _UVLOOP, _REDIS, _REDIS_BEST, _NG, _AIO, _NODE, _NODE_BEST, _REDSYNC, _MUX),
    _PAIRS,
    (*_faster(5.5, "redis-py"), *_faster(1.0, "node-redlock"), *_faster(0.75, "floor-mux")),
    workers=100,
    tasks=True,
    slices=2,
    seconds=0.25,
    notes=("redis-py here is redis.asyncio.lock.Lock",),
)
_P4 = Scenario(
    "P4",
    "32 threads of one process on one name, empty section",
    "crowd",
    (
        *(_STRICT, _PAWLOCK, _PRL, _REDIS, _REDIS_BEST, _NG, _NODE, _NODE_BEST, _REDSYNC, _REDSYNC_BEST),
        *(_BSM_BEST, _RUEIDIS, _RUEIDIS_BEST, _REDISSON, _REDISSON_FAIR),
    ),
    _CROWD,
    _contended(*_COMPILED, "redisson-fair"),
    workers=32,
    seconds=0.8,
    notes=(_HAND_OFF,),
)
_P5 = Scenario(
    "P5",
    "32 asyncio tasks of one loop on one name, empty section",
    "crowd",
    (_STRICT, _PAWLOCK, _PRL_THREADS, _REDIS, _REDIS_BEST, _NG, _AIO, _NODE, _NODE_BEST),
    _CROWD,
    _contended(),
    workers=32,
    tasks=True,
    seconds=0.8,
    notes=(_HAND_OFF, "python-redis-lock has no asyncio API: it runs 32 threads in the same rounds"),
)
_P6 = Scenario(
    "P6",
    "4 processes of 8 threads on one name, inside for 1 ms",
    "crowd",
    (
        *(_STRICT, _PAWLOCK, _who("pawlock", "pawlock-asyncio-strict", tasks=True, handover=0)),
        *(_who("pawlock", "pawlock-asyncio", tasks=True), _PRL, _REDIS, _REDIS_BEST, _NODE),
        *(_REDSYNC_BEST, _RUEIDIS_BEST, _REDISSON),
    ),
    _SECTION,
    (
        *(Bar("share_of_ceiling", key, 0.85) for key in ("pawlock-strict", "pawlock-asyncio-strict")),
        *(Bar("share_of_ceiling", key, 0.93) for key in ("pawlock", "pawlock-asyncio")),
        *_at_most(1.6, "wait_p99_to_ideal", "pawlock-strict", "pawlock"),
        *_at_most(400, "commands_per_s", "pawlock", "pawlock-asyncio"),
        *_faster(1.0, *_COMPILED, what="handoffs_per_s"),
        *(
            bar
            for other in _COMPILED
            for bar in _at_most(1.0, "commands_per_grant", "pawlock", against=other)
        ),
    ),
    workers=8,
    processes=4,
    seconds=1.5,
    section_ms=1.0,
    notes=(
        "the ceiling is 1 / the measured section; the ideal wait is the sum of all workers' sections",
        "rueidislock sometimes fails to notify a waiter of a release; here its waiters ask again after 1 s",
    ),
)
_P7 = Scenario(
    "P7",
    "one waiter in another process; ms from just before release() to acquire() returned",
    "turns",
    (_PAWLOCK, _PRL, _REDIS_BEST, _NODE_BEST, _REDSYNC_BEST, _RUEIDIS_BEST, _REDISSON),
    _WAKE,
    (
        *_at_most(0.6, "wake_p50_ms", "pawlock", against="python-redis-lock"),
        *_at_most(0.7, "wake_p99_ms", "pawlock", against="python-redis-lock"),
        *(bar for other in _COMPILED for bar in _at_most(1.0, "wake_p99_ms", "pawlock", against=other)),
    ),
    # `seconds` counts turns here.
    seconds=20,
    notes=("the holder keeps the lock for 60 to 260 ms, so the waiter sleeps when it is woken",),
)
_REDLOCK = (_PAWLOCK, _who("pawlock", "pawlock-asyncio", tasks=True), _NODE, _REDSYNC_BEST, _NG)
_OURS = ("pawlock", "pawlock-asyncio")
_REDLOCK_BARS = (
    *_at_most(1.0, "us_per_pair", *_OURS, against="node-redlock"),
    *_at_most(1.0, "us_per_pair", *_OURS, against="redsync-best"),
    *_at_most(1.0, "cpu_us_per_pair", *_OURS, against="node-redlock"),
)
_P8 = Scenario(
    "P8",
    "Redlock, five masters, acquire + release of a free name",
    "pairs",
    (*_REDLOCK, _POTTERY, _who("aioredlock", tasks=True)),
    _PAIRS,
    _REDLOCK_BARS,
    slices=3,
    seconds=0.3,
    nodes=5,
    notes=("round trips: the commands that one healthy master received per pair",),
)
_P8H = Scenario(
    "P8h",
    "the same with one of the five hung (SIGSTOP)",
    "pairs",
    # pottery and aioredlock wait for every node: they do not come to an end here.
    _REDLOCK,
    _PAIRS,
    (
        *_REDLOCK_BARS,
        *(bar for key in _OURS for bar in _at_most(1.1, "commands_per_grant", key, against=f"P8:{key}")),
        *(bar for key in _OURS for bar in _at_most(1.3, "cpu_us_per_pair", key, against=f"P8:{key}")),
    ),
    slices=3,
    seconds=0.3,
    nodes=5,
    hung=1,
)
_P9 = Scenario(
    "P9",
    "leases held by one client and renewed, ttl 30 s",
    "leases",
    tuple(_who("pawlock", f"pawlock-{size}", size=size) for size in (1_000, 10_000, 100_000)),
    _LEASES,
    (
        *_at_most(0.08, "core_share", "pawlock-100000"),
        *_at_most(4096, "client_bytes", "pawlock-10000", "pawlock-100000"),
    ),
    tasks=True,
    # A third of the ttl, and so one renewal.
    seconds=10.0,
    notes=("acquired over 10 s, then measured for 10 s, in which each lease is renewed once",),
)
_P9W = Scenario(
    "P9w",
    "waiters on one name, strict order, each in the server's queue",
    "waiters",
    tuple(_who("pawlock", f"pawlock-{size}", size=size, handover=0) for size in (100, 1_000)),
    _WAITERS,
    (),
    tasks=True,
    notes=("the first 1,000 waiters are served, or all; each renews its ticket once a second",),
)
_KINDS = ("rlock", "fair", "semaphore", "read", "write", "multi", "election", "service")
_PERMITS = ("pawlock-semaphore", "pawlock-read", "pawlock-write")
_S1 = Scenario(
    "S1",
    "one thread, each primitive under a free name, beside the mutex",
    "pairs",
    (_PAWLOCK, *(_who(f"pawlock-{kind}") for kind in _KINDS)),
    _PAIRS,
    (
        *_at_most(2.0, "cpu_us_per_pair", *_PERMITS, against="pawlock"),
        *_at_most(2.02, "commands_per_grant", *_PERMITS),
    ),
    slices=4,
    seconds=0.15,
    notes=("pawlock-multi acquires two names at once; pawlock-service uses an identifier",),
)
_S3 = Scenario(
    "S3",
    "32 threads of one process on one name, each primitive that keeps others out",
    "crowd",
    (
        _PAWLOCK,
        *(_who(f"pawlock-{kind}") for kind in _KINDS if kind not in ("read", "semaphore")),
        _who("pawlock-semaphore", "pawlock-semaphore", permits=1),
        _PRL,
    ),
    _CROWD,
    (
        *_faster(1.0, "python-redis-lock", what="handoffs_per_s", subject="pawlock-fair"),
        *_faster(1.0, "python-redis-lock", what="handoffs_per_s", subject="pawlock-semaphore"),
        *_faster(1.0, "python-redis-lock", what="handoffs_per_s", subject="pawlock-write"),
        Bar("jain", "pawlock-fair", 0.99),
    ),
    workers=32,
    seconds=0.4,
    notes=(
        "pawlock and pawlock-rlock use local hand-off; all others go through the server, in strict order",
    ),
)
_DROP_IN = (_who("pawlock-drop-in"), _REDIS, _REDIS_BEST, _PAWLOCK)
_D1 = Scenario(
    "D1",
    "one thread, redis-py's Lock and pawlock in its place, a free name",
    "pairs",
    _DROP_IN,
    _PAIRS,
    _faster(1.0, "redis-py", subject="pawlock-drop-in"),
    slices=3,
    seconds=0.15,
    notes=("the drop-in is redis-py's `lock(…)` with `lock_class=pawlock.compat.redis.Lock`",),
)
_D4 = Scenario(
    "D4",
    "16 threads of one process on one name, redis-py's Lock and pawlock in its place",
    "crowd",
    _DROP_IN,
    _CROWD,
    _faster(2.0, "redis-py", what="handoffs_per_s", subject="pawlock-drop-in"),
    workers=16,
    seconds=0.8,
)

SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (_P1, _P1T, _P2, _P3, _P4, _P5, _P6, _P7, _P8, _P8H, _P9, _P9W, _S1, _S3, _D1, _D4)
}
