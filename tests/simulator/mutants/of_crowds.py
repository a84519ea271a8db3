"""What is wrong only where many clients meet an operator's word or a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from pawlock.core.state.local_queue import LocalQueue
from pawlock.core.state.records import Turn
from pawlock.core.state.schedule import Schedule

__all__ = ["CLIENTS"]


def _shifted(self: LocalQueue, server_lease: Any, *args: Any, **more: Any) -> Turn:
    before = server_lease.used
    turn = _hand_over(self, server_lease, *args, **more)
    if before < server_lease.used == 10:
        server_lease.fence += 100
    return turn


_hand_over = LocalQueue.hand_over

CLIENTS: dict[str, Callable[[], list[Any]]] = {
    "after ten owners a lease is known by another fence": lambda: [
        patch.object(LocalQueue, "hand_over", _shifted)
    ],
    "a wait leaves no time for other renewals": lambda: [
        patch("pawlock.core.maintenance.outbox._PATIENCE", 60.0),
        patch("pawlock._deadlocks._PATIENCE", 60.0),
        patch("pawlock.core.maintenance.renewals._RECORD_PATIENCE", 60.0),
        patch.object(Schedule, "first_need", lambda _: 1e9),
    ],
}
"""Wrong clients: each a list of patches."""
