"""P9: 1,000 to 100,000 leases held, 10 to 10,000 waiters on one name, 1 to 64 processes, 1 to 1,000,000 names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.model import Bar, Metric, Participant, Scenario
from benchmarks.scenarios.crowd import METRICS as CROWD

PERIOD = 10.0  # s: a third of the default ttl of 30 s
SERVED = 1_000  # releases that are counted at every length of the queue


def _sizes(
    sizes: Iterable[int],
    peer: str = "pawlock",
    options: Mapping[str, float] | None = None,
    workload: str = "",
) -> tuple[Participant, ...]:
    return tuple(
        Participant(f"{peer}-{size}", peer, {"size": size, **(options or {})}, workload) for size in sizes
    )


LEASES = Scenario(
    name="P9",
    title="leases held by one client and renewed, ttl 30 s",
    workload="leases",
    workers=1,
    participants=(
        *_sizes((1_000, 10_000, 100_000)),
        Participant(
            "pawlock-threads-100000", "pawlock", {"size": 100_000, "threads": 1}, workload="leases-threads"
        ),
        *_sizes((1_000,), "python-redis-lock", {"renewing": 1}, "leases-threads"),
    ),
    metrics=(
        Metric("core_share", "client cores", 4, spread=True),
        Metric("server_core_share", "server cores", 4),
        Metric("cpu_us_per_renewal", "client CPU us/lease in 10 s", 1),
        Metric("server_us_per_renewal", "server us", 1),
        Metric("commands_per_s", "commands/s", 0),
        Metric("client_bytes", "client bytes/lease", 0),
        Metric("server_bytes", "server bytes", 0),
    ),
    bars=(
        Bar("core_share", "pawlock-100000", 0.08, 0.04, better="lower"),
        Bar("core_share", "pawlock-threads-100000", 0.08, 0.04, better="lower"),
        Bar("client_bytes", "pawlock-100000", 4096, 2048, better="lower"),
        Bar("client_bytes", "pawlock-10000", 4096, 2048, better="lower"),
    ),
    seconds=PERIOD,
    rounds=7,
    x="leases held",
    notes=(
        "acquired over 10 s, then measured for 10 s, in which each lease is renewed once, as in a long-running program",
        "python-redis-lock renews each lock in a thread of its own",
    ),
)
WAITERS = Scenario(
    name="P9w",
    title="waiters on one name, strict order, each in the server's queue",
    workload="waiters",
    workers=1,
    participants=(
        *_sizes((10, 100, 1_000, 10_000), "pawlock", {"handover": 0}),
        Participant("pawlock-10000-long", "pawlock", {"size": 10_000, "handover": 0, "ticket_ttl": 30}),
    ),
    metrics=(
        Metric("commands_per_release", "commands/release", 2, spread=True),
        Metric("server_us_per_release", "server CPU us", 1, spread=True),
        Metric("cpu_us_per_release", "client CPU us", 1),
        Metric("us_per_release", "us", 1),
        Metric("idle_commands_per_s", "commands/s, none served", 0),
        Metric("idle_server_share", "server cores", 3),
        Metric("client_bytes", "client bytes/waiter", 0),
    ),
    bars=(
        Bar("commands_per_release", "pawlock-10000", 1.2, 1.0, against="pawlock-1000", better="lower"),
        Bar("server_us_per_release", "pawlock-10000", 1.5, 1.2, against="pawlock-1000", better="lower"),
        Bar("commands_per_release", "pawlock-10000", 1.2, 1.0, against="pawlock-10", better="lower"),
        Bar("server_us_per_release", "pawlock-10000", 1.5, 1.2, against="pawlock-10", better="lower"),
    ),
    seconds=SERVED,
    rounds=7,
    x="waiters",
    notes=(
        f"the first {SERVED} waiters are served; if there are fewer, all of them, ten times",
        "each waiter's ticket is renewed once a second, with ticket_ttl=30 every 10 s; one request renews a hundred",
    ),
)
PROCESSES = Scenario(
    name="P9p",
    title="processes of one worker each on one name, inside for 1 ms",
    workload="crowd",
    workers=1,
    section_ms=1.0,
    participants=tuple(
        Participant(f"{peer}-{processes}", peer, {"size": processes, "processes": processes})
        for peer in ("pawlock", "python-redis-lock")
        for processes in (1, 4, 16, 64)
    ),
    metrics=CROWD,
    bars=(Bar("commands_per_grant", "pawlock-64", 2.2, 2.0, better="lower"),),
    seconds=1.5,
    rounds=7,
    x="processes",
)
NAMES = Scenario(
    name="P9n",
    title="names, each held by a lease of an hour: memory of one lock",
    workload="names",
    workers=1,
    participants=_sizes((1, 1_000, 100_000, 1_000_000), "pawlock", {"ttl": 3600}),
    metrics=(
        Metric("client_bytes", "client bytes/lease", 0),
        Metric("server_bytes", "server bytes", 0),
        Metric("us_per_acquire", "us/acquire", 1),
        Metric("cpu_us_per_acquire", "client CPU us", 1),
        Metric("server_us_per_acquire", "server CPU us", 1),
    ),
    bars=(Bar("client_bytes", "pawlock-1000000", 4096, 2048, better="lower"),),
    seconds=1.0,
    rounds=7,
    x="names",
    notes=("acquired by a thousand tasks, with Python's garbage collection disabled",),
)

SCENARIOS = (LEASES, WAITERS, PROCESSES, NAMES)
