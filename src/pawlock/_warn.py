"""Warnings that point at the line of the caller, however deep in pawlock they arise."""

from __future__ import annotations

import sys
import warnings

__all__ = ["place_of_caller", "warn"]


def warn(text: str) -> None:
    """Warn the code that called into pawlock.

    Args:
        text: What is wrong and what to do instead.
    """
    level = 2
    while str(sys._getframe(level - 1).f_globals.get("__name__")).startswith("pawlock."):
        level += 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def place_of_caller() -> tuple[str, int]:
    """File and line of the code that called into pawlock."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("pawlock."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
