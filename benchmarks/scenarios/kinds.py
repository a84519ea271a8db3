"""S1 to S4: what each primitive costs beside the mutex where nobody else wants the name, and how fast it is passed."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

_COST = (
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
    Metric("wait_max_ms", "max", 0),
    Metric("cpu_us_per_pair", "client CPU us", 1),
    Metric("server_us_per_pair", "server CPU us", 1),
)
_PERMITS = ("pawlock-semaphore", "pawlock-read", "pawlock-write")
_LEASED = ("pawlock-rlock", "pawlock-fair", *_PERMITS, "pawlock-multi", "pawlock-election", "pawlock-service")
_COST_NOTES = (
    "pawlock-multi acquires two names at once; pawlock-service uses an identifier",
    "a latch with a count of one is reset, counted down and waited for; a barrier of one party is passed",
)
_HAND_OFF_NOTES = (
    "a hand-off is a grant to a different worker than the previous one; acquired/s counts every grant",
    "pawlock and pawlock-rlock use local hand-off; all others go through the server, in strict order",
    "the semaphore has one permit; pawlock-multi acquires two names; a latch and a barrier have nothing to hand off",
)


def _participants(*kinds: str) -> tuple[Participant, ...]:
    return (Participant("pawlock", "pawlock"), *(Participant(kind, kind) for kind in kinds))


def _contended() -> tuple[Participant, ...]:
    kinds = (kind for kind in _LEASED if kind != "pawlock-read")
    options = {"pawlock-semaphore": {"permits": 1.0}}
    pawlocks = (Participant(kind, kind, options.get(kind, {})) for kind in kinds)
    return (Participant("pawlock", "pawlock"), *pawlocks)


def _bars() -> tuple[Bar, ...]:
    cost = (Bar("cpu_us_per_pair", kind, 2.0, 1.3, against="pawlock", better="lower") for kind in _PERMITS)
    trips = (Bar("commands_per_grant", kind, 2.02, None, better="lower") for kind in _PERMITS)
    return (*cost, *trips)


SCENARIOS = (
    Scenario(
        name="S1",
        title="one thread, each primitive under a free name, beside the mutex",
        workload="pair-threads",
        workers=1,
        participants=_participants(*_LEASED, "pawlock-latch", "pawlock-barrier"),
        metrics=_COST,
        bars=_bars(),
        slices=4,
        seconds=0.15,
        notes=_COST_NOTES,
    ),
    Scenario(
        name="S2",
        title="the same with one asyncio task",
        workload="pair-tasks",
        workers=1,
        participants=_participants(*_LEASED),
        metrics=_COST,
        bars=_bars(),
        slices=4,
        seconds=0.15,
        notes=_COST_NOTES[:1],
    ),
    Scenario(
        name="S3",
        title="32 threads of one process on one name, each primitive that keeps others out",
        workload="contended-threads",
        workers=32,
        participants=(*_contended(), Participant("python-redis-lock", "python-redis-lock")),
        metrics=_HAND_OFFS,
        bars=(
            Bar("handoffs_per_s", "pawlock-fair", 3.0, 6.0, against="python-redis-lock"),
            Bar("jain", "pawlock-fair", 0.99, None),
            *(Bar("handoffs_per_s", kind, 1.0, None, against="python-redis-lock") for kind in _PERMITS[::2]),
        ),
        seconds=0.4,
        notes=_HAND_OFF_NOTES,
    ),
    Scenario(
        name="S4",
        title="32 asyncio tasks of one loop on one name, each primitive that keeps others out",
        workload="contended-tasks",
        workers=32,
        participants=(
            *_contended(),
            Participant("python-redis-lock", "python-redis-lock", workload="contended-threads"),
        ),
        metrics=_HAND_OFFS,
        bars=(
            Bar("handoffs_per_s", "pawlock-fair", 4.0, 6.0, against="python-redis-lock"),
            Bar("jain", "pawlock-fair", 0.99, None),
            *(Bar("handoffs_per_s", kind, 1.0, None, against="python-redis-lock") for kind in _PERMITS[::2]),
        ),
        seconds=0.4,
        notes=_HAND_OFF_NOTES,
    ),
)
