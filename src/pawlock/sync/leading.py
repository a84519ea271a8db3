"""How a leader's function is run, and how a candidate pauses. A task can be ended, a thread cannot."""

from __future__ import annotations

import time
from collections.abc import Callable
from time import monotonic as clock
from typing import Any, TypeVar

from pawlock._candidacy import POLL, Candidacy
from pawlock._inside import is_closed

__all__ = ["clock", "lead", "pause"]

L = TypeVar("L")
R = TypeVar("R")


def lead(_: Candidacy, function: Callable[[L], R], lease: L) -> R:
    """Run the function; nothing ends it."""
    return function(lease)


def pause(client: Any, candidacy: Candidacy, seconds: float) -> None:
    """Pause, unless it is to end."""
    until = clock() + seconds
    while (left := until - clock()) > 0 and not candidacy.stopped() and not is_closed(client):
        time.sleep(min(POLL, left))
