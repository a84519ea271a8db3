"""How a leader's function is run, and how a candidate pauses. A task can be ended, a thread cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pawlock._candidacy import POLL, Candidacy
from pawlock._inside import is_closed
from pawlock._system import monotonic as clock
from pawlock._system import sleep

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
        sleep(min(POLL, left))
