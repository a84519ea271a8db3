"""How soon a waiter has the lock after a client of another library released it, and the other way round.

``python -m tests.interop.wake --n 30`` prints JSON: milliseconds from before the release was sent to holding.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Sequence

from tests.interop.counting import arguments, chosen, on_server, show
from tests.interop.kinds import KINDS, Kind, missing
from tests.interop.line import Driver, DriverFailed, drivers

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
    # 0, without an expiry: what its users have by default, and what makes its waiters sleep for ever.
    ttl_ms = 0 if "pyredislock" in (holder.name, waiter.name) else 20_000
    chance = random.Random(f"{holder.name} {waiter.name}")
    found: list[float | None] = []
    with drivers([holder, waiter], url) as (one, other):
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


def main() -> int:
    able = [
        k.name for k in KINDS.values() if not (k.hashed or missing(k) or k.name in UNSAFE or k.name == "pawl")
    ]
    parser = arguments("How soon a waiter has the lock.", ",".join(able))
    parser.add_argument("--n", type=int, default=30)
    parser.add_argument(
        "--limit", type=float, default=10.0, help="seconds after which a waiter counts as not woken"
    )
    options = parser.parse_args()
    results = {}
    with on_server(options) as url:
        import redis

        for kind in chosen(options.mix, options.driver):
            pair = {}
            for what, (holder, waiter) in {
                "their_release_to_pawl": (kind, KINDS["pawl"]),
                "pawls_release_to_them": (KINDS["pawl"], kind),
            }.items():
                with redis.Redis.from_url(url) as plain:
                    plain.flushall()
                pair[what] = summary(measure(url, holder, waiter, options.n, options.limit))
            results[kind.name] = pair
            print(kind.name, pair, file=sys.stderr, flush=True)
    show(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
