"""`python -m benchmarks.guard`: does one operation still cost what it cost?

Counts what a machine's weather does not change: calls and system calls on the socket of the client, commands and bytes
at the server, for one operation of each hot path. Each is compared with `baseline.json` and must not be above it by more
than its tolerance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pawlock
from benchmarks.server import Server, Snapshot, traffic

__all__ = ["BASELINE", "PATHS", "Costs", "compare", "main", "measure", "this_python"]

Costs = dict[str, float]
BASELINE = Path(__file__).with_name("baseline.json")
PAIRS = 40  # counted; each costs the same
WARM_UP = 20
COUNTED = 3  # times, of which the least counts

TOLERANCE: Mapping[str, float] = {
    "calls": 0.1,
    "socket_calls": 0.02,
    "commands": 0.02,
    "server_calls": 0.02,
    "bytes_in": 0.1,
    "bytes_out": 0.1,
}
"""What may be added to a baseline, as a share of it."""

OTHER_PYTHON = 0.25
"""The tolerance of calls on another Python than the baseline's."""

_KERNEL = frozenset({"socket", "poll", "epoll"})


@dataclass(slots=True)
class _Tally:
    calls: int = 0
    socket_calls: int = 0


@contextmanager
def _counting_calls(tally: _Tally) -> Generator[None]:
    def note(_frame: FrameType, event: str, argument: Any) -> None:  # noqa: ANN401 - a function, or nothing
        if event == "call":
            tally.calls += 1
        elif event == "c_call":
            tally.calls += 1
            if type(getattr(argument, "__self__", None)).__name__ in _KERNEL:
                tally.socket_calls += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


Run = Callable[[int], object]


def _pairs(lock: Any) -> Run:  # noqa: ANN401 - of any kind
    def run(number: int) -> None:
        for _ in range(number):
            lock.acquire().release()

    return run


def _sync(make: Callable[[pawlock.Client], Any], *, held: bool = False) -> Callable[[str], Iterator[Run]]:
    def path(url: str) -> Iterator[Run]:
        with pawlock.connect(url) as client:
            lock = make(client)
            outer = lock.acquire() if held else None
            yield _pairs(lock)
            if outer is not None:
                outer.release()

    return path


async def _async_pairs(lock: Any, number: int) -> None:  # noqa: ANN401 - of any kind
    for _ in range(number):
        lease = await lock.acquire()
        await lease.release()


async def _in_turns(lock: Any, number: int) -> None:  # noqa: ANN401 - of any kind
    """Eight tasks after one name: all but the first grants are hand-overs inside the client."""
    await asyncio.gather(*(_async_pairs(lock, number // 8) for _ in range(8)))


def _async(
    make: Callable[[pawlock.AsyncClient], Any], work: Callable[[Any, int], Awaitable[None]]
) -> Callable[[str], Iterator[Run]]:
    def path(url: str) -> Iterator[Run]:
        with asyncio.Runner() as runner:

            async def opened() -> tuple[pawlock.AsyncClient, Any]:
                client = pawlock.connect_async(url)
                return client, make(client)

            client, lock = runner.run(opened())

            async def worked(number: int) -> None:
                await work(lock, number)

            yield lambda number: runner.run(worked(number))
            runner.run(client.close())

    return path


PATHS: Mapping[str, Callable[[str], Iterator[Run]]] = {
    "lock": _sync(lambda client: client.lock("guard")),
    "rlock, taken again": _sync(lambda client: client.rlock("guard"), held=True),
    "fair_lock": _sync(lambda client: client.fair_lock("guard")),
    "semaphore": _sync(lambda client: client.semaphore("guard", permits=8)),
    "rwlock, read": _sync(lambda client: client.rwlock("guard").read),
    "async lock": _async(lambda client: client.lock("guard"), _async_pairs),
    "async lock, handed over": _async(lambda client: client.lock("guard"), _in_turns),
}
"""The hot paths; one operation is an acquire and its release."""


def measure(server: Server, name: str) -> Costs:
    """Return what one operation of a path costs."""
    server.command("FLUSHALL")
    costs: Costs = {}
    for run in PATHS[name](server.url):
        run(WARM_UP)
        # A busy machine only adds: a run of local grants that takes longer than it may asks the server once more.
        counts = [_count(server, run) for _ in range(COUNTED)]
        costs = {key: min(count[key] for count in counts) for key in counts[0]}
    return {key: round(value, 3) for key, value in costs.items()}


def _count(server: Server, run: Run) -> Costs:
    tally = _Tally()
    before, bytes_before = Snapshot.of(server), traffic(server)
    with _counting_calls(tally):
        run(PAIRS)
    bytes_after, after = traffic(server), Snapshot.of(server)
    made = {word: after.calls.get(word, 0) - before.calls.get(word, 0) for word in after.calls}
    return {
        "calls": tally.calls / PAIRS,
        "socket_calls": tally.socket_calls / PAIRS,
        "commands": made.get("evalsha", 0) / PAIRS,
        "server_calls": sum(count for word, count in made.items() if word != "info") / PAIRS,
        "bytes_in": (bytes_after[0] - bytes_before[0]) / PAIRS,
        "bytes_out": (bytes_after[1] - bytes_before[1]) / PAIRS,
    }


def compare(name: str, costs: Costs, baseline: Mapping[str, Any]) -> list[str]:
    """Say what costs more than it may.

    Args:
        name: The path.
        costs: What was measured.
        baseline: What `baseline.json` holds.
    """
    found: list[str] = []
    same = baseline["python"] == this_python()
    for key, usual in baseline["paths"][name].items():
        tolerance = TOLERANCE[key]
        if not same and key in ("calls", "socket_calls"):
            tolerance = max(tolerance, OTHER_PYTHON)
        most = usual * (1 + tolerance) + 0.01
        if costs[key] > most:
            found.append(f"{name}: {key} {costs[key]:g}, at most {most:.4g} (baseline {usual:g})")
    return found


def this_python() -> str:
    """Return the version that decides how many calls there are, such as `3.11`."""
    return ".".join(map(str, sys.version_info[:2]))


def main(argv: list[str] | None = None) -> int:
    """Compare with the baseline, or write it anew.

    Args:
        argv: Command line; None takes that of the process.

    Returns:
        0; 1 if something costs more than it may.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--write", action="store_true", help="write the baseline; say why in the commit")
    arguments = parser.parse_args(argv)
    with Server(persist=False) as server:
        measured = {name: measure(server, name) for name in PATHS}
    if arguments.write:
        document = {"python": this_python(), "paths": measured}
        BASELINE.write_text(json.dumps(document, indent=1) + "\n")
        print(f"{BASELINE.name} is written")
        return 0
    baseline = json.loads(BASELINE.read_text())
    found: list[str] = []
    for name, costs in measured.items():
        print(f"{name}: " + ", ".join(f"{key} {value:g}" for key, value in costs.items()))
        found += compare(name, costs, baseline)
    print("\n".join(found) or "nothing costs more than it may")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
