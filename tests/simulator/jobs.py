"""Many seeds on several cores, and what came of them as a file."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.simulator.campaign import Report, simulate
from tests.simulator.drawing import draw
from tests.simulator.plan import FAULTS, OPERATIONS, Plan

__all__ = ["add_to_file", "simulate_in_parts"]

_PART = 250


def _part(seeds: range, smallest: bool, drawn: Callable[[int], Plan]) -> Report:  # noqa: FBT001 - sent to another process
    return simulate(seeds, smallest=smallest, drawn=drawn)


def _end_at_interrupt() -> None:
    """Ctrl-C ends a process that shares the work without a word: the one that shares it out has the word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _interrupts_ignored() -> Generator[None]:
    """For processes that begin meanwhile: they inherit it, so that none is interrupted while it still imports."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def simulate_in_parts(
    seeds: range,
    jobs: int,
    *,
    smallest: bool = True,
    most_findings: int = 5,
    progress: Callable[[Report], object] | None = None,
    drawn: Callable[[int], Plan] = draw,
) -> Report:
    """Run seeds in several processes; each seed gives what it gives in one.

    Args:
        seeds: Which.
        jobs: How many processes.
        smallest: Whether to look for the smallest plan of each that fails; default True.
        most_findings: After how many that fail to begin nothing more; default 5.
        progress: Called with the report now and then.
        drawn: Makes a plan of a seed; a function of a module.

    Returns:
        The report, by number of the seeds that failed; its seconds are those of all processes together.
    """
    report, size = Report(), min(_PART, max(1, len(seeds) // jobs))
    with ExitStack() as held:
        # Spawned, not forked: a fork would share the caller's threads and connections.
        pool = held.enter_context(
            ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_end_at_interrupt)
        )
        with _interrupts_ignored():
            parts = range(0, len(seeds), size)
            under_way = [pool.submit(_part, seeds[at : at + size], smallest, drawn) for at in parts]
        held.callback(pool.shutdown, wait=False, cancel_futures=True)
        for done in as_completed(under_way):
            report.merge(done.result())
            if progress is not None:
                progress(report)
            if len(report.findings) >= most_findings:
                break
    report.findings.sort(key=lambda finding: finding.seed)
    return report


def add_to_file(path: Path, seeds: range, report: Report) -> None:
    """Add what came of some seeds to a file of results, which is made if it is not there.

    Args:
        path: The file.
        seeds: Which seeds were run: none of them may be in it already.
        report: What came of them.

    Raises:
        ValueError: The file has some of these seeds already.
    """
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    ranges: list[list[int]] = known.get("ranges", [])
    if any(first < seeds.stop and seeds.start < end for first, end in ranges):
        raise ValueError(f"{path} has some of the seeds {seeds.start} to {seeds.stop - 1} already")
    topologies = Counter({" ".join(pair): count for pair, count in report.topologies.items()})
    path.write_text(
        json.dumps(
            {
                "ranges": _joined([*ranges, [seeds.start, seeds.start + report.seeds]]),
                "operations": known.get("operations", 0) + report.operations,
                "second_owners": known.get("second_owners", 0) + report.second_owners,
                "violations": known.get("violations", 0) + len(report.findings),
                "core_seconds": round(known.get("core_seconds", 0) + report.seconds),
                "primitives": dict(Counter[str](known.get("primitives", {})) + report.primitives),
                "topologies": dict(Counter[str](known.get("topologies", {})) + topologies),
                "met": dict(Counter[str](known.get("met", {})) + _met(report)),
            },
            indent=1,
            sort_keys=True,
        )
        + "\n",
        encoding="utf-8",
    )


def _met(report: Report) -> Counter[str]:
    """How often each fault met each operation."""
    return Counter({f"{fault} {what}": report.counts[fault, what] for fault in FAULTS for what in OPERATIONS})


def _joined(ranges: list[list[int]]) -> list[list[int]]:
    """Ranges in order, those that touch as one."""
    found: list[list[int]] = []
    for first, end in sorted(ranges):
        if found and found[-1][1] == first:
            found[-1][1] = end
        else:
            found.append([first, end])
    return found
