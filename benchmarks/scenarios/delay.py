"""P10: a network that takes 1 ms or 10 ms for a round trip: what counts is how many of them one waits for."""

from __future__ import annotations

from benchmarks.model import Bar, Metric, Participant, Scenario

_METRICS = (
    Metric("trips_waited", "network round trips waited", 2, spread=True),
    Metric("commands_per_grant", "commands", 2),
    Metric("acquire_p50_us", "acquire p50 us", 0),
    Metric("acquire_p99_us", "p99 us", 0),
    Metric("cpu_us_per_pair", "client CPU us", 1),
    Metric("server_us_per_pair", "server CPU us", 1),
)
_DELAYS = (1, 10)


def _each(peer: str, key: str = "", workload: str = "", **options: float) -> tuple[Participant, ...]:
    return tuple(
        Participant(f"{key or peer}-{delay}ms", peer, {"delay_ms": delay, **options}, workload)
        for delay in _DELAYS
    )


def _bars() -> tuple[Bar, ...]:
    bars: list[Bar] = []
    for delay in _DELAYS:
        pair, task = f"pawlock-{delay}ms", f"pawlock-asyncio-{delay}ms"
        for key in (pair, task):
            bars += [
                Bar("commands_per_grant", key, 2.02, 2.0, better="lower"),
                Bar("trips_waited", key, 2.3, 2.1, better="lower"),
            ]
        bars += [
            Bar("commands_per_grant", f"pawlock-again-{delay}ms", 0.0, None, better="lower"),
            Bar("commands_per_grant", f"pawlock-handover-{delay}ms", 0.15, None, better="lower"),
        ]
    return tuple(bars)


SCENARIOS = (
    Scenario(
        name="P10",
        title="the server is 1 ms or 10 ms away (both ways together)",
        workload="pair-threads",
        workers=1,
        participants=(
            *_each("pawlock"),
            *_each("pawlock", "pawlock-asyncio", "pair-tasks"),
            *_each("pawlock-again"),
            *_each("pawlock", "pawlock-handover", "contended-threads", workers=32),
            *_each("redis-py"),
            *_each("python-redis-lock"),
        ),
        metrics=_METRICS,
        bars=_bars(),
        slices=2,
        seconds=0.3,
        rest=1.5,
        notes=(
            "network round trips waited: the time of acquire + release divided by that of a PING over the same network",
            "taken again: a thread that holds an rlock acquires it again; the first acquisition is not counted",
            "hand-off: 32 threads of one process on one name; the time is from one owner to the next",
        ),
    ),
)
