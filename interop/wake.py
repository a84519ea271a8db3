"""How soon a waiter has the lock after a client of another library released it, and the other way round.

``python -m interop.wake --n 30`` prints JSON: milliseconds from before the release was sent to holding. With
``--bounds`` it ends with 1 if the 95th percentile is above 20 ms where pawlock waits, above 50 ms where a message wakes
the other library, or above its period and 50 ms where it polls.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from math import isinf

import redis

from interop.counting import arguments, chosen, on_server, show
from interop.kinds import KINDS, Kind, missing, wire_of
from interop.line import CLUSTER, Driver, DriverFailed, drivers

TO_PAWLOCK = "their_release_to_pawlock"
TO_THEM = "pawlocks_release_to_them"
UNSAFE = ("shedlock", "rueidis", "redisson-read", "redisson-write", "redsync-setnx")
"""Not measured by default: what they do to a shared name is shown elsewhere."""


def once(
    holder: Driver, waiter: Driver, key: str, ttl_ms: int, limit: float, chance: random.Random
) -> float | None:
    """Milliseconds from one's release to the other's grant; None if it took longer than ``limit`` seconds."""
    got = holder.ask("try", key, ttl_ms)
    if not got["ok"]:
        raise DriverFailed(f"{holder.kind.name}: it does not get a free lock: {got}")
    waiter.send("lock", key, ttl_ms, -1)
    time.sleep(chance.uniform(0.15, 0.35))
    left = holder.ask("unlock", key)
    try:
        got = waiter.reply(limit)
    except DriverFailed:
        return None
    if not (left["ok"] and got["ok"]):
        raise DriverFailed(f"{holder.kind.name} to {waiter.kind.name}: {left} {got}")
    waiter.ask("unlock", key)
    return float(got["t"] - left["t0"]) * 1000


def measure(url: str, holder: Kind, waiter: Kind, n: int, limit: float = 10.0) -> list[float | None]:
    """Measure ``n`` times; a first one that is not woken within ``limit`` seconds ends it."""
    key = (holder.prefix or waiter.prefix) + "wake"
    # 0, without an expiry: what its users have by default, and what makes its waiters sleep forever.
    ttl_ms = 0 if "pyredislock" in (holder.name, waiter.name) else 20_000
    chance = random.Random(f"{holder.name} {waiter.name}")
    found: list[float | None] = []
    with drivers([holder, waiter], url, **wire_of([holder, waiter])) as (one, other):
        while len(found) < n and None not in found:
            found.append(once(one, other, key, ttl_ms, limit, chance))
    return found


def summary(found: Sequence[float | None]) -> dict[str, float | int | None]:
    """Median, 95th percentile and largest; all None where a waiter was not woken."""
    times = sorted(one for one in found if one is not None)
    if len(times) < len(found) or not times:
        return {"n": len(found), "median_ms": None, "p95_ms": None, "max_ms": None}
    p95 = times[min(len(times) - 1, round(0.95 * len(times)))]
    return {
        "n": len(times),
        "median_ms": round(statistics.median(times), 2),
        "p95_ms": round(p95, 2),
        "max_ms": round(times[-1], 2),
    }


def too_slow(kind: Kind, pair: Mapping[str, Mapping[str, float | int | None]]) -> bool:
    """Whether a 95th percentile is above its bound."""
    message = kind.subscribes or isinf(kind.period)
    bounds = {TO_PAWLOCK: 20.0, TO_THEM: 50.0 if message else kind.period * 1000 + 50}
    return any((p95 := pair[what]["p95_ms"]) is None or p95 > bound for what, bound in bounds.items())


def main() -> int:
    able = [
        k.name for k in KINDS.values() if not (missing(k) or k.name in UNSAFE or k.name.startswith("pawlock"))
    ]
    parser = arguments("How soon a waiter has the lock.", ",".join(able))
    parser.add_argument("--n", type=int, default=30)
    parser.add_argument(
        "--limit", type=float, default=10.0, help="seconds after which a waiter counts as not woken"
    )
    parser.add_argument("--bounds", action="store_true", help="fail if a waiter has it too late")
    options = parser.parse_args()
    results: dict[str, dict[str, dict[str, float | int | None]]] = {}
    late: list[str] = []
    with on_server(options) as (url, _):
        for kind in chosen(options.mix, options.driver):
            pair: dict[str, dict[str, float | int | None]] = {}
            for what, (holder, waiter) in {
                TO_PAWLOCK: (kind, KINDS["pawlock"]),
                TO_THEM: (KINDS["pawlock"], kind),
            }.items():
                if not url.startswith(CLUSTER):
                    with redis.Redis.from_url(url) as plain:
                        plain.flushall()
                pair[what] = summary(measure(url, holder, waiter, options.n, options.limit))
            results[kind.name] = pair
            late += [kind.name] if too_slow(kind, pair) else []
            print(kind.name, pair, file=sys.stderr, flush=True)
    show(results)
    if options.bounds and late:
        print(f"too late: {', '.join(late)}", file=sys.stderr)
    return 1 if options.bounds and late else 0


if __name__ == "__main__":
    sys.exit(main())
