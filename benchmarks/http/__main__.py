"""`python -m benchmarks.http`: pairs and wake-ups over HTTP, each beside the bare framework in the same run."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Generator

from benchmarks.http.load import Door, Line, drive, lock_requests
from benchmarks.stats import median, percentile
from tests.support.servers import Server, free_port

ROUNDS = 5
WAKE_UPS = 100


@contextlib.contextmanager
def bare() -> Generator[Door]:
    """The bare framework, as a process."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.http.bare", str(port)])
    try:
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                Line(Door(port)).socket.close()
                break
            if time.monotonic() > end:
                raise RuntimeError("the bare framework did not begin")
            time.sleep(0.05)
        yield Door(port)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def service(url: str) -> Generator[Door]:
    """`pawlock serve` with all its defaults, as a process."""
    command = [sys.executable, "-m", "pawlock", "serve", "--url", url, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    said, found = b"", None
    end = time.monotonic() + 20
    try:
        while found is None:
            if time.monotonic() > end or process.stderr is None:
                raise RuntimeError(f"pawlock serve did not begin: {said!r}")
            if select.select([process.stderr], [], [], 0.1)[0]:
                said += os.read(process.stderr.fileno(), 4096)
            found = re.search(
                rb"^(pawlock_\S+)\n(?:.*\n)*?.*listening on http://[^:]+:(\d+)\n", said, re.MULTILINE
            )
        yield Door(int(found[2]), found[1].decode())
    finally:
        process.kill()
        process.wait()


def rate_of_nothing(door: Door, connections: int, seconds: float) -> float:
    """Pairs of requests that do nothing, a second."""
    lines = [Line(door) for _ in range(connections)]
    request = door.request("/noop", b"{}")
    return drive(lines, [request] * connections, lambda _number, _body: request, seconds) / 2


def rate_of_pairs(door: Door, connections: int, seconds: float) -> float:
    """Acquisitions with their releases, each connection on a name of its own, a second."""
    lines = [Line(door) for _ in range(connections)]
    made = [lock_requests(door, f"n{number}", ttl=30) for number in range(connections)]
    takes, gives = [take for take, _ in made], [give for _, give in made]
    held = [False] * connections

    def following(number: int, body: bytes) -> bytes:
        held[number] = not held[number]
        return gives[number](body) if held[number] else takes[number]

    return drive(lines, takes, following, seconds) / 2


def wake_ups(locks: Door, nothing: Door, count: int) -> tuple[list[float], list[float]]:
    """Seconds from the sending of a release to the waiter's answer, and of requests that do nothing meanwhile."""
    one, other, idle = Line(locks), Line(locks), Line(nothing)
    noop = nothing.request("/noop", b"{}")
    take, give = lock_requests(locks, "w", ttl=30)
    wait, _ = lock_requests(locks, "w", ttl=30, wait=30)
    waits: list[float] = []
    noops: list[float] = []
    release = give(one.ask(take))
    for _ in range(count):
        other.send(wait)
        time.sleep(0.02)
        began = time.perf_counter()
        idle.ask(noop)
        noops.append(time.perf_counter() - began)
        began = time.perf_counter()
        one.send(release)
        release = give(other.read())
        waits.append(time.perf_counter() - began)
        one.read()
        one, other = other, one
    one.ask(release)
    return waits, noops


def main() -> None:
    """Measure, and print a line of JSON for each scenario."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 32])
    given = parser.parse_args()
    with Server("valkey").start() as server, bare() as nothing, service(server.url) as locks:
        for connections in given.connections:
            rounds = [
                (rate_of_nothing(nothing, connections, given.seconds),
                 rate_of_pairs(locks, connections, given.seconds))
                for _ in range(given.rounds)
            ]  # fmt: skip
            told = {
                "scenario": "pairs",
                "connections": connections,
                "nothing": round(median(one for one, _ in rounds)),
                "pawlock": round(median(one for _, one in rounds)),
                "ratio": round(median(one for _, one in rounds) / median(one for one, _ in rounds), 3),
                "rounds": [round(mine / theirs, 2) for theirs, mine in rounds],
            }
            print(json.dumps(told), flush=True)
        for _ in range(given.rounds):
            waits, noops = wake_ups(locks, nothing, WAKE_UPS)
            told = {
                "scenario": "wake-up",
                "nothing_us": round(median(noops) * 1e6),
                "pawlock_us": round(median(waits) * 1e6),
                "pawlock_p99_us": round(percentile(waits, 0.99) * 1e6),
                "ratio": round(median(waits) / median(noops), 2),
            }
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
