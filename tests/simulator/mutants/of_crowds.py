"""What is wrong only where many clients meet an operator's word or a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from pawlock.core.records import Hold, Schedule

__all__ = ["CLIENTS"]


def _shifted(self: Hold, place: Any, now: float) -> None:
    _give_to(self, place, now)
    if self.used == 10:
        self.fence += 100


_give_to = Hold.give_to

CLIENTS: dict[str, Callable[[], list[Any]]] = {
    "after ten owners a lease is known by another fence": lambda: [patch.object(Hold, "give_to", _shifted)],
    "a wait leaves no time for other renewals": lambda: [
        patch("pawlock.core.maintenance._PATIENCE", 60.0),
        patch("pawlock._deadlocks._PATIENCE", 60.0),
        patch("pawlock.core.maintenance._RECORD_PATIENCE", 60.0),
        patch.object(Schedule, "first_need", lambda _: 1e9),
    ],
}
"""Wrong clients: each a list of patches."""
