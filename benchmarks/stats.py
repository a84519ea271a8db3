"""The few numbers the report needs. Plain arithmetic."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def median(values: Iterable[float]) -> float:
    """Return the median; NaN when there is nothing to take it of."""
    known = [value for value in values if value == value]  # noqa: PLR0124 - NaN differs from itself
    return statistics.median(known) if known else float("nan")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of `values` do not exceed; NaN for none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def jain(counts: Sequence[int]) -> float:
    """Return Jain's fairness index: 1 when all got the same, 1/n when one got everything."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 0.0


def most_to_least(counts: Sequence[int]) -> float:
    """Return how many times as much the luckiest got as the unluckiest; infinite if that one got nothing."""
    least = min(counts)
    return max(counts) / least if least else float("inf")
