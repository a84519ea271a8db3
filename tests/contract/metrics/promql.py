"""The part of PromQL that the alerts on single events use, so that they are checked where there is no Prometheus.

Only ``sum by (…) (increase(series{…}[…])) > 0``. As in Prometheus, an increase needs two samples within the range: a
series that begins at 1 has none.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Mapping

__all__ = ["INCREASE", "fires", "parse"]

Series = Mapping[frozenset[tuple[str, str]], float]
"""A scrape: the value of each series, by its labels with ``__name__``."""

INCREASE = re.compile(r"sum by \(([^)]*)\) \(increase\((\w+)(?:\{([^}]*)\})?\[(\d+)([smh])\]\)\) > 0")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def parse(text: str) -> dict[frozenset[tuple[str, str]], float]:
    """Read what a process exposes."""
    found: dict[frozenset[tuple[str, str]], float] = {}
    for line in text.splitlines():
        if (sample := _SAMPLE.match(line)) is not None:
            labels = [("__name__", sample[1]), *_LABEL.findall(sample[2] or "")]
            found[frozenset(labels)] = float(sample[3])
    return found


def _fits(labels: Mapping[str, str], matchers: str) -> bool:
    for label, operator, wanted in _MATCHER.findall(matchers):
        value = labels.get(label, "")
        same = value == wanted if operator in ("=", "!=") else re.fullmatch(wanted, value) is not None
        if same is operator.startswith("!"):
            return False
    return True


def fires(
    expression: str, scrapes: Mapping[float, Series], at: float
) -> dict[frozenset[tuple[str, str]], float]:
    """What the expression answers at a time, by the labels that it keeps: empty where no alert fires."""
    found = INCREASE.fullmatch(expression)
    if found is None:
        raise ValueError(f"not of the kind that is understood here: {expression}")
    kept = [label.strip() for label in found[1].split(",")]
    since = at - int(found[4]) * _SECONDS[found[5]]
    window = [scrapes[time] for time in sorted(scrapes) if since < time <= at]
    increases: dict[frozenset[tuple[str, str]], float] = defaultdict(float)
    for series in {one for scrape in window for one in scrape}:
        labels = dict(series)
        if labels["__name__"] != found[2] or not _fits(labels, found[3] or ""):
            continue
        values = [scrape[series] for scrape in window if series in scrape]
        if len(values) < 2:
            continue
        # A value that falls is a process that began again, at 0.
        rise = sum(new - old if new >= old else new for old, new in itertools.pairwise(values))
        increases[frozenset((label, labels[label]) for label in kept if label in labels)] += rise
    return {labels: rise for labels, rise in increases.items() if rise > 0}
