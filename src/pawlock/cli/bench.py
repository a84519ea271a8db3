"""`pawlock bench`: how fast this server locks, from here."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pawlock.cli._common import SETTINGS, client_of, json_option, positive, print_json, server_options, write
from pawlock.cli.exits import Exit

if TYPE_CHECKING:
    from pawlock import Client

__all__ = ["bench"]

_EXAMPLES = """\b
Examples:
  pawlock bench
  pawlock bench --seconds 10 --url redis://locks.internal
  pawlock bench --json | jq .pair.p99_us

\b
What it measures:
  pair       one client acquires and releases a free lock
  hand-off   from the release by one client to the grant to a waiting client
\b
Exit codes:
  0   success                        69  the server is unreachable or refused
  64  wrong usage                    130 Ctrl-C

This is a quick check, good for comparing two servers or networks from one machine. Other load on the client or the
server affects the result. The benchmark uses two lock names of its own; their fencing tokens stay on the server for a
day.
"""


@click.command(epilog=_EXAMPLES, context_settings=SETTINGS)
@click.option(
    "--seconds",
    type=float,
    default=2.0,
    metavar="S",
    callback=positive,
    help="Seconds for each part (default: 2).",
)
@json_option("Print a JSON object.")
@server_options
def bench(**given: Any) -> int:
    """Measure the latency of locks on this server: acquire and release pairs, and hand-offs."""
    with client_of(given) as client, client_of(given) as other:
        name = f"pawlock-bench-{time.time_ns()}"
        pairs = _pairs(client, f"{name}-pair", given["seconds"])
        hands = _hand_offs(client, other, f"{name}-hand-off", given["seconds"])
    results = {"pair": _summary(pairs), "hand_off": _summary(hands)}
    if given["as_json"]:
        print_json(results)
        return Exit.OK
    write(f"{'':<10}{'p50 µs':>10}{'p99 µs':>10}{'max µs':>10}{'per s':>10}{'count':>10}")
    for label, found in (("pair", results["pair"]), ("hand-off", results["hand_off"])):
        _show(label, found)
    return Exit.OK


def _pairs(client: Client, name: str, seconds: float) -> list[float]:
    lock = client.lock(name)
    for _ in range(20):  # connect, load the scripts
        lock.acquire().release()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        lock.acquire().release()
        times.append(time.perf_counter() - began)
    return times


def _hand_offs(client: Client, other: Client, name: str, seconds: float) -> list[float]:
    """Two clients pass a name to each other: each waits in the queue while the other has it."""
    sides = _Sides(seconds)
    second = threading.Thread(target=sides.play, args=(other, name), name="pawlock-bench", daemon=True)
    second.start()
    try:
        sides.play(client, name)
    finally:
        sides.stop.set()
        second.join(5.0)
    if sides.error is not None:
        raise sides.error
    return sides.times


class _Sides:
    def __init__(self, seconds: float) -> None:
        self.stop = threading.Event()
        self.times: list[float] = []
        self.error: BaseException | None = None
        self._end = time.perf_counter() + seconds
        self._released_at = 0.0

    def play(self, client: Client, name: str) -> None:
        from pawlock import ClientClosed, NotAcquired

        lock = client.lock(name, handover=0)
        try:
            while time.perf_counter() < self._end and not self.stop.is_set():
                lease = lock.acquire(timeout=5, stop=self.stop)
                now = time.perf_counter()
                if self._released_at:
                    self.times.append(now - self._released_at)
                # Wait until the other side stands in the queue: what is measured is the hand-off alone.
                self._let_queue(client, name)
                self._released_at = time.perf_counter()
                lease.release()
        except (ClientClosed, NotAcquired) as error:
            if not self.stop.is_set():
                self.error = error
        except BaseException as error:  # noqa: BLE001  # of the other thread: reported by the one that waits for it
            self.error = error
        finally:
            self.stop.set()

    def _let_queue(self, client: Client, name: str) -> None:
        while time.perf_counter() < self._end and not self.stop.is_set():
            if client.inspect(name, waiters=0).queue_length:
                return
        self._released_at = 0.0


def _summary(times: list[float]) -> dict[str, float]:
    if not times:
        return {"count": 0}
    ranked = sorted(times)
    return {
        "count": len(ranked),
        "p50_us": round(statistics.median(ranked) * 1e6, 1),
        "p99_us": round(ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))] * 1e6, 1),
        "max_us": round(ranked[-1] * 1e6, 1),
        "per_s": round(len(ranked) / sum(ranked), 1),
    }


def _show(label: str, found: Mapping[str, float]) -> None:
    if not found["count"]:
        write(f"{label:<10}{'no samples: increase --seconds':>40}")
        return
    numbers = [f"{found[key]:>10,.0f}" for key in ("p50_us", "p99_us", "max_us", "per_s", "count")]
    write(f"{label:<10}{''.join(numbers)}")
