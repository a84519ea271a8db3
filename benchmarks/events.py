"""Grants with the instants around them: the raw material of a crowd, and what the history checker judges.

An event is `[worker, asked, acquired, releasing, released, fence]`: seconds of the machine's monotonic clock, which is
one for all processes; `fence` is null where a library has none.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from benchmarks.model import Sample, ViolationError
from tests.support.history import History, Rules, check, report

__all__ = ["Event", "counted", "jain", "judge", "median", "percentile"]

Event: TypeAlias = Sequence[float | None]

_TTL = 30.0
_NAN = float("nan")


def median(values: Iterable[float]) -> float:
    """Return the median; NaN when there is nothing to take it of."""
    known = [value for value in values if value == value]  # noqa: PLR0124 - NaN differs from itself
    return statistics.median(known) if known else _NAN


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of `values` do not exceed; NaN for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else _NAN


def jain(counts: Sequence[int]) -> float:
    """Return Jain's fairness index: 1 when all got the same, 1/n when one got everything."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 0.0


def judge(name: str, events: Sequence[Event]) -> None:
    """Let the history checker look at some grants of one name.

    Raises:
        ViolationError: Two held it at once, or a fence did not rise.
    """
    history = History()
    # By instant, as they would have been written down: a release before the grant that it made possible.
    rows: list[tuple[float, int, int, Event]] = []
    for number, event in enumerate(events):
        rows += [(at or 0.0, step, number, event) for step, at in enumerate(event[1:5])]
    rows.sort(key=lambda row: (row[0], row[1] % 2, row[2]))
    grants: dict[int, str] = {}
    releases: dict[int, str] = {}
    for at, step, number, event in rows:
        who = f"worker {event[0]:g}"
        if step == 0:
            grants[number] = history.invoke(at, who, "acquire", name)
        elif step == 1:
            fence = None if event[5] is None else int(event[5])
            history.ok(at, grants[number], fence=fence, deadline=at + _TTL)
        elif step == 2:
            releases[number] = history.invoke(at, who, "release", name, lease=grants[number])
        else:
            history.ok(at, releases[number])
    # Peers promise no order, and local hand-over has one of its own: those are measured, not judged.
    found = check(history, Rules(overtakes=None))
    if found:
        raise ViolationError(report(found))


def counted(events: Sequence[Event], workers: int, begin: float, end: float) -> Sample:
    """Add up the grants between two instants.

    Args:
        events: In any order.
        workers: How many took part: one that got nothing counts as well.
        begin: From when.
        end: Until when.

    Raises:
        ViolationError: Somebody had it before the one before began to give it back.
    """
    ordered = sorted(events, key=lambda event: event[2] or 0.0)
    for before, after in pairwise(ordered):
        if (after[2] or 0.0) < (before[3] or 0.0):
            raise ViolationError(f"worker {after[0]:g} had it while worker {before[0]:g} held it")
    window = [event for event in ordered if begin <= (event[2] or 0.0) < end]
    order = [int(event[0] or 0) for event in window]
    waits = [(event[2] or 0.0) - (event[1] or 0.0) for event in window]
    sections = [(event[3] or 0.0) - (event[2] or 0.0) for event in window]
    tally = Counter(order)
    counts = [tally[worker] for worker in range(workers)]
    return {
        "grants": len(window),
        "handoffs": sum(before != after for before, after in pairwise(order)),
        "window": end - begin,
        "section_s": sum(sections) / len(sections) if sections else _NAN,
        "jain": jain(counts),
        "most_to_least": max(counts) / min(counts) if min(counts) else float("inf"),
        "wait_p50_ms": percentile(waits, 0.5) * 1000,
        "wait_p99_ms": percentile(waits, 0.99) * 1000,
        "wait_max_ms": max(waits, default=_NAN) * 1000,
    }
