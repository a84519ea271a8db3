"""How durations are written as text, by everybody: seconds, or a number with a unit."""

from __future__ import annotations

import re

__all__ = ["HOW", "seconds_of"]

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
HOW = "seconds, or a number with ms, s, m, h, d or w"


def seconds_of(text: str) -> float:
    """The seconds that a text stands for: ``"90"``, ``"90s"``, ``"1.5h"``, ``"30d"``, ``"inf"``; -1 if it is no duration.

    Args:
        text: What somebody wrote.
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?|inf)(ms|[smhdw]?)\s*", text, re.ASCII)
    try:
        return float(found[1]) * _UNITS[found[2] or "s"] if found else -1.0
    except ValueError:
        return -1.0
