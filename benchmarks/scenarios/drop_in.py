"""D1, D1t, D2, D4: programs that use redis-py's `Lock`, before and after the one line that makes it pawlock's."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

_PAIRS = (
    Metric("pairs_per_s", "pairs/s", 0, spread=True),
    Metric("us_per_pair", "us/pair", 1),
    Metric("cpu_us_per_pair", "client CPU us", 1, spread=True),
    Metric("server_us_per_pair", "server CPU us", 1),
    Metric("commands_per_grant", "round trips", 2),
)
_HAND_OFFS = (
    Metric("handoffs_per_s", "hand-offs/s", 0, spread=True),
    Metric("acquisitions_per_s", "acquired/s", 0),
    Metric("jain", "Jain", 3),
    Metric("commands_per_grant", "round trips", 2),
    Metric("wait_p99_ms", "wait p99 ms", 1),
    Metric("cpu_us_per_pair", "client CPU us", 1),
)
_PARTICIPANTS = (
    Participant("pawlock-drop-in", "pawlock-drop-in"),
    Participant("redis-py", "redis-py"),
    Participant("redis-py-best", "redis-py", {"best": 1}),
    Participant("pawlock", "pawlock"),
)
_NOTES = ("the drop-in is redis-py's `lock(…)` with `lock_class=pawlock.compat.redis.Lock`",)


def _not_slower(what: str = "pairs_per_s", must: float = 1.0, goal: float | None = None) -> Bar:
    return Bar(what, "pawlock-drop-in", must, goal, against="redis-py")


SCENARIOS = (
    Scenario(
        name="D1",
        title="one thread, redis-py's Lock and pawlock in its place, a free name",
        workload="pair-threads",
        workers=1,
        participants=_PARTICIPANTS,
        metrics=_PAIRS,
        bars=(_not_slower(),),
        slices=3,
        seconds=0.15,
        notes=_NOTES,
    ),
    Scenario(
        name="D1t",
        title="the same by 16 threads, each on a name of its own",
        workload="pair-threads",
        workers=16,
        participants=_PARTICIPANTS,
        metrics=_PAIRS,
        bars=(_not_slower(),),
        slices=2,
        seconds=0.25,
        notes=_NOTES,
    ),
    Scenario(
        name="D2",
        title="one asyncio task, redis-py's Lock and pawlock in its place, a free name",
        workload="pair-tasks",
        workers=1,
        participants=_PARTICIPANTS,
        metrics=_PAIRS,
        bars=(_not_slower(),),
        slices=3,
        seconds=0.15,
        notes=_NOTES,
    ),
    Scenario(
        name="D4",
        title="16 threads of one process on one name, empty section",
        workload="contended-threads",
        workers=16,
        participants=_PARTICIPANTS,
        metrics=_HAND_OFFS,
        bars=(_not_slower("handoffs_per_s", 2.0, 10.0),),
        seconds=0.8,
        notes=_NOTES,
    ),
)
