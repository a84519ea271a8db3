"""Held names as rows: columns, orders, and a plain table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pawlock.cli._common import age_of, duration, holder_of, readable

if TYPE_CHECKING:
    from pawlock import LockInfo

__all__ = ["COLUMNS", "ORDERS", "RIGHT", "cells", "ordered", "table"]

COLUMNS = ("NAME", "KIND", "HOLDER", "AGE", "TTL LEFT", "WAITERS", "WAIT", "FENCE")
RIGHT = {"AGE", "TTL LEFT", "FENCE", "WAITERS", "WAIT"}
_WIDEST = 60

# Each begins with what matters most; of equals, the name decides.
ORDERS: dict[str, Callable[[LockInfo], Any]] = {
    "name": lambda _: 0,
    "age": lambda info: info.since if info.since is not None else math.inf,
    "ttl": lambda info: info.ttl_left,
    "waiters": lambda info: -info.waiting,
    "wait": lambda info: -(info.longest_wait or 0.0),
    "holder": lambda info: (info.host, info.pid or 0, info.holder),
}


def ordered(infos: Iterable[LockInfo], order: str, *, reverse: bool = False) -> list[LockInfo]:
    """Sort records by one of ``ORDERS``."""
    by = ORDERS[order]
    return sorted(infos, key=lambda info: (by(info), info.name, info.kind), reverse=reverse)


def cells(info: LockInfo) -> tuple[str, ...]:
    """One record as text, in the order of ``COLUMNS``."""
    return (
        readable(info.name),
        info.kind,
        holder_of(info),
        duration(age_of(info)),
        duration(info.ttl_left),
        str(info.waiting),
        duration(info.longest_wait) if info.waiting else "-",
        "-" if info.fence is None else str(info.fence),
    )


def table(rows: Sequence[Sequence[str]], columns: Sequence[str] = COLUMNS) -> list[str]:
    """Lines with aligned columns under a head; no column is wider than 60 characters, but the first, never cut."""
    everything = [columns, *rows]
    widths = [max(len(row[at]) for row in everything) for at in range(len(columns))]
    widths = [widths[0], *(min(width, _WIDEST) for width in widths[1:])]
    lines: list[str] = []
    for row in everything:
        parts = [
            text.rjust(width) if head in RIGHT else text.ljust(width)
            for head, text, width in zip(columns, row, widths, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines
