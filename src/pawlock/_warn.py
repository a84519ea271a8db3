"""Warnings that point at the line of the caller, however deep in pawlock they arise."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn"]


def warn(text: str) -> None:
    """Warn the code that called into pawlock.

    Args:
        text: What is wrong and what to do instead.
    """
    level = 2
    while str(sys._getframe(level - 1).f_globals.get("__name__")).startswith("pawlock."):
        level += 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)
