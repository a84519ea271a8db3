"""Grants with the instants around them: the raw material of a crowd, and what the history checker judges.

An event is `[worker, asked, acquired, releasing, released, fence]`: seconds of the machine's monotonic clock, which is
one for all processes; `fence` is null where a library has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from benchmarks.model import Sample, ViolationError
from benchmarks.stats import jain, most_to_least, percentile
from tests.support.history import History, Rules, check, report

__all__ = ["Event", "counted", "judge"]

Event: TypeAlias = Sequence[float | None]

_TTL = 30.0
_NEVER = float("nan")


def judge(name: str, events: Sequence[Event]) -> None:
    """Let the history checker look at some grants of one name.

    Raises:
        ViolationError: Two held it at once, or a fence did not rise.
    """
    if not events:
        return
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
    """
    ordered = sorted(events, key=lambda event: event[2] or 0.0)
    window = [event for event in ordered if begin <= (event[2] or 0.0) < end]
    order = [int(event[0] or 0) for event in window]
    waits = [(event[2] or 0.0) - (event[1] or 0.0) for event in window]
    sections = [(event[3] or 0.0) - (event[2] or 0.0) for event in window]
    tally = Counter(order)
    counts = [tally[worker] for worker in range(workers)]
    sample: Sample = {
        "grants": len(window),
        "handoffs": sum(before != after for before, after in pairwise(order)),
        "window": end - begin,
        "section_s": sum(sections) / len(sections) if sections else _NEVER,
        "jain": jain(counts),
        "most_to_least": most_to_least(counts),
        "wait_p50_ms": percentile(waits, 0.5) * 1000,
        "wait_p99_ms": percentile(waits, 0.99) * 1000,
        "wait_max_ms": max(waits, default=_NEVER) * 1000,
    }
    return sample
